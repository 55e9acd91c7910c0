//! Calls that coding agents make with their own tools: the classes they are sorted into, and the presets that decide
//! about each class. The policy's `deny` and `ask` rules hold for them as for every other tool.

use crate::policy::Verdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a native call can do, judged by the tool and, for a shell, by the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NativeClass {
    /// Changes nothing.
    Read,
    /// Writes files of the project with a tool whose effect is known in advance.
    Write,
    /// Runs a command that changes the project and destroys nothing.
    Shell,
    /// Destroys something, or is a command that could not be judged.
    Destroy,
    /// Reaches beyond the project: other folders, the network, other users' rights, other servers' tools.
    Leave,
}

impl NativeClass {
    /// Every class.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Shell, Self::Destroy, Self::Leave];

    /// The reason a person is given.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Read => "it reads",
            Self::Write => "it writes files of the project",
            Self::Shell => "it runs a command that changes the project",
            Self::Destroy => "it destroys something, or cannot be judged",
            Self::Leave => "it reaches beyond the project",
        }
    }
}

/// What happens to native calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NativePreset {
    /// Every call runs and is recorded.
    Observe,
    /// Calls that destroy something or reach beyond the project are asked for; all others run.
    #[default]
    Careful,
    /// Reads run, changes of the project are asked for, everything else is refused.
    Locked,
}

impl NativePreset {
    /// The decision about a class of calls.
    pub const fn verdict(self, class: NativeClass) -> Verdict {
        match (self, class) {
            (Self::Observe, _) | (_, NativeClass::Read) => Verdict::Allow,
            (Self::Careful, NativeClass::Write | NativeClass::Shell) => Verdict::Allow,
            (Self::Careful, NativeClass::Destroy | NativeClass::Leave) => Verdict::Ask,
            (Self::Locked, NativeClass::Write | NativeClass::Shell) => Verdict::Ask,
            (Self::Locked, NativeClass::Destroy | NativeClass::Leave) => Verdict::Deny,
        }
    }

    /// Whether it is the default, which a policy does not need to name.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
