//! [`Library`]: a complete version prepared for searches: its reader, its file records, and its vectors in memory.

use super::{
    row_files::{RowFiles, UnnumberedRuns},
    vectors::VectorSet,
};
use crate::{
    ChunkFilter, FileRow, FileState, IndexReader, IndexResult, VersionInfo, file_id,
    names::{link_name, nfc, stem},
};
use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// What searches need to know about a file.
#[derive(Debug, Clone)]
pub struct LibraryFile {
    /// The vault path.
    pub path: String,
    /// Its title.
    pub title: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The day used by date filters.
    pub day: i32,
    /// Number of other notes that link to it.
    pub linked_from: u32,
}

/// Totals over all files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of files with searchable chunks.
    pub indexed: u64,
    /// Number of empty files.
    pub empty: u64,
    /// Number of files skipped on purpose.
    pub skipped: u64,
    /// Number of files that could not be read.
    pub failed: u64,
    /// Number of chunks that have no vector yet.
    pub unembedded: u64,
    /// The latest modification time.
    pub newest_mtime_ms: i64,
    /// Sum of the [`fingerprint`]s of all files.
    pub fingerprint: u64,
}

/// A hash of a file's path, size and modification time. The sum over all files changes whenever a file is added,
/// removed or written, and does not depend on their order.
pub fn fingerprint(path: &str, size: u64, mtime_ms: i64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (path, size, mtime_ms).hash(&mut hasher);
    hasher.finish()
}

/// A complete version prepared for searches.
pub struct Library {
    /// The reader from which rows are fetched.
    pub reader: Arc<dyn IndexReader>,
    /// Files with searchable chunks.
    pub files: Vec<LibraryFile>,
    /// The vectors, if they fit into the budget.
    pub vectors: Option<Arc<VectorSet>>,
    /// The files of all rows, if the vectors do not fit into the budget.
    row_files: Option<RowFiles>,
    /// Totals over all files.
    pub totals: Totals,
    by_id: HashMap<u64, u32>,
    most_linked: u32,
}

impl Library {
    /// Loads what searches need. Vectors that `before` already has are reused if the same embedder made them.
    pub async fn load(reader: Arc<dyn IndexReader>, before: Option<&Library>, budget: u64) -> IndexResult<Library> {
        let same = before.filter(|library| library.info().spec.shares_table(&reader.info().spec));
        let known = same.and_then(|library| library.vectors.as_ref());
        let prepared = match reader.prepare(budget) {
            Some(prepared) => Some(tokio::try_join!(reader.files(), prepared)?.0),
            None => None,
        };
        if let Some(rows) = prepared {
            return Ok(Self::of_files(reader, rows));
        }
        let in_memory = async {
            let vectors = VectorSet::read(&*reader, known, budget).await?;
            let runs = match vectors {
                None if reader.info().spec.dimensions > 0 => Some(UnnumberedRuns::read(&*reader).await?),
                _ => None,
            };
            Ok((vectors, runs))
        };
        let (rows, (vectors, runs)) = tokio::try_join!(reader.files(), in_memory)?;
        let mut library = Self::of_files(reader, rows);
        library.vectors = vectors.and_then(|vectors| vectors.number(&library.by_id)).map(Arc::new);
        library.row_files = runs.map(|runs| runs.number(&library.by_id));
        Ok(library)
    }

