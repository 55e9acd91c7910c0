//! The two tables: how they are opened, what their tags mean, and which specification a version was built with.

use crate::{
    errors::index_error,
    index::LanceOptions,
    rows::{chunk_schema, file_schema},
    s3::S3,
    table::{Table, batches},
};
use arrow_array::RecordBatch;
use jiff::Timestamp;
use lance::{
    Dataset, Error,
    dataset::{WriteParams, builder::DatasetBuilder},
    session::Session,
};
use lance_io::object_store::{ObjectStore, ObjectStoreParams, ObjectStoreRegistry, StorageOptionsAccessor};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use toolyard_noteindex::{IndexError, IndexResult, IndexSpec, VersionInfo, names::private_folder};

pub(crate) const CHUNKS: &str = "obsidian_chunks";
pub(crate) const FILES: &str = "obsidian_files";
/// Prefix of the tags of complete versions; the generation follows.
const TAG: &str = "complete-";
/// Configuration key that stores the index specification.
const SPEC_KEY: &str = "toolyard.spec";
/// Configuration key that stores when a restored version was first completed: `<version>:<milliseconds>`. The value
/// applies to that version only; versions written later inherit the key.
const COMPLETED_KEY: &str = "toolyard.completed";
/// The share of the caches for indexes, in quarters; the rest is for file metadata.
const INDEX_CACHE_SHARE: u64 = 3;
/// Maximum number of attempts to read tables that a finishing job changes concurrently.
const MAX_LOOKS: usize = 8;
/// The same for an object store, where damage and concurrent change cannot be distinguished cheaply.
const MAX_REMOTE_LOOKS: usize = 2;
/// Delay between two attempts.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The name of a generation's tag.
pub(crate) fn tag_of(generation: u64) -> String {
    format!("{TAG}{generation:012}")
}

/// The location of the tables. Nothing is opened before it is needed.
pub(crate) struct TableLocation {
    pub(crate) options: LanceOptions,
    /// The folder of the tables, if they are local.
    folder: Option<PathBuf>,
    session: OnceLock<Arc<Session>>,
    pruned: Mutex<Option<Instant>>,
}

/// The result of opening a table.
pub(crate) enum OpenOutcome {
    Missing,
    There(Table),
}

impl TableLocation {
    pub(crate) fn new(options: LanceOptions) -> Self {
        let folder = local_folder(&options.uri);
        Self { options, folder, session: OnceLock::new(), pruned: Mutex::default() }
    }

    /// The caches and object stores, shared by both tables.
    fn session(&self) -> Arc<Session> {
        let session = self.session.get_or_init(|| {
            let cache = self.options.cache_bytes;
            let for_indexes = cache / 4 * INDEX_CACHE_SHARE;
            let stores = ObjectStoreRegistry::default();
            stores.insert("s3", Arc::new(S3));
            Arc::new(Session::new(for_indexes as usize, (cache - for_indexes) as usize, Arc::new(stores)))
        });
        session.clone()
    }

    /// The parameters for accessing the location.
    fn store_params(&self) -> ObjectStoreParams {
        let options = &self.options.storage_options;
        let accessor = || Arc::new(StorageOptionsAccessor::with_static_options(options.clone()));
        ObjectStoreParams {
            storage_options_accessor: (!options.is_empty()).then(accessor),
            ..ObjectStoreParams::default()
        }
    }

    /// The URI of a table.
    fn uri(&self, name: &str) -> String {
        match &self.folder {
            // An absolute path leaves nothing for LanceDB to resolve differently.
            Some(folder) => folder.join(format!("{name}.lance")).display().to_string(),
            None => format!("{}/{name}.lance", self.options.uri.trim_end_matches('/')),
        }
    }

    /// Creates the folder of local tables, accessible only to the user.
    pub(crate) fn make_private(&self) -> IndexResult<()> {
        self.folder.as_deref().map_or(Ok(()), private_folder).map_err(index_error)
    }

    /// Whether the last pruning is long enough ago; if so, records the current time as the last pruning.
    pub(crate) fn is_time_to_prune(&self, every: Duration) -> bool {
        let mut pruned = self.pruned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = pruned.is_none_or(|at| at.elapsed() >= every);
        if is_time {
            *pruned = Some(Instant::now());
        }
        is_time
    }

