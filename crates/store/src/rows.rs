//! Converts run rows, times and states to columns and back. Pure; uses no connection.

use crate::failed_read;
use jiff::Timestamp;
use rusqlite::Row;
use toolyard_engine::store::{RunKind, RunRow, StoreError};
use toolyard_protocol::{RunId, RunStatus};

/// The columns [`read_run`] expects, in order.
pub(crate) const RUN_COLUMNS: &str = "run_id, kind, status, title, session, started_at, ended_at";

pub(crate) fn kind_code(kind: RunKind) -> i64 {
    match kind {
        RunKind::Plan => 0,
        RunKind::Call => 1,
    }
}

/// Codes under 3 are the states that are not final: an index depends on it.
pub(crate) fn status_code(status: RunStatus) -> i64 {
    match status {
        RunStatus::Pending => 0,
        RunStatus::Running => 1,
        RunStatus::Paused => 2,
        RunStatus::Finished => 3,
        RunStatus::Failed => 4,
        RunStatus::Cancelled => 5,
    }
}

pub(crate) fn kind_of(code: i64) -> Result<RunKind, StoreError> {
    match code {
        0 => Ok(RunKind::Plan),
        1 => Ok(RunKind::Call),
        other => Err(StoreError::Tampered(format!("the store holds a run of unknown kind {other}"))),
    }
}

pub(crate) fn status_of(code: i64) -> Result<RunStatus, StoreError> {
    Ok(match code {
        0 => RunStatus::Pending,
        1 => RunStatus::Running,
        2 => RunStatus::Paused,
        3 => RunStatus::Finished,
        4 => RunStatus::Failed,
        5 => RunStatus::Cancelled,
        other => return Err(StoreError::Tampered(format!("the store holds a run in unknown state {other}"))),
    })
}

/// A time of a run's row: whole nanoseconds since 1970. Times outside the years 1677 to 2262 are clamped.
pub(crate) fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(if time.as_nanosecond() < 0 { i64::MIN } else { i64::MAX })
}

pub(crate) fn time_of(nanos: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_nanosecond(nanos.into())
        .map_err(|e| StoreError::Tampered(format!("the store holds a bad time {nanos}: {e}")))
}

/// A time in whole microseconds, in which expiry is compared.
pub(crate) fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// Reads one row selected with [`RUN_COLUMNS`].
pub(crate) fn read_run(row: &Row<'_>) -> Result<RunRow, StoreError> {
    let column = |e: rusqlite::Error| failed_read("cannot read a run's row", &e);
    let id: [u8; 16] = row.get(0).map_err(column)?;
    let ended: Option<i64> = row.get(6).map_err(column)?;
    Ok(RunRow {
        run_id: RunId::from_uuid(uuid::Uuid::from_bytes(id)),
        kind: kind_of(row.get(1).map_err(column)?)?,
        status: status_of(row.get(2).map_err(column)?)?,
        title: row.get(3).map_err(column)?,
        session: row.get(4).map_err(column)?,
        started_at: time_of(row.get(5).map_err(column)?)?,
        ended_at: ended.map(time_of).transpose()?,
    })
}

/// A run's id as the database keeps it.
pub(crate) fn run_bytes(run_id: RunId) -> [u8; 16] {
    *run_id.as_uuid().as_bytes()
}
