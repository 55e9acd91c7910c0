//! [`Library`]: a complete version as searches use it: its reader, what is known of its files, its vectors in memory.

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

/// What searches need to know of a file.
#[derive(Debug, Clone)]
pub struct LibraryFile {
    /// Where it lies.
    pub path: String,
    /// Its title.
    pub title: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The day that date filters compare.
    pub day: i32,
    /// How many other notes link to it.
    pub linked_from: u32,
}

/// Counts over all files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files whose chunks can be found.
    pub indexed: u64,
    /// Files with nothing in them.
    pub empty: u64,
    /// Files left out on purpose.
    pub skipped: u64,
    /// Files that could not be read.
    pub failed: u64,
    /// Chunks that wait for a vector.
    pub unembedded: u64,
    /// When the newest of them was written.
    pub newest_mtime_ms: i64,
    /// Names and sizes and times of all of them; see [`fingerprint`].
    pub fingerprint: u64,
}

/// A number for what was seen of a file from outside. Those of all files, added up, change whenever a file comes, goes or
/// is written, whatever order they are seen in.
pub fn fingerprint(path: &str, size: u64, mtime_ms: i64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (path, size, mtime_ms).hash(&mut hasher);
    hasher.finish()
}

/// A complete version as searches use it.
pub struct Library {
    /// Where rows are fetched.
    pub reader: Arc<dyn IndexReader>,
    /// Files whose chunks can be found.
    pub files: Vec<LibraryFile>,
    /// The vectors, where they fit the budget.
    pub vectors: Option<Arc<VectorSet>>,
    /// The files of all rows, where vectors do not fit the budget.
    row_files: Option<RowFiles>,
    /// Counts over all files.
    pub totals: Totals,
    by_id: HashMap<u64, u32>,
    most_linked: u32,
}

impl Library {
    /// Reads what searches need. Vectors that `before` has already are not read again, if the same embedder made them.
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

    /// Files are numbered in the order of their paths: two programs that read the same version number them alike.
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
        // An empty note has a chunk too: its name.
        for row in rows.into_iter().filter(|row| row.state == FileState::Indexed || row.chunks > 0) {
            // A link names a file or one of its aliases. Two files of one name share what links to it.
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

    /// The number of a file.
    pub fn file_number(&self, id: u64) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// The numbers of the files that rows belong to. Rows that are not known in memory are looked up.
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

    /// The file of a number.
    pub fn file(&self, number: u32) -> Option<&LibraryFile> {
        self.files.get(number as usize)
    }

    /// How much a file is linked to, 0 to 1, against the file that is linked to most.
    pub fn link_share(&self, number: u32) -> f32 {
        let count = self.file(number).map_or(0, |file| file.linked_from);
        if count == 0 { 0.0 } else { (1.0 + count as f32).ln() / (1.0 + self.most_linked as f32).ln() }
    }

    /// Which files a rule over their paths allows; `None` means all of them.
    pub fn allowed(&self, allows: impl Fn(&str) -> bool) -> Option<Vec<bool>> {
        let allowed: Vec<bool> = self.files.iter().map(|file| allows(&file.path)).collect();
        allowed.contains(&false).then_some(allowed)
    }

    /// The folders and files that a filter means, as their names are spelled on disk: `é` may be one character there or
    /// two. What is not there stays as it was given.
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

    /// Which files a search may find; `None` means all of them.
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
