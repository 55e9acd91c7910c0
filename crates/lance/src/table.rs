//! [`Table`]: a LanceDB table at its latest written version.
//!
//! LanceDB stores a table as a Lance dataset in a folder `<name>.lance`. This type accesses that folder through Lance
//! directly. Other programs can open it with LanceDB (`make lancedb` verifies that).

use crate::errors::index_error;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::ArrowError;
use chrono::TimeDelta;
use lance::{
    Dataset,
    dataset::{
        InsertBuilder, WriteDestination, WriteMode, WriteParams,
        optimize::{CompactionOptions, compact_files},
    },
    index::DatasetIndexExt,
};
use lance_index::{IndexParams, IndexType, optimize::OptimizeOptions};
use std::sync::{Arc, PoisonError, RwLock};
use toolyard_noteindex::{IndexError, IndexResult};

/// A table at the version at which it was opened or last written. Clones share that version.
#[derive(Clone)]
pub(crate) struct Table(Arc<RwLock<Arc<Dataset>>>);

impl Table {
    pub(crate) fn new(data: Dataset) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(data))))
    }

    /// The dataset at the current version.
    pub(crate) fn dataset(&self) -> Arc<Dataset> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A copy of the dataset for a write. There is one writer at a time (`WriteLock`), so storing the result with
    /// `stands_at` loses no other write.
    fn to_write(&self) -> Dataset {
        self.dataset().as_ref().clone()
    }

    fn stands_at(&self, data: Dataset) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(data);
    }

    pub(crate) fn version(&self) -> u64 {
        self.dataset().version_id()
    }

    pub(crate) async fn count_rows(&self) -> IndexResult<usize> {
        self.dataset().count_rows(None).await.map_err(index_error)
    }

    pub(crate) async fn append(&self, batch: RecordBatch) -> IndexResult<()> {
        self.write(batch, WriteMode::Append).await
    }

    /// Replaces the content of the table in a new version.
    pub(crate) async fn overwrite(&self, batch: RecordBatch) -> IndexResult<()> {
        self.write(batch, WriteMode::Overwrite).await
    }

    async fn write(&self, batch: RecordBatch, mode: WriteMode) -> IndexResult<()> {
        let written = InsertBuilder::new(WriteDestination::Dataset(self.dataset()))
            .with_params(&WriteParams { mode, ..WriteParams::default() })
            .execute_stream(batches(batch))
            .await
            .map_err(index_error)?;
        self.stands_at(written);
        Ok(())
    }

    pub(crate) async fn delete(&self, predicate: &str) -> IndexResult<()> {
        let mut data = self.to_write();
        data.delete(predicate).await.map_err(index_error)?;
        self.stands_at(data);
        Ok(())
    }

    /// Sets a configuration value of the table, which creates a new version.
    pub(crate) async fn configure(&self, key: &str, value: &str) -> IndexResult<()> {
        let mut data = self.to_write();
        data.update_config([(key, value)]).await.map_err(index_error)?;
        self.stands_at(data);
        Ok(())
    }

    /// Makes an old version the newest one.
    pub(crate) async fn restore(&self, version: u64) -> IndexResult<()> {
        let mut data = self.dataset().checkout_version(version).await.map_err(index_error)?;
        data.restore().await.map_err(index_error)?;
        self.stands_at(data);
        Ok(())
    }

    pub(crate) async fn index(&self, column: &str, kind: IndexType, params: &dyn IndexParams) -> IndexResult<()> {
        let mut data = self.to_write();
        data.create_index(&[column], kind, None, params, true).await.map_err(index_error)?;
        self.stands_at(data);
        Ok(())
    }

    /// Whether a column has an index. This does not open the index.
    pub(crate) async fn is_indexed(&self, column: &str) -> IndexResult<bool> {
        Ok(index_name(&self.dataset(), column).await?.is_some())
    }

    /// Removes the index of a column, if there is one.
    pub(crate) async fn drop_index(&self, column: &str) -> IndexResult<()> {
        let mut data = self.to_write();
        if let Some(name) = index_name(&data, column).await? {
            data.drop_index(&name).await.map_err(index_error)?;
            self.stands_at(data);
        }
        Ok(())
    }

    /// Number of rows that the index of a column does not cover; `None` when there is no index.
    pub(crate) async fn unindexed(&self, column: &str) -> IndexResult<Option<u64>> {
        let data = self.dataset();
        let Some(name) = index_name(&data, column).await? else { return Ok(None) };
        let text = data.index_statistics(&name).await.map_err(index_error)?;
        let stats: serde_json::Value = serde_json::from_str(&text).map_err(index_error)?;
        match stats["num_unindexed_rows"].as_u64() {
            Some(rows) => Ok(Some(rows)),
            None => Err(IndexError::Corrupted("an index does not say what it covers".to_owned())),
        }
    }

    /// Adds uncovered rows to the indexes.
    pub(crate) async fn index_the_rest(&self) -> IndexResult<()> {
        let mut data = self.to_write();
        data.optimize_indices(&OptimizeOptions::merge(1)).await.map_err(index_error)?;
        self.stands_at(data);
        Ok(())
    }

    /// Compacts small files into fragments of up to this many rows.
    pub(crate) async fn compact(&self, rows: usize) -> IndexResult<()> {
        let mut data = self.to_write();
        let options = CompactionOptions { target_rows_per_fragment: rows, ..CompactionOptions::default() };
        compact_files(&mut data, options, None).await.map_err(index_error)?;
        self.stands_at(data);
        Ok(())
    }

    /// Removes untagged versions that are older than this, and files that no version refers to. The caller holds the
    /// write lock, so such files belong to writers that died.
    pub(crate) async fn prune(&self, minutes: i64) -> IndexResult<()> {
        let older = TimeDelta::minutes(minutes);
        self.dataset().cleanup_old_versions(older, Some(true), Some(false)).await.map_err(index_error)?;
        Ok(())
    }
}

/// The name of a column's index.
async fn index_name(data: &Dataset, column: &str) -> IndexResult<Option<String>> {
    let Some(field) = data.schema().field(column) else { return Ok(None) };
    let indexes = data.load_indices().await.map_err(index_error)?;
    Ok(indexes.iter().find(|index| index.fields == [field.id]).map(|index| index.name.clone()))
}

/// One batch in the form that writes need.
pub(crate) fn batches(batch: RecordBatch) -> RecordBatchIterator<std::iter::Once<Result<RecordBatch, ArrowError>>> {
    let schema = batch.schema();
    RecordBatchIterator::new(std::iter::once(Ok(batch)), schema)
}
