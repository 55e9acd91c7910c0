//! 8-bit quantised vectors, and exact scans over many of them.
//!
//! There is no index to train, and recall is 1.0 up to the 8-bit rounding error (about 0.002 in a cosine).

use super::{asset::DIMENSIONS, embedder::Vector};

/// Number of products computed before they are summed.
#[cfg(not(target_arch = "x86_64"))]
const BLOCK: usize = 32;

/// One 8-bit vector with its scale.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantised {
    values: [i8; DIMENSIONS],
    scale: f32,
}

impl Quantised {
    /// Quantises a vector. The largest absolute value maps to 127, so that small values keep as much precision as
    /// possible.
    pub fn new(vector: &Vector) -> Self {
        let largest = vector.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        if !largest.is_normal() {
            return Self { values: [0; DIMENSIONS], scale: 0.0 };
        }
        let factor = 127.0 / largest;
        Self { values: std::array::from_fn(|i| (vector[i] * factor).round() as i8), scale: largest / 127.0 }
    }

    /// Restores a vector from stored values and scale.
    pub fn from_parts(values: [i8; DIMENSIONS], scale: f32) -> Self {
        Self { values, scale }
    }

    /// The quantised values.
    pub fn values(&self) -> &[i8; DIMENSIONS] {
        &self.values
    }

    /// The factor that turns a quantised value into the original one.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// The dot product with another vector. It equals the cosine when both were made from unit vectors.
    pub fn dot(&self, other: &Self) -> f32 {
        dot(&self.values, &other.values) as f32 * self.scale * other.scale
    }
}

/// Many vectors, stored contiguously.
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

    /// An empty table with capacity for this many vectors.
    pub fn with_capacity(vectors: usize) -> Self {
        Self { values: Vec::with_capacity(vectors * DIMENSIONS), scales: Vec::with_capacity(vectors) }
    }

    /// Number of vectors in the table.
    pub fn len(&self) -> usize {
        self.scales.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.scales.is_empty()
    }

    /// Bytes of memory that the table has allocated for its vectors.
    pub fn bytes(&self) -> usize {
        self.values.capacity() + self.scales.capacity() * size_of::<f32>()
    }

    /// Appends a vector. `None` appends a zero vector, whose dot product with every vector is 0.
    pub fn push(&mut self, vector: Option<&Vector>) {
        match vector {
            Some(vector) => self.push_quantised(&Quantised::new(vector)),
            None => self.push_quantised(&Quantised { values: [0; DIMENSIONS], scale: 0.0 }),
        }
    }

    /// Appends a vector that is already quantised.
    pub fn push_quantised(&mut self, vector: &Quantised) {
        self.values.extend_from_slice(&vector.values);
        self.scales.push(vector.scale);
    }

    /// Replaces the vector at `at`; returns `false` when there is none.
    pub fn replace(&mut self, at: usize, vector: &Quantised) -> bool {
        let rows = self.values.as_chunks_mut::<DIMENSIONS>().0;
        let (Some(row), Some(scale)) = (rows.get_mut(at), self.scales.get_mut(at)) else { return false };
        *row = vector.values;
        *scale = vector.scale;
        true
    }

    /// Removes the vector at `at` by moving the last one into its position; returns `false` when there is none.
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

    /// The vector at `at`.
    pub fn get(&self, at: usize) -> Option<Quantised> {
        let values = self.values.as_chunks::<DIMENSIONS>().0.get(at)?;
        Some(Quantised { values: *values, scale: *self.scales.get(at)? })
    }

    /// Calls `each` with the index of every vector and its dot product with the query.
    pub fn scan(&self, query: &Quantised, mut each: impl FnMut(usize, f32)) {
        let rows = self.values.as_chunks::<DIMENSIONS>().0;
        for (number, (row, scale)) in rows.iter().zip(&self.scales).enumerate() {
            each(number, dot(row, &query.values) as f32 * scale * query.scale);
        }
    }

    /// The `count` vectors most similar to the query, best first, among those that pass the filter.
    pub fn nearest(&self, query: &Quantised, count: usize, filter: impl Fn(usize) -> bool) -> Vec<(usize, f32)> {
        let mut best: Vec<(usize, f32)> = Vec::with_capacity(count.saturating_mul(2).min(self.len()));
        let mut least = f32::NEG_INFINITY;
        let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        self.scan(query, |number, likeness| {
            if count == 0 || likeness < least || !filter(number) {
                return;
            }
            best.push((number, likeness));
            // Collecting up to twice `count` candidates before each selection costs less than a heap.
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

/// The dot product of two rows. On x86_64 it is written with SSE2, which every such processor has: a release is optimised
/// across crates for size, and that leaves loops unvectorised however they are written. Nothing overflows: the sum of 256
/// products of two 8-bit numbers fits in an i32.
#[cfg(target_arch = "x86_64")]
#[inline]
fn dot(a: &[i8; DIMENSIONS], b: &[i8; DIMENSIONS]) -> i32 {
    // SAFETY: SSE2 is part of x86_64.
    #[expect(unsafe_code, reason = "a function for certain processors can be called in no other way")]
    unsafe {
        sse2_dot(a, b)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn sse2_dot(a: &[i8; DIMENSIONS], b: &[i8; DIMENSIONS]) -> i32 {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_madd_epi16, _mm_set_epi64x, _mm_setzero_si128,
        _mm_shuffle_epi32, _mm_srai_epi16, _mm_unpackhi_epi8, _mm_unpacklo_epi8,
    };
    const LANES: usize = 16;
    let load = |values: &[i8; LANES]| {
        let [low, high] = [0, 8].map(|at| i64::from_le_bytes(std::array::from_fn(|i| values[at + i] as u8)));
        _mm_set_epi64x(high, low)
    };
    // An 8-bit number in the upper half of 16 bits, shifted down with its sign.
    let widen = |pairs: __m128i| _mm_srai_epi16::<8>(pairs);
    let (mut even, mut odd) = (_mm_setzero_si128(), _mm_setzero_si128());
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        let (a, b) = (load(a), load(b));
        let low = _mm_madd_epi16(widen(_mm_unpacklo_epi8(a, a)), widen(_mm_unpacklo_epi8(b, b)));
        let high = _mm_madd_epi16(widen(_mm_unpackhi_epi8(a, a)), widen(_mm_unpackhi_epi8(b, b)));
        (even, odd) = (_mm_add_epi32(even, low), _mm_add_epi32(odd, high));
    }
    let four = _mm_add_epi32(even, odd);
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two)))
}

