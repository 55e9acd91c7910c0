//! Vectors in 8 bits, and exact scans over many of them.
//!
//! Plain safe loops in shapes the compiler turns into vector instructions; there is no index to train, and recall is
//! 1.0 up to the rounding of 8 bits (about 0.002 in a cosine).

use super::{asset::DIMENSIONS, embedder::Vector};

/// Products that are made before they are added.
const BLOCK: usize = 32;

/// One vector in 8 bits with the worth of a unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantised {
    values: [i8; DIMENSIONS],
    scale: f32,
}

impl Quantised {
    /// Rounds a vector. The largest of its numbers becomes 127, so that small ones keep as much as they can.
    pub fn new(vector: &Vector) -> Self {
        let largest = vector.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        if !largest.is_normal() {
            return Self { values: [0; DIMENSIONS], scale: 0.0 };
        }
        let factor = 127.0 / largest;
        Self { values: std::array::from_fn(|i| (vector[i] * factor).round() as i8), scale: largest / 127.0 }
    }

    /// From parts that were stored.
    pub fn from_parts(values: [i8; DIMENSIONS], scale: f32) -> Self {
        Self { values, scale }
    }

    /// The rounded numbers.
    pub fn values(&self) -> &[i8; DIMENSIONS] {
        &self.values
    }

    /// What one unit of them is worth.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// The product with another: the cosine, where both were made from unit vectors.
    pub fn dot(&self, other: &Self) -> f32 {
        dot(&self.values, &other.values) as f32 * self.scale * other.scale
    }
}

/// Many vectors, one after the other in memory.
#[derive(Debug, Clone, Default)]
pub struct VectorTable {
    values: Vec<i8>,
    scales: Vec<f32>,
}

impl VectorTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty table with room for so many vectors.
    pub fn with_capacity(vectors: usize) -> Self {
        Self { values: Vec::with_capacity(vectors * DIMENSIONS), scales: Vec::with_capacity(vectors) }
    }

    /// Vectors in it.
    pub fn len(&self) -> usize {
        self.scales.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.scales.is_empty()
    }

    /// Bytes of memory its vectors take.
    pub fn bytes(&self) -> usize {
        self.values.capacity() + self.scales.capacity() * size_of::<f32>()
    }

    /// Appends a vector; `None` keeps the place with a vector that is like no other (its product is always 0).
    pub fn push(&mut self, vector: Option<&Vector>) {
        match vector {
            Some(vector) => self.push_quantised(&Quantised::new(vector)),
            None => self.push_quantised(&Quantised { values: [0; DIMENSIONS], scale: 0.0 }),
        }
    }

    /// Appends a vector that is rounded already.
    pub fn push_quantised(&mut self, vector: &Quantised) {
        self.values.extend_from_slice(&vector.values);
        self.scales.push(vector.scale);
    }

    /// Puts another vector in the place of one; `false` when there is no such place.
    pub fn replace(&mut self, at: usize, vector: &Quantised) -> bool {
        let rows = self.values.as_chunks_mut::<DIMENSIONS>().0;
        let (Some(row), Some(scale)) = (rows.get_mut(at), self.scales.get_mut(at)) else { return false };
        *row = vector.values;
        *scale = vector.scale;
        true
    }

    /// Removes a vector by moving the last one into its place; `false` when there is none.
    pub fn swap_remove(&mut self, at: usize) -> bool {
        if at >= self.len() {
            return false;
        }
        let last = self.len() - 1;
        self.values.copy_within(last * DIMENSIONS.., at * DIMENSIONS);
        self.values.truncate(last * DIMENSIONS);
        self.scales.swap_remove(at);
        true
    }

    /// A vector of the table.
    pub fn get(&self, at: usize) -> Option<Quantised> {
        let values = self.values.as_chunks::<DIMENSIONS>().0.get(at)?;
        Some(Quantised { values: *values, scale: *self.scales.get(at)? })
    }

    /// Calls `each` with the number of every vector and its product with the query's.
    pub fn scan(&self, query: &Quantised, mut each: impl FnMut(usize, f32)) {
        let rows = self.values.as_chunks::<DIMENSIONS>().0;
        for (number, (row, scale)) in rows.iter().zip(&self.scales).enumerate() {
            each(number, dot(row, &query.values) as f32 * scale * query.scale);
        }
    }

    /// The vectors most like the query's, best first, among those the filter lets through.
    pub fn nearest(&self, query: &Quantised, count: usize, filter: impl Fn(usize) -> bool) -> Vec<(usize, f32)> {
        let mut best: Vec<(usize, f32)> = Vec::with_capacity(count.saturating_mul(2).min(self.len()));
        let mut least = f32::NEG_INFINITY;
        let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        self.scan(query, |number, likeness| {
            if count == 0 || likeness < least || !filter(number) {
                return;
            }
            best.push((number, likeness));
            // Twice as many as wanted are gathered before they are sorted out: less work than a heap.
            if best.len() >= count.saturating_mul(2) {
                best.select_nth_unstable_by(count - 1, order);
                best.truncate(count);
                least = best.last().map_or(least, |worst| worst.1);
            }
        });
        best.sort_unstable_by(order);
        best.truncate(count);
        best
    }
}

/// The cosine of two unit vectors.
pub fn cosine(a: &Vector, b: &Vector) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// In blocks, products first in 16 bits and then added in 32: the shape that became the fastest code of those measured,
/// on processors with and without wide vectors. Nothing wraps: a product is at most 128 * 128, and 256 of them are far
/// from what an i32 holds. Saying so spares the checks of debug builds.
fn dot(a: &[i8; DIMENSIONS], b: &[i8; DIMENSIONS]) -> i32 {
    let mut total = 0i32;
    for (a, b) in a.as_chunks::<BLOCK>().0.iter().zip(b.as_chunks::<BLOCK>().0) {
        let products: [i16; BLOCK] = std::array::from_fn(|i| i16::from(a[i]).wrapping_mul(i16::from(b[i])));
        total = products.iter().fold(total, |total, product| total.wrapping_add(i32::from(*product)));
    }
    total
}
