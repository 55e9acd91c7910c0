//! The additional data of events and notes, one struct for each. They become JSON in one place, because the payload of
//! an event is open: tools report progress in their own format.

use crate::{chain::UnsignedRecords, plan::Deviation, record::Settlement};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use toolyard_protocol::{
    CallId, ConfirmationDecision, ConfirmationId, Effects, Failure, ResultStatus, RunId, RunStatus,
};

/// The facts as a payload. Unknown values are left out instead of null.
pub(crate) fn payload(facts: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(facts) {
        Ok(Value::Object(map)) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => {
            tracing::error!(?other, "the facts of an event cannot be written; the event goes without them");
            Map::new()
        }
    }
}

/// Converts one of our values to JSON, for fields that hold any JSON: a failure's details, a step's output.
pub(crate) fn written<T: Serialize + ?Sized>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| {
        tracing::error!(%error, "a value cannot be written as JSON; null is written instead");
        Value::Null
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunFacts<'a> {
    pub(crate) plan_hash: Option<&'a str>,
    pub(crate) policy_hash: &'a str,
    pub(crate) parent_run_id: Option<RunId>,
    pub(crate) steps: Option<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfirmedFacts<'a> {
    pub(crate) confirmation_id: &'a ConfirmationId,
    pub(crate) decision: &'a ConfirmationDecision,
    pub(crate) plan_hash: &'a str,
    pub(crate) policy_hash: &'a str,
    pub(crate) preview_hash: Option<&'a str>,
    pub(crate) approval_id: Option<&'a str>,
    pub(crate) shown: Option<&'a str>,
    pub(crate) door: Option<&'a str>,
    pub(crate) grant_id: Option<&'a str>,
}

/// A person is asked.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskedFacts<'a> {
    pub(crate) approval_id: &'a str,
    pub(crate) shown: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallFacts {
    pub(crate) attempt: u32,
    pub(crate) iteration: Option<u64>,
    pub(crate) args_hash: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutcomeFacts<'a> {
    pub(crate) attempt: u32,
    pub(crate) iteration: Option<u64>,
    pub(crate) status: ResultStatus,
    pub(crate) error: Option<&'a Failure>,
    pub(crate) effects: Option<&'a Effects>,
    pub(crate) duration_ms: u64,
}

#[derive(Serialize)]
pub(crate) struct RetryFacts {
    pub(crate) retry: Retry,
    pub(crate) iteration: Option<u64>,
}

#[derive(Serialize)]
pub(crate) struct Retry {
    pub(crate) attempt: u32,
    pub(crate) at: Timestamp,
}

#[derive(Serialize)]
pub(crate) struct CancelFacts<'a> {
    pub(crate) by: &'a str,
    pub(crate) reason: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PausedFacts<'a> {
    pub(crate) paused: bool,
    pub(crate) in_doubt: &'a [CallId],
}

#[derive(Serialize)]
pub(crate) struct SettledFacts<'a> {
    pub(crate) settled: Settlement,
    pub(crate) by: &'a str,
}

#[derive(Serialize)]
pub(crate) struct FinishedFacts<'a> {
    pub(crate) status: RunStatus,
    pub(crate) error: Option<&'a Failure>,
}

/// An answer that arrived after its call was abandoned.
#[derive(Serialize)]
pub(crate) struct LateFacts {
    pub(crate) late: bool,
    pub(crate) ok: bool,
    pub(crate) effects: Effects,
}

/// A call that a process left without a result.
#[derive(Serialize)]
pub(crate) struct RecoveredFacts {
    pub(crate) recovered: bool,
}

/// A run that did something else than its preview said.
#[derive(Serialize)]
pub(crate) struct DeviationFacts<'a> {
    pub(crate) deviation: &'a Deviation,
}

/// Records that a process found and did not write. [`chain`](crate::chain) reads this back.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UnsignedFacts {
    pub(crate) unsigned_records: UnsignedRecords,
}

/// Where the whole output of a call is kept, in place of the output.
#[derive(Serialize)]
pub(crate) struct Externalized {
    pub(crate) externalized: bool,
    #[serde(rename = "ref")]
    pub(crate) reference: String,
    pub(crate) bytes: usize,
}