/// The dot product of two rows in blocks: 16-bit products first, then a 32-bit sum. The wrapping operations only avoid the
/// overflow checks of debug builds.
#[cfg(not(target_arch = "x86_64"))]
fn dot(a: &[i8; DIMENSIONS], b: &[i8; DIMENSIONS]) -> i32 {
    let mut total = 0i32;
    for (a, b) in a.as_chunks::<BLOCK>().0.iter().zip(b.as_chunks::<BLOCK>().0) {
        let products: [i16; BLOCK] = std::array::from_fn(|i| i16::from(a[i]).wrapping_mul(i16::from(b[i])));
        total = products.iter().fold(total, |total, product| total.wrapping_add(i32::from(*product)));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dot_product_is_the_sum_of_the_products_also_of_extreme_values() {
        let plain = |a: &[i8; DIMENSIONS], b: &[i8; DIMENSIONS]| -> i32 {
            a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
        };
        let mixed: [i8; DIMENSIONS] = std::array::from_fn(|i| (i * 37 % 256) as u8 as i8);
        let other: [i8; DIMENSIONS] = std::array::from_fn(|i| (i * 101 % 256) as u8 as i8);
        for (a, b) in [
            (mixed, other),
            (other, mixed),
            ([i8::MIN; DIMENSIONS], [i8::MIN; DIMENSIONS]),
            ([i8::MIN; DIMENSIONS], [i8::MAX; DIMENSIONS]),
            ([i8::MAX; DIMENSIONS], mixed),
        ] {
            assert_eq!(dot(&a, &b), plain(&a, &b));
        }
    }
}