    /// The folder of a table, if it is local.
    fn local(&self, name: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(format!("{name}.lance")))
    }

    /// The newest complete generation. For local tables the file names of the tags suffice.
    pub(crate) async fn generation(&self) -> IndexResult<Option<u64>> {
        if let Some(generations) = self.local_generations() {
            return Ok(generations.last().copied());
        }
        let OpenOutcome::There(chunks) = self.open(CHUNKS).await? else { return Ok(None) };
        Ok(tags(&chunks).await?.pop_last().map(|(generation, _)| generation))
    }

    /// The complete generations by the file names of the tags; `None` for an object store.
    fn local_generations(&self) -> Option<BTreeSet<u64>> {
        let names = std::fs::read_dir(self.local(CHUNKS)?.join("_refs").join("tags"));
        let generation = |entry: std::fs::DirEntry| {
            entry.file_name().to_str()?.strip_prefix(TAG)?.strip_suffix(".json")?.parse::<u64>().ok()
        };
        Some(names.into_iter().flatten().flatten().filter_map(generation).collect())
    }

    /// Runs a read, and repeats it if it reports damage while versions came or went. What a finishing job removes
    /// between two steps of a reader is not damage.
    pub(crate) async fn steadily<T, F: Future<Output = IndexResult<T>>>(&self, look: impl Fn() -> F) -> IndexResult<T> {
        let most = if self.folder.is_some() { MAX_LOOKS } else { MAX_REMOTE_LOOKS };
        for _ in 1..most {
            let before = self.local_generations();
            match look().await {
                Err(IndexError::Corrupted(_)) if before.is_none() || before != self.local_generations() => {}
                done => return done,
            }
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
        look().await
    }

    pub(crate) async fn open(&self, name: &str) -> IndexResult<OpenOutcome> {
        if self.local(name).is_some_and(|folder| !folder.exists()) {
            // When the folder does not exist, LanceDB need not be started.
            return Ok(OpenOutcome::Missing);
        }
        let open = DatasetBuilder::from_uri(self.uri(name)).with_session(self.session());
        match open.with_store_params(self.store_params()).load().await {
            Ok(data) => Ok(OpenOutcome::There(Table::new(data))),
            Err(Error::DatasetNotFound { .. }) => {
                // A folder whose manifests are missing is damaged, unlike a folder that does not exist.
                if self.leftovers(name) {
                    return Err(IndexError::Corrupted(format!("the table {name} has no manifest")));
                }
                Ok(OpenOutcome::Missing)
            }
            Err(error) => Err(index_error(error)),
        }
    }

    /// Whether a local table has data and tags but no manifest. This is known for local folders only.
    fn leftovers(&self, name: &str) -> bool {
        let Some(table) = self.local(name) else { return false };
        std::fs::read_dir(table.join("data")).is_ok_and(|mut entries| entries.next().is_some())
            && std::fs::read_dir(table.join("_refs").join("tags")).is_ok_and(|mut tags| tags.next().is_some())
    }

    /// Deletes both tables.
    pub(crate) async fn discard(&self) -> IndexResult<()> {
        for name in [FILES, CHUNKS] {
            self.remove(name).await?;
        }
        Ok(())
    }

    /// Deletes a table and everything in its folder, if it exists.
    async fn remove(&self, name: &str) -> IndexResult<()> {
        if let Some(folder) = self.local(name) {
            if folder.exists() {
                tokio::fs::remove_dir_all(&folder).await.map_err(index_error)?;
            }
            return Ok(());
        }
        let (stores, params) = (self.session().store_registry(), self.store_params());
        let (store, folder) =
            ObjectStore::from_uri_and_params(stores, &self.uri(name), &params).await.map_err(index_error)?;
        match store.remove_dir_all(folder).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(index_error(error)),
        }
    }

    /// Creates an empty table with this schema, or empties the existing one. Complete versions stay readable, unless
    /// the existing table cannot be opened; then it is deleted.
    pub(crate) async fn empty(&self, name: &str, dimensions: Option<usize>) -> IndexResult<Table> {
        let schema = dimensions.map_or_else(file_schema, |dimensions| chunk_schema(dimensions, true));
        let empty = RecordBatch::new_empty(schema);
        match self.open(name).await {
            Ok(OpenOutcome::There(table)) => match table.overwrite(empty.clone()).await {
                Ok(()) => return Ok(table),
                Err(IndexError::Corrupted(_)) => {}
                // An error such as a full disk must not delete anything.
                Err(other) => return Err(other),
            },
            Ok(OpenOutcome::Missing) | Err(IndexError::Corrupted(_)) => {}
            Err(other) => return Err(other),
        }
        self.remove(name).await?;
        let params = WriteParams {
            session: Some(self.session()),
            store_params: Some(self.store_params()),
            ..WriteParams::default()
        };
        match Dataset::write(batches(empty), self.uri(name).as_str(), Some(params)).await {
            Ok(made) => Ok(Table::new(made)),
            // Nothing existed that could be damaged, so the bucket itself is missing.
            Err(error @ Error::NotFound { .. }) if self.folder.is_none() => {
                Err(IndexError::Unavailable(error.to_string()))
            }
            Err(error) => Err(index_error(error)),
        }
    }
}

