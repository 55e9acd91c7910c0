//! What a client is shown in addition to tools: [`ResourceSource`] and [`PromptSource`] provide it, and the binary
//! chooses the implementations. A `toolyard_engine::ModelView` chooses the tools.

use crate::{
    RpcError,
    wire::{
        Arguments, Item,
        answers::{Completion, Prompt, PromptResult, Resource, ResourceContents, Template},
        requests::Complete,
        upstream::{ForwardedPrompt, ForwardedResource, ForwardedTemplate, ToolDetails},
    },
};
use serde_json::Value;
use std::sync::Arc;
use toolyard_engine::{BoxFuture, CallRequest, Caller, Engine};
use toolyard_protocol::{Failure, RunId, ToolResult};

/// Additional information about tools that the catalog does not contain, such as an upstream server's own.
pub trait ToolExtras: Send + Sync + 'static {
    /// The members to add to the tool with this id in lists.
    fn extras(&self, id: &str) -> Option<Arc<ToolDetails>>;
}

/// Who asks for a resource or prompt, and how to answer with the help of tools.
#[derive(Clone)]
pub struct Requester {
    /// The engine.
    pub engine: Engine,
    /// The caller.
    pub caller: Arc<Caller>,
    /// The run by which questions reach the client.
    pub run_id: Option<RunId>,
}

impl Requester {
    /// Calls a tool on the caller's behalf, through the same pipeline as any call.
    pub async fn call(&self, tool: &str, args: Arguments) -> Result<ToolResult, Failure> {
        let request = CallRequest { tool: tool.to_owned(), args, run_id: self.run_id, ..CallRequest::default() };
        let result = self.engine.call(self.caller.clone(), request).await.result;
        match &result.error {
            Some(failure) => Err(failure.clone()),
            None => Ok(result),
        }
    }
}

/// A URI template on a list.
pub type ListedTemplate = Item<Template, ForwardedTemplate>;
/// A prompt on a list.
pub type ListedPrompt = Item<Prompt, ForwardedPrompt>;
/// Contents of a resource.
pub type ReadContents = Item<ResourceContents>;
/// Suggestions for an argument.
pub type CompletionFuture = Item<Completion, Value>;

/// One page of a list.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The entries of the page.
    pub items: Vec<Item<Resource, ForwardedResource>>,
    /// Where the next begins.
    pub next: Option<String>,
}

/// A source of resources.
pub trait ResourceSource: Send + Sync + 'static {
    /// A short name, unique among sources; part of cursors.
    fn name(&self) -> &str;
    /// Whether the URI belongs to this source.
    fn owns(&self, uri: &str) -> bool;
    /// A page of resources.
    fn list<'a>(&'a self, requester: &'a Requester, cursor: Option<&'a str>) -> BoxFuture<'a, Result<Page, RpcError>>;
    /// The URI templates.
    fn templates<'a>(&'a self, _: &'a Requester) -> BoxFuture<'a, Result<Vec<ListedTemplate>, RpcError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    /// The contents of one; `None` when there is no such resource.
    fn read<'a>(
        &'a self,
        requester: &'a Requester,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<ReadContents>>, RpcError>>;
    /// Suggestions for an argument of a template.
    fn complete<'a>(
        &'a self,
        _: &'a Requester,
        _: &'a Complete,
    ) -> BoxFuture<'a, Result<Option<CompletionFuture>, RpcError>> {
        Box::pin(async { Ok(None) })
    }
}

/// A source of prompts.
pub trait PromptSource: Send + Sync + 'static {
    /// A short name, unique among sources; part of cursors.
    fn name(&self) -> &str;
    /// The prompts.
    fn list<'a>(&'a self, requester: &'a Requester) -> BoxFuture<'a, Result<Vec<ListedPrompt>, RpcError>>;
    /// The result of `prompts/get`; `None` when there is no such prompt.
    fn get<'a>(
        &'a self,
        requester: &'a Requester,
        name: &'a str,
        arguments: &'a Arguments,
    ) -> BoxFuture<'a, Result<Option<Item<PromptResult>>, RpcError>>;
    /// Suggestions for an argument.
    fn complete<'a>(
        &'a self,
        _: &'a Requester,
        _: &'a Complete,
    ) -> BoxFuture<'a, Result<Option<CompletionFuture>, RpcError>> {
        Box::pin(async { Ok(None) })
    }
}
