//! Meaning as vectors: the trait an embedding model stands behind, and a compact exact scan.

/// Turns text into a vector. Comes from outside: this crate holds no model.
pub trait TextEmbedder: Send + Sync {
    /// The vector of a text, of the same length for every text; `None` when the model knows no word of it.
    fn embed(&self, text: &str) -> Option<Vec<f32>>;
}

/// The vectors of all tools, at unit length in 8 bits each: a quarter of the memory to read on every search.
#[derive(Debug, Clone)]
pub(super) struct Vectors {
    dimensions: usize,
    values: Vec<i8>,
    /// Whether a tool has a vector at all.
    known: Vec<bool>,
}

impl Vectors {
    /// Embeds every text. `None` when the model gives no vector, or vectors of different lengths.
    pub(super) fn new<'a>(texts: impl Iterator<Item = &'a str>, embedder: &dyn TextEmbedder) -> Option<Self> {
        let vectors: Vec<Option<Vec<f32>>> = texts.map(|text| embedder.embed(text)).collect();
        let dimensions = vectors.iter().flatten().map(Vec::len).next().filter(|length| *length > 0)?;
        let mut values = Vec::with_capacity(vectors.len() * dimensions);
        let mut known = Vec::with_capacity(vectors.len());
        for vector in &vectors {
            match vector.as_deref().and_then(|vector| quantised(vector, dimensions)) {
                Some(quantised) => {
                    values.extend(quantised);
                    known.push(true);
                }
                None => {
                    values.extend(std::iter::repeat_n(0i8, dimensions));
                    known.push(false);
                }
            }
        }
        Some(Self { dimensions, values, known })
    }

    /// The cosine of a query's vector with each tool's; 0 where there is none.
    pub(super) fn similarities(&self, query: &[f32]) -> Option<Vec<f32>> {
        let query = quantised(query, self.dimensions)?;
        let rows = self.values.chunks_exact(self.dimensions).zip(&self.known);
        Some(rows.map(|(row, known)| if *known { dot(row, &query) as f32 / (127.0 * 127.0) } else { 0.0 }).collect())
    }
}

fn quantised(vector: &[f32], dimensions: usize) -> Option<Vec<i8>> {
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if vector.len() != dimensions || !norm.is_normal() {
        return None;
    }
    Some(vector.iter().map(|x| (x / norm * 127.0).round() as i8).collect())
}

fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(x, y)| i32::from(i16::from(*x) * i16::from(*y))).sum()
}
