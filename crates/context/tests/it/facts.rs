//! What the original server and plugin were seen to answer, as `scripts/recordings/make.py` wrote it down: requests to
//! make again, and of each answer the codes, the keys and the texts that clients match on.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// How many exchanges and calls were recorded.
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
    /// Keys of the answer,
    pub(crate) envelope: Vec<String>,
    /// and of its result, or of the first item of its result.
    pub(crate) result: Vec<String>,
    /// The result is a list without items, so that their keys are not known.
    #[serde(default)]
    pub(crate) empty_list: bool,
    /// The code of the error,
    #[serde(default)]
    pub(crate) code: Value,
    /// and all of it, where clients match on the text.
    #[serde(default)]
    pub(crate) error: Option<Value>,
    /// Pointers to what the server made up, and the names that later requests use for it.
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

    /// The body as it is sent: nothing where there is none.
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
    /// Where it is not the session of all other calls.
    #[serde(default)]
    pub(crate) session: Option<CallSession>,
    #[serde(default)]
    pub(crate) args: Value,
    /// The message of the error that it threw.
    #[serde(default)]
    pub(crate) thrown: Option<String>,
    /// The first line of the text, with `#` for each run of digits.
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
