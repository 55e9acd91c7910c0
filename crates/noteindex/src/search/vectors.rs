//! [`VectorSet`]: the vectors of a version in memory, 8 bits a dimension, searched exactly. No training, nothing to tune,
//! and at the sizes it is used for faster than any index on disk. Beyond the configured budget there is none, and the
//! index itself is asked.

use crate::{IndexReader, IndexResult, VectorColumns, VectorRow};
use std::{
    collections::{BinaryHeap, HashMap},
    sync::Arc,
};

/// Vectors that are fetched row by row, because most of them were there before, are fetched this many at a time.
const FETCH: usize = 2_048;
/// Vectors that are multiplied before their scores are looked at.
const BLOCK: usize = 1_024;
/// Bytes beside the vector itself: row, file, hash, scale.
const OVERHEAD: usize = 8 + 4 + 8 + 4;

/// The vectors of a version in memory.
pub struct VectorSet {
    dimensions: usize,
    /// One after another.
    values: Vec<i8>,
    /// What a value of a vector is multiplied with.
    scales: Vec<f32>,
    rows: Vec<u64>,
    /// Which file of the library each belongs to.
    files: Vec<u32>,
    hashes: Vec<u64>,
    /// Places in the order of their rows; empty where rows are in order already.
    by_row: Vec<u32>,
}

/// Vectors whose files are known by their ids only: they can be read while the files are.
pub struct Unnumbered {
    set: VectorSet,
    files: Vec<u64>,
}

impl Unnumbered {
    /// With the numbers that a library gives its files. What belongs to no file of it goes.
    pub fn number(self, file_of: &HashMap<u64, u32>) -> Option<VectorSet> {
        let Self { mut set, files: ids } = self;
        let dimensions = set.dimensions;
        let mut kept = 0;
        for (at, id) in ids.iter().enumerate() {
            let Some(&file) = file_of.get(id) else { continue };
            set.files.push(file);
            if kept != at {
                set.values.copy_within(at * dimensions..(at + 1) * dimensions, kept * dimensions);
                set.scales[kept] = set.scales[at];
                set.rows[kept] = set.rows[at];
                set.hashes[kept] = set.hashes[at];
            }
            kept += 1;
        }
        set.values.truncate(kept * dimensions);
        set.scales.truncate(kept);
        set.rows.truncate(kept);
        set.hashes.truncate(kept);
        set.sort_rows();
        (kept > 0).then_some(set)
    }

    async fn take_over(&mut self, reader: &dyn IndexReader, before: &VectorSet) -> IndexResult<()> {
        let known: HashMap<u64, usize> = before.hashes.iter().enumerate().map(|(at, hash)| (*hash, at)).collect();
        let mut missing: Vec<(u64, u64, u64)> = Vec::new();
        let mut sink = |row: VectorRow<'_>| match known.get(&row.hash) {
            Some(&at) => {
                self.set.values.extend_from_slice(before.values_at(at));
                self.push_keys(row.row, row.file, row.hash, before.scales[at]);
            }
            None => missing.push((row.row, row.file, row.hash)),
        };
        reader.vectors(VectorColumns::KeysOnly, &mut sink).await?;
        for part in missing.chunks(FETCH) {
            let rows: Vec<u64> = part.iter().map(|(row, _, _)| *row).collect();
            for (vector, (row, file, hash)) in reader.vectors_of(&rows).await?.iter().zip(part) {
                if let Some(vector) = vector {
                    self.push(*row, *file, *hash, vector);
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, row: u64, file: u64, hash: u64, vector: &[f32]) {
        if vector.len() == self.set.dimensions {
            let scale = quantise(vector, &mut self.set.values);
            self.push_keys(row, file, hash, scale);
        }
    }

    fn push_keys(&mut self, row: u64, file: u64, hash: u64, scale: f32) {
        self.set.scales.push(scale);
        self.set.rows.push(row);
        self.set.hashes.push(hash);
        self.files.push(file);
    }
}

/// A chunk that is near a question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Near {
    /// Its row in the reader.
    pub row: u64,
    /// Its file in the library.
    pub file: u32,
    /// The cosine.
    pub score: f32,
}

/// A question's vector, ready to be compared.
pub struct Probe {
    values: Vec<i8>,
    scale: f32,
}

impl Probe {
    /// Of a vector of unit length.
    pub fn new(vector: &[f32]) -> Self {
        let mut values = Vec::with_capacity(vector.len());
        let scale = quantise(vector, &mut values);
        Self { values, scale }
    }
}

impl VectorSet {
    /// How many bytes the vectors of so many chunks take.
    pub fn bytes(chunks: u64, dimensions: usize) -> u64 {
        chunks.saturating_mul((dimensions + OVERHEAD) as u64)
    }

