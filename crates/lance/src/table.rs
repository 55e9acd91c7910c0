//! [`Table`]: one of LanceDB's tables, as the writer leaves it.
//!
//! LanceDB keeps a table as a Lance dataset in a folder `<name>.lance`; this is that folder, worked with by Lance itself.
//! Other programs open it with LanceDB (`make lancedb` shows that they can).

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

/// A table at the version it was opened at or last written to. Copies share that version.
#[derive(Clone)]
pub(crate) struct Table(Arc<RwLock<Arc<Dataset>>>);

impl Table {
    pub(crate) fn new(data: Dataset) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(data))))
    }

    /// What the table holds.
    pub(crate) fn dataset(&self) -> Arc<Dataset> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The table as a write begins. One writes at a time (`Turn`), so what comes back by `stands_at` lost nothing.
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

    /// What was there is not in the next version.
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

    /// Notes something about the table; a version of its own.
    pub(crate) async fn configure(&self, key: &str, value: &str) -> IndexResult<()> {
        let mut data = self.to_write();
        data.update_config([(key, value)]).await.map_err(index_error)?;
        self.stands_at(data);
        Ok(())
    }

    /// Makes an old version the newest.
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

    /// Whether a column has an index. Opens none.
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

    /// Rows that the index of a column does not cover; `None` when there is no index.
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

    /// Adds rows that no index covers to the indexes.
    pub(crate) async fn index_the_rest(&self) -> IndexResult<()> {
        let mut data = self.to_write();
        data.optimize_indices(&OptimizeOptions::merge(1)).await.map_err(index_error)?;
        self.stands_at(data);
        Ok(())
    }

    /// Puts small files together, up to this many rows.
    pub(crate) async fn compact(&self, rows: usize) -> IndexResult<()> {
        let mut data = self.to_write();
        let options = CompactionOptions { target_rows_per_fragment: rows, ..CompactionOptions::default() };
        compact_files(&mut data, options, None).await.map_err(index_error)?;
        self.stands_at(data);
        Ok(())
    }

    /// Removes versions that are older and have no tag, and files that no version names: whoever writes has the lock, so
    /// they belong to writers that died.
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

/// One batch, as writes take it.
pub(crate) fn batches(batch: RecordBatch) -> RecordBatchIterator<std::iter::Once<Result<RecordBatch, ArrowError>>> {
    let schema = batch.schema();
    RecordBatchIterator::new(std::iter::once(Ok(batch)), schema)
}
