//! [`VectorSet`]: the vectors of a version in memory, 8 bits per dimension, searched exactly. It needs no training or
//! tuning, and at the sizes it is used for it is faster than an index on disk. Above the configured budget there is no
//! set, and the index itself is queried.

use crate::{IndexReader, IndexResult, VectorColumns, VectorRow};
use std::{
    collections::{BinaryHeap, HashMap},
    sync::Arc,
};

/// Batch size when vectors are fetched row by row, because most of them are reused from the previous version.
const FETCH: usize = 2_048;
/// Number of vectors whose dot products are computed before the scores are examined.
const BLOCK: usize = 1_024;
/// Bytes per vector besides its values: row, file, hash, scale.
const OVERHEAD: usize = 8 + 4 + 8 + 4;

/// The vectors of a version in memory.
pub struct VectorSet {
    dimensions: usize,
    /// The values of all vectors, contiguous.
    values: Vec<i8>,
    /// The scale of each vector.
    scales: Vec<f32>,
    rows: Vec<u64>,
    /// The library's file number of each vector.
    files: Vec<u32>,
    hashes: Vec<u64>,
    /// Positions ordered by row; empty when the rows are already in order.
    by_row: Vec<u32>,
}

/// Vectors with file ids instead of file numbers, so that they can be read in parallel with the files.
pub struct UnnumberedVectors {
    set: VectorSet,
    files: Vec<u64>,
}

impl UnnumberedVectors {
    /// Replaces file ids by the library's file numbers. Vectors of unknown files are dropped.
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

/// A chunk and its similarity to a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    /// Its row in the reader.
    pub row: u64,
    /// Its file number in the library.
    pub file: u32,
    /// The cosine similarity.
    pub score: f32,
}

/// A quantised query vector.
pub struct QuantisedQuery {
    values: Vec<i8>,
    scale: f32,
}

impl QuantisedQuery {
    /// Creates it from a vector of unit length.
    pub fn new(vector: &[f32]) -> Self {
        let mut values = Vec::with_capacity(vector.len());
        let scale = quantise(vector, &mut values);
        Self { values, scale }
    }
}

impl VectorSet {
    /// The memory that the vectors of this many chunks take, in bytes.
    pub fn bytes(chunks: u64, dimensions: usize) -> u64 {
        chunks.saturating_mul((dimensions + OVERHEAD) as u64)
    }

    /// Reads the vectors of a version and reuses those that `before` already has. Both must be made with the same
    /// embedder, because a hash identifies a text and not a model. Returns `None` when the vectors do not fit into the
    /// budget or there are none.
    pub async fn read(
        reader: &dyn IndexReader,
        before: Option<&Arc<VectorSet>>,
        budget: u64,
    ) -> IndexResult<Option<UnnumberedVectors>> {
        let info = reader.info();
        let dimensions = info.spec.dimensions;
        if dimensions == 0 || Self::bytes(info.chunks, dimensions) > budget {
            return Ok(None);
        }
        let chunks = info.chunks as usize;
        let mut read =
            UnnumberedVectors { set: VectorSet::with_capacity(dimensions, chunks), files: Vec::with_capacity(chunks) };
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

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The most similar chunks of admitted files, best first.
    pub fn nearest(&self, probe: &QuantisedQuery, admits: impl Fn(u32) -> bool, limit: usize) -> Vec<Neighbour> {
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
                best.push(Candidate(Neighbour { row: self.rows[at], file: self.files[at], score }));
                if best.len() > limit {
                    best.pop();
                }
                if best.len() == limit {
                    least = best.peek().map_or(least, |candidate| candidate.0.score);
                }
            }
        }
        let mut found: Vec<Neighbour> = best.into_iter().map(|candidate| candidate.0).collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
        found
    }

    /// The file number of a row; `None` for a row without a vector.
    pub fn file_of(&self, row: u64) -> Option<u32> {
        self.place_of(row).map(|at| self.files[at])
    }

    /// The cosine of a row with the query; `None` for a row without a vector.
    pub fn likeness(&self, probe: &QuantisedQuery, row: u64) -> Option<f32> {
        let at = self.place_of(row).filter(|_| probe.values.len() == self.dimensions)?;
        Some(dot(self.values_at(at), &probe.values) as f32 * self.scales[at] * probe.scale)
    }
}

/// Appends the vector in 8 bits and returns the scale. A command that loads an index does this for every chunk, so the
/// loop is written so that the compiler can vectorise it.
fn quantise(vector: &[f32], out: &mut Vec<i8>) -> f32 {
    let largest = largest(vector);
    if largest == 0.0 || !largest.is_finite() {
        out.extend(std::iter::repeat_n(0, vector.len()));
        return 0.0;
    }
    let scale = largest / 127.0;
    let factor = 127.0 / largest;
    // Near this value the last bit of an f32 is one unit: the addition rounds, and the integer is the lowest byte.
    const UNITS: f32 = 12_582_912.0;
    out.extend(vector.iter().map(|v| (v * factor + UNITS).to_bits() as i8));
    scale
}

/// The largest absolute value in the vector. NaN is ignored.
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

/// Computes the dot product of each contiguous vector with `with`, using AVX2 where the processor has it.
fn dots(values: &[i8], with: &[i8], out: &mut [i32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the check above guarantees AVX2, the only requirement of the function.
        #[allow(unsafe_code)]
        unsafe {
            return dots_by_32(values, with, out);
        }
    }
    dots_plainly(values, with, out);
}

/// The same loop, compiled for AVX2.
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

/// The compiler vectorises this loop: 8-bit products, summed in 32 bits.
#[inline(always)]
fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum()
}

/// Ordered so that the worst candidate is at the top of the heap.
struct Candidate(Neighbour);

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
            let mut read = UnnumberedVectors { set: VectorSet::with_capacity(16, vectors.len()), files: Vec::new() };
            for (at, vector) in vectors.iter().enumerate() {
                read.push(at as u64 * 10, at as u64 + 1000, at as u64, vector);
            }
            // Every fifth vector belongs to a file that is not in the library.
            let is_there = |at: &usize| at % 5 != 4;
            let numbers = (0..vectors.len()).filter(is_there).map(|at| (at as u64 + 1000, at as u32)).collect();
            let set = read.number(&numbers).unwrap();
            let probe = QuantisedQuery::new(&vectors[0]);
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
