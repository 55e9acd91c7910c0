//! [`RowFiles`]: maps each row of a version to its file, for a version whose vectors are not in memory.
//!
//! The chunks of a note are written together, so the rows of a file are consecutive: a run takes 16 bytes, regardless
//! of its length. Reading the column for the few hundred candidates of a search would take longer than the search.

use crate::{IndexReader, IndexResult, VectorColumns, VectorRow};
use std::collections::HashMap;

/// Consecutive rows of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowRun {
    first: u64,
    rows: u32,
    file: u32,
}

/// Runs with file ids instead of file numbers, so that they can be read in parallel with the files.
#[derive(Default)]
pub(super) struct UnnumberedRuns(Vec<(u64, u32, u64)>);

impl UnnumberedRuns {
    pub(super) async fn read(reader: &dyn IndexReader) -> IndexResult<Self> {
        let mut runs = Self::default();
        reader.vectors(VectorColumns::FilesOnly, &mut |row: VectorRow<'_>| runs.push(row.row, row.file)).await?;
        Ok(runs)
    }

    fn push(&mut self, row: u64, file: u64) {
        match self.0.last_mut() {
            Some((first, rows, of)) if *of == file && *first + u64::from(*rows) == row => *rows += 1,
            _ => self.0.push((row, 1, file)),
        }
    }

    /// Replaces file ids by the library's file numbers. Rows of unknown files are dropped.
    pub(super) fn number(self, file_of: &HashMap<u64, u32>) -> RowFiles {
        let numbered =
            |(first, rows, id): (u64, u32, u64)| Some(RowRun { first, rows, file: file_of.get(&id).copied()? });
        let mut runs: Vec<RowRun> = self.0.into_iter().filter_map(numbered).collect();
        runs.sort_unstable_by_key(|run| run.first);
        runs.shrink_to_fit();
        RowFiles(runs)
    }
}

/// Maps each row to its file.
pub(super) struct RowFiles(Vec<RowRun>);

impl RowFiles {
    /// The file number of a row; `None` for an unknown row.
    pub(super) fn file_of(&self, row: u64) -> Option<u32> {
        let after = self.0.partition_point(|run| run.first <= row);
        let run = self.0.get(after.checked_sub(1)?)?;
        (row - run.first < u64::from(run.rows)).then_some(run.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_row_has_the_file_it_was_written_with(rows in prop::collection::btree_map(0u64..200, 0u64..6, 0..80), known in 1u32..6) {
            let mut runs = UnnumberedRuns::default();
            for (row, file) in &rows {
                runs.push(*row, *file);
            }
            let numbers: HashMap<u64, u32> = (0..known).map(|number| (u64::from(number), number + 10)).collect();
            let files = runs.number(&numbers);
            for row in 0..210 {
                let file = rows.get(&row).and_then(|file| numbers.get(file)).copied();
                prop_assert_eq!(files.file_of(row), file, "row {}", row);
            }
        }
    }

    #[test]
    fn a_note_takes_one_run() {
        let mut runs = UnnumberedRuns::default();
        (0..1_000).for_each(|row| runs.push(row, row / 10));
        assert_eq!(runs.0.len(), 100);
    }
}