    /// Reads the vectors of a version, taking over those that the version before it had already, which must be made with
    /// the same embedder: hashes name texts, not models. `None` when they do not fit the budget or there are none.
    pub async fn read(
        reader: &dyn IndexReader,
        before: Option<&Arc<VectorSet>>,
        budget: u64,
    ) -> IndexResult<Option<Unnumbered>> {
        let info = reader.info();
        let dimensions = info.spec.dimensions;
        if dimensions == 0 || Self::bytes(info.chunks, dimensions) > budget {
            return Ok(None);
        }
        let chunks = info.chunks as usize;
        let mut read =
            Unnumbered { set: VectorSet::with_capacity(dimensions, chunks), files: Vec::with_capacity(chunks) };
        let before = before.filter(|set| set.dimensions == dimensions && set.rows.len() * 2 > chunks);
        match before {
            None => {
                let mut sink = |row: VectorRow<'_>| {
                    if let Some(vector) = row.vector {
                        read.push(row.row, row.file, row.hash, vector);
                    }
                };
                reader.vectors(VectorColumns::All, &mut sink).await?;
            }
            Some(before) => read.take_over(reader, before).await?,
        }
        Ok(Some(read))
    }

    fn with_capacity(dimensions: usize, chunks: usize) -> Self {
        Self {
            dimensions,
            values: Vec::with_capacity(chunks * dimensions),
            scales: Vec::with_capacity(chunks),
            rows: Vec::with_capacity(chunks),
            files: Vec::with_capacity(chunks),
            hashes: Vec::with_capacity(chunks),
            by_row: Vec::new(),
        }
    }

    fn sort_rows(&mut self) {
        if !self.rows.is_sorted() {
            self.by_row = (0..self.rows.len() as u32).collect();
            self.by_row.sort_unstable_by_key(|&at| self.rows[at as usize]);
        }
    }

    fn place_of(&self, row: u64) -> Option<usize> {
        if self.by_row.is_empty() {
            return self.rows.binary_search(&row).ok();
        }
        let place = self.by_row.binary_search_by_key(&row, |&at| self.rows[at as usize]).ok()?;
        self.by_row.get(place).map(|&at| at as usize)
    }

    fn values_at(&self, at: usize) -> &[i8] {
        &self.values[at * self.dimensions..(at + 1) * self.dimensions]
    }

    /// How many vectors there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The nearest chunks of admitted files, best first.
    pub fn nearest(&self, probe: &Probe, admits: impl Fn(u32) -> bool, limit: usize) -> Vec<Near> {
        if probe.values.len() != self.dimensions || limit == 0 {
            return Vec::new();
        }
        let mut best: BinaryHeap<Candidate> = BinaryHeap::with_capacity(limit + 1);
        let mut least = f32::NEG_INFINITY;
        let mut products = [0; BLOCK];
        for (block, values) in self.values.chunks(self.dimensions * BLOCK).enumerate() {
            let count = values.len() / self.dimensions;
            dots(values, &probe.values, &mut products[..count]);
            for (at, product) in (block * BLOCK..).zip(&products[..count]) {
                let score = *product as f32 * self.scales[at] * probe.scale;
                if (best.len() == limit && score <= least) || !admits(self.files[at]) {
                    continue;
                }
                best.push(Candidate(Near { row: self.rows[at], file: self.files[at], score }));
                if best.len() > limit {
                    best.pop();
                }
                if best.len() == limit {
                    least = best.peek().map_or(least, |candidate| candidate.0.score);
                }
            }
        }
        let mut found: Vec<Near> = best.into_iter().map(|candidate| candidate.0).collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
        found
    }

    /// The file of a row, by its number; `None` for a row without a vector.
    pub fn file_of(&self, row: u64) -> Option<u32> {
        self.place_of(row).map(|at| self.files[at])
    }

    /// How like a question a row is; `None` for a row without a vector.
    pub fn likeness(&self, probe: &Probe, row: u64) -> Option<f32> {
        let at = self.place_of(row).filter(|_| probe.values.len() == self.dimensions)?;
        Some(dot(self.values_at(at), &probe.values) as f32 * self.scales[at] * probe.scale)
    }
}

/// Appends the vector in 8 bits and answers the scale. A command from nothing does this for every chunk there is, so it
/// is written for the compiler to do many numbers at once.
fn quantise(vector: &[f32], out: &mut Vec<i8>) -> f32 {
    let largest = largest(vector);
    if largest == 0.0 || !largest.is_finite() {
        out.extend(std::iter::repeat_n(0, vector.len()));
        return 0.0;
    }
    let scale = largest / 127.0;
    let factor = 127.0 / largest;
    // Near this number a unit is the last bit of a fraction: adding it rounds, and the whole number is the lowest byte.
    const UNITS: f32 = 12_582_912.0;
    out.extend(vector.iter().map(|v| (v * factor + UNITS).to_bits() as i8));
    scale
}

