//! Parameters are checked against the schema of their type and deserialised in this module alone.
//!
//! Problems are worded as the real gateway words them, for every door.

mod check;
mod words;

pub use check::Checker;
pub(crate) use check::schema_of;
pub use words::{Count, FlagOrAll, Patch, Text};

use crate::{Method, MethodError, RpcError, method::Call};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Reads parameters. `what` names them in the error: `invalid WHAT: PROBLEMS`.
pub fn read<T: DeserializeOwned + JsonSchema>(what: &str, checker: &Checker, value: Value) -> Result<T, RpcError> {
    let value = match value {
        Value::Null => Value::Object(Map::new()),
        value => value,
    };
    let problems = checker.problems(&value);
    if !problems.is_empty() {
        return Err(RpcError::invalid(format!("invalid {what}: {}", problems.join("; "))));
    }
    // The type's deserialisation checks what a schema cannot express, such as the format of an id.
    serde_json::from_value(value).map_err(|error| RpcError::invalid(format!("invalid {what}: {error}")))
}

/// Reads the parameters of a method's call.
pub(crate) fn of_call<M: Method>(call: &Call<'_>, checker: &Checker, value: Value) -> Result<M::Params, MethodError> {
    Ok(read(&format!("{} params", call.method), checker, value)?)
}
