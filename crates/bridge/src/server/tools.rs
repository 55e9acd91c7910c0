//! The tools that a bridge session is shown, and the form of its results. The code that runs the tools provides both;
//! the bridge itself validates, allows and renders nothing.

use serde_json::Value;
use std::{future::Future, pin::Pin};

/// A future in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The tools that Claude is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// MCP Tool objects.
    pub tools: Vec<Value>,
    /// Further text for the model: a directory of tools that are not listed.
    pub instructions: Option<String>,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFailure {
    /// The outcome as text, for plugins that read nothing else.
    pub text: String,
    /// The outcome as CallToolResult, if there is one.
    pub result: Option<Value>,
}

impl<T: Into<String>> From<T> for CallFailure {
    fn from(text: T) -> Self {
        Self { text: text.into(), result: None }
    }
}