/// The largest size of a number in it. What is no number does not count.
fn largest(vector: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut most = [0.0f32; LANES];
    for part in vector.chunks(LANES) {
        for (most, value) in most.iter_mut().zip(part) {
            let size = value.abs();
            *most = if size > *most { size } else { *most };
        }
    }
    most.iter().fold(0.0, |a, b| if *b > a { *b } else { a })
}

/// Multiplies each of the vectors, which lie one after another, with one. By 32 bytes where the processor can.
fn dots(values: &[i8], with: &[i8], out: &mut [i32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function was compiled for; it has no other condition.
        #[allow(unsafe_code)]
        unsafe {
            return dots_by_32(values, with, out);
        }
    }
    dots_plainly(values, with, out);
}

/// The same loop, compiled for wider registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dots_by_32(values: &[i8], with: &[i8], out: &mut [i32]) {
    dots_plainly(values, with, out);
}

#[inline(always)]
fn dots_plainly(values: &[i8], with: &[i8], out: &mut [i32]) {
    for (values, out) in values.chunks_exact(with.len()).zip(out) {
        *out = dot(values, with);
    }
}

/// The compiler makes this wide: sums of products of 8 bits, in 32.
#[inline(always)]
fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum()
}

/// Ordered so that the worst stands at the top of the heap.
struct Candidate(Near);

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Candidate {}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.score.total_cmp(&self.0.score).then(self.0.row.cmp(&other.0.row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::cosine;
    use proptest::prelude::*;

    fn unit(mut vector: Vec<f32>) -> Option<Vec<f32>> {
        let length = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
        vector.iter_mut().for_each(|v| *v /= length);
        (length > 1e-6).then_some(vector)
    }

    fn any_vectors() -> impl Strategy<Value = Vec<Vec<f32>>> {
        prop::collection::vec(prop::collection::vec(-1.0f32..1.0, 16), 2..60)
            .prop_map(|all| all.into_iter().filter_map(unit).collect())
    }

    proptest! {
        #[test]
        fn eight_bits_are_the_nearest_there_are(vector in prop::collection::vec(-1.0f32..1.0, 1..80), power in -20i32..20) {
            let vector: Vec<f32> = vector.iter().map(|v| v * 2f32.powi(power)).collect();
            let mut values = Vec::new();
            let scale = quantise(&vector, &mut values);
            prop_assert_eq!(values.len(), vector.len());
            for (value, exact) in values.iter().zip(&vector) {
                prop_assert!((f32::from(*value) * scale - exact).abs() <= scale * 0.501, "{value} {exact} {scale}");
            }
        }

        #[test]
        fn the_scan_finds_what_an_exact_search_finds(vectors in any_vectors(), limit in 1usize..8) {
            prop_assume!(vectors.len() > 1);
            let mut read = Unnumbered { set: VectorSet::with_capacity(16, vectors.len()), files: Vec::new() };
            for (at, vector) in vectors.iter().enumerate() {
                read.push(at as u64 * 10, at as u64 + 1000, at as u64, vector);
            }
            // Every fifth belongs to a file that is not in the library.
            let is_there = |at: &usize| at % 5 != 4;
            let numbers = (0..vectors.len()).filter(is_there).map(|at| (at as u64 + 1000, at as u32)).collect();
            let set = read.number(&numbers).unwrap();
            let probe = Probe::new(&vectors[0]);
            let found = set.nearest(&probe, |file| file % 3 != 1, limit);
            let mut exact: Vec<f32> = (0..vectors.len()).filter(|at| at % 3 != 1 && is_there(at)).map(|at| cosine(&vectors[0], &vectors[at])).collect();
            exact.sort_by(|a, b| b.total_cmp(a));
            prop_assert_eq!(found.len(), limit.min(exact.len()));
            for (hit, score) in found.iter().zip(&exact) {
                prop_assert!((hit.score - score).abs() < 0.03, "{} {}", hit.score, score);
                prop_assert!(hit.row / 10 % 3 != 1 && is_there(&(hit.row as usize / 10)));
                prop_assert_eq!(u64::from(hit.file) * 10, hit.row);
            }
            prop_assert!(found.iter().all(|f| set.likeness(&probe, f.row) == Some(f.score)));
        }
    }

    #[test]
    fn what_is_no_number_is_nothing() {
        let mut values = Vec::new();
        quantise(&[f32::NAN, 0.5, -1.0], &mut values);
        assert_eq!(values, [0, 64, -127]);
        values.clear();
        assert_eq!(quantise(&[f32::INFINITY, 0.5], &mut values), 0.0);
        assert_eq!(values, [0, 0]);
    }
}
