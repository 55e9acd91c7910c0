//! Run rows and times as columns.

use jiff::Timestamp;
use tokio_postgres::Row;
use toolyard_engine::store::{RunKind, RunRow, StoreError};
use toolyard_protocol::{RunId, RunStatus};
use uuid::Uuid;

/// The columns that [`read_run`] reads, from the first one on.
pub(crate) const RUN_COLUMNS: &str = "run, kind, status, title, session, started_at, ended_at";

pub(crate) fn kind_code(kind: RunKind) -> i16 {
    match kind {
        RunKind::Plan => 0,
        RunKind::Call => 1,
    }
}

pub(crate) fn status_code(status: RunStatus) -> i16 {
    match status {
        RunStatus::Pending => 0,
        RunStatus::Running => 1,
        RunStatus::Paused => 2,
        RunStatus::Finished => 3,
        RunStatus::Failed => 4,
        RunStatus::Cancelled => 5,
    }
}

fn kind_of(code: i16) -> Result<RunKind, StoreError> {
    match code {
        0 => Ok(RunKind::Plan),
        1 => Ok(RunKind::Call),
        other => Err(StoreError::failed(format!("the store holds a run of unknown kind {other}"))),
    }
}

fn status_of(code: i16) -> Result<RunStatus, StoreError> {
    Ok(match code {
        0 => RunStatus::Pending,
        1 => RunStatus::Running,
        2 => RunStatus::Paused,
        3 => RunStatus::Finished,
        4 => RunStatus::Failed,
        5 => RunStatus::Cancelled,
        other => return Err(StoreError::failed(format!("the store holds a run of unknown status {other}"))),
    })
}

/// Nanoseconds since 1970. Times beyond the years 1677 to 2262 become the nearest one that fits.
pub(crate) fn nanos(at: Timestamp) -> i64 {
    let nanos = at.as_nanosecond();
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

fn time_of(nanos: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_nanosecond(i128::from(nanos))
        .map_err(|e| StoreError::failed(format!("the store holds an invalid time: {e}")))
}

pub(crate) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

pub(crate) fn text_of(bytes: Vec<u8>) -> Result<String, StoreError> {
    String::from_utf8(bytes).map_err(|_| StoreError::failed("the store holds text that is not UTF-8"))
}

pub(crate) fn chain_of(bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    bytes.try_into().map_err(|_| StoreError::failed("the store holds a chain value that has not 32 bytes"))
}

/// Reads [`RUN_COLUMNS`].
pub(crate) fn read_run(row: &Row) -> Result<RunRow, StoreError> {
    Ok(RunRow {
        run_id: RunId::from_uuid(column::<Uuid>(row, 0)?),
        kind: kind_of(column(row, 1)?)?,
        status: status_of(column(row, 2)?)?,
        title: text_of(column(row, 3)?)?,
        session: column::<Option<Vec<u8>>>(row, 4)?.map(text_of).transpose()?,
        started_at: time_of(column(row, 5)?)?,
        ended_at: column::<Option<i64>>(row, 6)?.map(time_of).transpose()?,
    })
}

/// A column, or that the store holds something else.
pub(crate) fn column<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, StoreError> {
    row.try_get(at).map_err(|e| StoreError::failed(format!("the store holds damaged data: {e}")))
}
