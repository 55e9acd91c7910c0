//! Error codes. Agents branch on them. Each code has a page that is compiled into the binary for `toolyard explain
//! CODE`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A code's documentation.
#[derive(Debug, Clone, Copy)]
pub struct ErrorPage {
    /// The error code.
    pub code: ErrorCode,
    /// The Markdown page from `docs/reference/errors/`.
    pub markdown: &'static str,
}

macro_rules! error_codes {
    ($( $(#[$doc:meta])* $variant:ident = $code:literal, $suggestion:literal; )*) => {
        /// Every way a call, a run or a command can fail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum ErrorCode {
            $( $(#[$doc])* #[serde(rename = $code)] $variant, )*
        }

        impl ErrorCode {
            /// All codes, in the order of the documentation.
            pub const ALL: &'static [ErrorCode] = &[ $( ErrorCode::$variant, )* ];

            /// The code in its wire format.
            pub fn as_str(self) -> &'static str {
                match self { $( ErrorCode::$variant => $code, )* }
            }

            /// A suggestion to use when nothing more specific is known.
            pub fn suggestion(self) -> &'static str {
                match self { $( ErrorCode::$variant => $suggestion, )* }
            }

            /// The code's page.
            pub fn page(self) -> ErrorPage {
                let markdown = match self {
                    $( ErrorCode::$variant => include_str!(concat!("../../../docs/reference/errors/", $code, ".md")), )*
                };
                ErrorPage { code: self, markdown }
            }

            /// Reads a code in any letter case, with `-` or `_`.
            pub fn parse(text: &str) -> Option<Self> {
                let wanted = text.trim().replace('-', "_").to_ascii_uppercase();
                Self::ALL.iter().copied().find(|code| code.as_str() == wanted)
            }
        }
    };
}

error_codes! {
    /// The arguments, the plan or a reference do not fit their schema.
    ValidationError = "VALIDATION_ERROR", "Correct the input at the path named in details.errors and call again.";
    /// Policy does not allow this tool, path or amount.
    PolicyDenied = "POLICY_DENIED", "Ask the operator to allow it in the policy, or use another tool.";
    /// The tool, file, run or key does not exist.
    NotFound = "NOT_FOUND", "Check the name or path; list what exists first.";
    /// The target was changed by somebody else, or already exists.
    Conflict = "CONFLICT", "Read the current state, then decide again with its etag.";
    /// Something that must be there first is missing.
    PreconditionFailed = "PRECONDITION_FAILED", "Provide what is missing, then call again.";
    /// It did not finish in time.
    Timeout = "TIMEOUT", "Try again with a larger timeoutMs, or with less work in one call.";
    /// It was stopped.
    Cancelled = "CANCELLED", "Start it again if it is still wanted.";
    /// A defect in a tool or in Toolyard.
    InternalError = "INTERNAL_ERROR", "Try once more; if it happens again, look at the run's record with `toolyard runs show`.";
    /// A person must approve first.
    ConfirmationRequired = "CONFIRMATION_REQUIRED", "Show the plan to a person and run it with their approval (`--yes` on the command line).";
    /// A person denied the call, or nobody answered in time.
    ApprovalDenied = "APPROVAL_DENIED", "Do not try again unchanged; ask the person what they want instead.";
    /// A limit of the policy or of the server was reached.
    LimitExceeded = "LIMIT_EXCEEDED", "Do less in one call or run, or ask the operator to raise the limit named in details.";
    /// The tool exists, but the program that runs it is not available.
    Unavailable = "UNAVAILABLE", "Wait and try again, or ask the operator to start what the tool needs.";
    /// A run waits for a person to say whether an interrupted call happened.
    InDoubt = "IN_DOUBT", "Check whether the effect happened, then `toolyard runs resume RUN --assume-done | --rerun | --abort`.";
    /// A record was edited, removed or reordered, or its files are damaged.
    RecordCorrupted = "RECORD_CORRUPTED", "Keep the files as they are and compare with a backup; see `toolyard runs verify`.";
    /// A replay resolved other arguments than the record holds.
    ReplayMismatch = "REPLAY_MISMATCH", "The plan or the executor changed since; compare the two argument hashes in details.";
    /// The store cannot be read or written.
    StoreUnavailable = "STORE_UNAVAILABLE", "Check the disk and the permissions of the state folder with `toolyard doctor`.";
    /// The configuration cannot be used.
    ConfigInvalid = "CONFIG_INVALID", "Correct the file at the place named, then `toolyard config check`.";
    /// The command line cannot be understood.
    UsageError = "USAGE_ERROR", "See `toolyard help`.";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[toolyard_shows::shows("000-4-04")]
    #[test]
    fn every_code_has_a_page_that_begins_with_its_name() {
        for code in ErrorCode::ALL {
            let page = code.page().markdown;
            assert!(page.starts_with(&format!("# {code}\n")), "{code}");
            assert!(page.contains("## What to do"), "{code} says what to do");
            assert!(page.len() > 200, "{code} says something");
        }
    }

    #[test]
    fn codes_are_read_as_people_type_them() {
        assert_eq!(ErrorCode::parse("policy-denied"), Some(ErrorCode::PolicyDenied));
        assert_eq!(ErrorCode::parse(" NOT_FOUND "), Some(ErrorCode::NotFound));
        assert_eq!(ErrorCode::parse("nope"), None);
    }
}