/// The local folder of a URI, as an absolute path, so that it does not depend on the working directory.
fn local_folder(uri: &str) -> Option<PathBuf> {
    let folder = match uri.split_once("://") {
        None => PathBuf::from(uri),
        Some(("file", _)) => url::Url::parse(uri).ok()?.to_file_path().ok()?,
        Some(_) => return None,
    };
    Some(std::path::absolute(&folder).unwrap_or(folder))
}

/// Complete generations with their versions, oldest first.
pub(crate) async fn tags(table: &Table) -> IndexResult<BTreeMap<u64, u64>> {
    let data = table.dataset();
    let mut looks = 1;
    // Lance lists the tags and then reads them one by one. A tag that is removed in between is not damage.
    let tags = loop {
        match data.tags().list().await {
            Err(error) if error.is_not_found() && looks < MAX_LOOKS => {
                looks += 1;
                tokio::time::sleep(LOOK_AGAIN_AFTER).await;
            }
            listed => break listed.map_err(index_error)?,
        }
    };
    let known =
        tags.into_iter().filter_map(|(name, tag)| Some((name.strip_prefix(TAG)?.parse::<u64>().ok()?, tag.version)));
    Ok(known.collect())
}

/// Sets a generation's tag to a version, and moves it if it exists.
pub(crate) async fn set_tag(table: &Table, generation: u64, version: u64) -> IndexResult<()> {
    let name = tag_of(generation);
    let data = table.dataset();
    let tags = data.tags();
    if tags.get_version(&name).await.is_ok() {
        tags.update(&name, version).await.map_err(index_error)
    } else {
        tags.create(&name, version).await.map_err(index_error)
    }
}

pub(crate) async fn drop_tag(table: &Table, generation: u64) -> IndexResult<()> {
    let data = table.dataset();
    let tags = data.tags();
    if tags.get_version(&tag_of(generation)).await.is_err() {
        return Ok(());
    }
    tags.delete(&tag_of(generation)).await.map_err(index_error)
}

/// The specification that a version of the chunks was built with.
pub(crate) fn spec_of(dataset: &Dataset) -> Option<IndexSpec> {
    serde_json::from_str(dataset.config().get(SPEC_KEY)?).ok()
}

/// Stores the specification of the table, which creates a new version.
pub(crate) async fn set_spec(table: &Table, spec: &IndexSpec) -> IndexResult<()> {
    let text = serde_json::to_string(spec).map_err(index_error)?;
    table.configure(SPEC_KEY, &text).await
}

/// Stores when the restored version was first completed, which creates a new version.
pub(crate) async fn set_completed(table: &Table, at: Timestamp) -> IndexResult<()> {
    let next = table.version() + 1;
    table.configure(COMPLETED_KEY, &format!("{next}:{}", at.as_millisecond())).await
}

/// When a version of the chunks was completed. A restored version is older than its table version says.
pub(crate) fn completed_at(chunks: &Dataset) -> Timestamp {
    let version = chunks.version();
    let noted = || {
        let (of, millis) = chunks.config().get(COMPLETED_KEY)?.split_once(':')?;
        (of.parse() == Ok(version.version)).then(|| millis.parse::<i64>().ok()).flatten()
    };
    let millis = noted().unwrap_or_else(|| version.timestamp.timestamp_millis());
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Information about a complete version.
pub(crate) async fn info(generation: u64, chunks: &Dataset, files: &Dataset) -> IndexResult<VersionInfo> {
    let spec = spec_of(chunks).ok_or_else(|| IndexError::Corrupted("it does not say how it was made".to_owned()))?;
    Ok(VersionInfo {
        generation,
        version: chunks.version_id().to_string(),
        spec,
        chunks: chunks.count_rows(None).await.map_err(index_error)? as u64,
        files: files.count_rows(None).await.map_err(index_error)? as u64,
        completed_at: completed_at(chunks),
    })
}
