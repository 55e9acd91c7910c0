//! Recorded behaviour of the original server and plugin, written by `scripts/recordings/make.py`: the requests, and for
//! each response the codes, the keys and the texts that clients match on.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Number of recorded exchanges and calls.
const EXCHANGES: usize = 67;
const CALLS: usize = 68;

/// An HTTP exchange with the server.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Exchange {
    pub(crate) name: String,
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) body: Value,
    pub(crate) status: u16,
    /// Keys of the response.
    pub(crate) envelope: Vec<String>,
    /// Keys of the result, or of its first item.
    pub(crate) result: Vec<String>,
    /// The result is an empty list, so the keys of its items are unknown.
    #[serde(default)]
    pub(crate) empty_list: bool,
    /// The error code.
    #[serde(default)]
    pub(crate) code: Value,
    /// The whole error, where clients match on its text.
    #[serde(default)]
    pub(crate) error: Option<Value>,
    /// JSON pointers to values that the server generated, and the names under which later requests use them.
    #[serde(default)]
    pub(crate) learn: BTreeMap<String, String>,
}

impl Exchange {
    pub(crate) fn all() -> Vec<Self> {
        #[derive(Deserialize)]
        struct File {
            exchanges: Vec<Exchange>,
        }
        let text = include_str!("../../../../tests/recordings/openviking-http.json");
        let file: File = serde_json::from_str(text).unwrap();
        assert_eq!(file.exchanges.len(), EXCHANGES, "a number that shrinks is a fixture that was lost");
        file.exchanges
    }

    /// The body as sent; empty if there is none.
    pub(crate) fn body_text(&self) -> String {
        if self.body.is_null() { String::new() } else { self.body.to_string() }
    }
}

/// A call of one of the plugin's tools or commands.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Call {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) command: Option<String>,
    #[serde(default)]
    pub(crate) tool: Option<String>,
    /// The session, if it differs from that of all other calls.
    #[serde(default)]
    pub(crate) session: Option<CallSession>,
    #[serde(default)]
    pub(crate) args: Value,
    /// The message of the thrown error.
    #[serde(default)]
    pub(crate) thrown: Option<String>,
    /// The first line of the text, with each run of digits replaced by `#`.
    pub(crate) first_line: String,
    /// Keys of the details.
    pub(crate) details: Vec<String>,
    /// The error code in the details.
    #[serde(default)]
    pub(crate) error: Option<String>,
    /// Keys of the items of the lists in the details.
    #[serde(default)]
    pub(crate) lists: BTreeMap<String, Vec<String>>,
    /// The fixed lines of a table of search results.
    #[serde(default)]
    pub(crate) table: Option<Table>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CallSession {
    #[serde(default)]
    pub(crate) session_key: Option<String>,
    #[serde(default)]
    pub(crate) session_id: Option<String>,
    #[serde(default)]
    pub(crate) agent_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    pub(crate) tip: String,
    pub(crate) gap: String,
    pub(crate) columns: Vec<String>,
    pub(crate) note: String,
}

impl Call {
    pub(crate) fn all() -> Vec<Self> {
        #[derive(Deserialize)]
        struct File {
            calls: Vec<Call>,
        }
        let text = include_str!("../../../../tests/recordings/openviking-tools.json");
        let file: File = serde_json::from_str(text).unwrap();
        assert_eq!(file.calls.len(), CALLS, "a number that shrinks is a fixture that was lost");
        file.calls
    }
}