    /// Files are numbered in path order, so that two programs that read the same version use the same numbers.
    fn of_files(reader: Arc<dyn IndexReader>, mut rows: Vec<FileRow>) -> Library {
        rows.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let mut totals = Totals::default();
        let mut names: HashMap<String, u32> = HashMap::new();
        for row in &rows {
            totals.newest_mtime_ms = totals.newest_mtime_ms.max(row.mtime_ms);
            totals.fingerprint = totals.fingerprint.wrapping_add(fingerprint(&row.path, row.size, row.mtime_ms));
            totals.unembedded += u64::from(row.unembedded);
            match row.state {
                FileState::Indexed => totals.indexed += 1,
                FileState::Empty => totals.empty += 1,
                FileState::Skipped => totals.skipped += 1,
                FileState::Failed => totals.failed += 1,
            }
            for link in &row.links {
                *names.entry(link.clone()).or_default() += 1;
            }
        }
        let mut files = Vec::with_capacity(totals.indexed as usize);
        let mut by_id = HashMap::with_capacity(totals.indexed as usize);
        let mut most_linked = 0;
        // An empty note also has a chunk: its name.
        for row in rows.into_iter().filter(|row| row.state == FileState::Indexed || row.chunks > 0) {
            // A link names a file or one of its aliases. Two files with the same name share the links to that name.
            let own = link_name(stem(&row.path));
            let linked_from = names.get(&own).copied().unwrap_or(0)
                + row.aliases.iter().filter_map(|alias| names.get(&link_name(alias))).sum::<u32>();
            let linked_from = linked_from - u32::from(row.links.contains(&own) && linked_from > 0);
            most_linked = most_linked.max(linked_from);
            by_id.insert(file_id(&row.path), files.len() as u32);
            files.push(LibraryFile { path: row.path, title: row.title, tags: row.tags, day: row.day, linked_from });
        }
        Library { reader, files, vectors: None, row_files: None, totals, by_id, most_linked }
    }

    /// Which version this is.
    pub fn info(&self) -> &VersionInfo {
        self.reader.info()
    }

    /// The number of the file with this id.
    pub fn file_number(&self, id: u64) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// The file numbers of rows. Rows that are not in memory are read from the index.
    pub async fn files_of(&self, rows: &[u64]) -> IndexResult<Vec<Option<u32>>> {
        let known = |row: u64| match (&self.vectors, &self.row_files) {
            (Some(vectors), _) => vectors.file_of(row),
            (None, Some(files)) => files.file_of(row),
            (None, None) => None,
        };
        let mut files: Vec<Option<u32>> = rows.iter().map(|row| known(*row)).collect();
        let unknown: Vec<usize> = (0..rows.len()).filter(|&at| files[at].is_none()).collect();
        if !unknown.is_empty() {
            let wanted: Vec<u64> = unknown.iter().map(|&at| rows[at]).collect();
            for (at, id) in unknown.into_iter().zip(self.reader.files_of(&wanted).await?) {
                files[at] = self.file_number(id);
            }
        }
        Ok(files)
    }

    /// The file with this number.
    pub fn file(&self, number: u32) -> Option<&LibraryFile> {
        self.files.get(number as usize)
    }

    /// How often a file is linked to, relative to the most linked file, 0 to 1 on a logarithmic scale.
    pub fn link_share(&self, number: u32) -> f32 {
        let count = self.file(number).map_or(0, |file| file.linked_from);
        if count == 0 { 0.0 } else { (1.0 + count as f32).ln() / (1.0 + self.most_linked as f32).ln() }
    }

    /// The files whose paths a rule allows; `None` means all.
    pub fn allowed(&self, allows: impl Fn(&str) -> bool) -> Option<Vec<bool>> {
        let allowed: Vec<bool> = self.files.iter().map(|file| allows(&file.path)).collect();
        allowed.contains(&false).then_some(allowed)
    }

    /// The folders and files of a filter, spelled as they are stored on disk, where `é` may be one character or two.
    /// Names that do not exist are returned unchanged.
    pub fn spelled(&self, folders: Vec<String>) -> Vec<String> {
        if folders.iter().all(|folder| folder.is_ascii()) {
            return folders;
        }
        let wanted: BTreeSet<String> = folders.iter().map(|folder| nfc(folder).into_owned()).collect();
        let mut found: BTreeSet<String> = BTreeSet::new();
        for file in &self.files {
            let ends = file.path.match_indices('/').map(|(at, _)| at).chain([file.path.len()]);
            let paths = ends.map(|end| &file.path[..end]);
            found.extend(paths.filter(|path| wanted.contains(&*nfc(path))).map(str::to_owned));
        }
        found.extend(folders);
        found.into_iter().collect()
    }

    /// The files that a search may return; `None` means all.
    pub fn admitted(&self, filter: &ChunkFilter, allowed: Option<&[bool]>) -> Option<Vec<bool>> {
        if filter.is_empty() {
            return allowed.map(<[bool]>::to_vec);
        }
        let admits = |(number, file): (usize, &LibraryFile)| {
            filter.admits(&file.path, &file.tags, file.day)
                && allowed.is_none_or(|allowed| allowed.get(number) == Some(&true))
        };
        Some(self.files.iter().enumerate().map(admits).collect())
    }
}
