//! The prompts and resources of upstream servers, with names that contain the server's name.

use super::{Upstreams, upstream::Upstream};
use crate::{
    RpcError,
    jsonrpc::INTERNAL_ERROR,
    server::{
        CompletionFuture, ListedPrompt, ListedTemplate, Page, PromptSource, ReadContents, Requester, ResourceSource,
    },
    wire::{
        Arguments, Item,
        answers::{Completion, PromptResult},
        requests::{Complete, Reference},
        upstream::{Completed, ForwardedPrompt, ForwardedResource, ForwardedTemplate, Question, ResourceRead},
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolyard_engine::BoxFuture;

/// Resources of several servers are combined on one page up to this number.
const PAGE: usize = 1000;

/// The prefix of a server's own URIs: `mcp-<server>+`, a separate scheme for each server. Empty if the configured
/// prefix is empty.
fn scheme(upstream: &Upstream) -> String {
    if let Some(terms) = &upstream.terms {
        // Nothing that a client sees distinguishes several processes of one plugin.
        return format!("mcp-plugin-{}+", terms.plugin.replace(['_', '/', '@'], "."));
    }
    if upstream.config.prefix.as_deref() == Some("") {
        return String::new();
    }
    // A URI scheme cannot contain an underscore, and a server's name cannot contain a point.
    format!("mcp-{}+", upstream.name.replace('_', "."))
}

/// A server's URI as clients know it.
pub(crate) fn outer_uri(upstream: &Upstream, uri: &str) -> String {
    format!("{}{uri}", scheme(upstream))
}

/// Resources inside a result (embedded or linked) get the URI by which they can be read here.
pub(crate) fn rename_inside(upstream: &Upstream, content: &mut Value) {
    let scheme = scheme(upstream);
    if scheme.is_empty() {
        return;
    }
    let Some(parts) = content.as_array_mut() else { return };
    for part in parts {
        let place = match part.get("type").and_then(Value::as_str) {
            Some("resource") => part.get_mut("resource").and_then(|r| r.get_mut("uri")),
            Some("resource_link") => part.get_mut("uri"),
            _ => None,
        };
        if let Some(Value::String(uri)) = place {
            *uri = format!("{scheme}{uri}");
        }
    }
}

impl ResourceSource for Upstreams {
    fn name(&self) -> &str {
        "mcp"
    }

    fn owns(&self, uri: &str) -> bool {
        self.all().iter().any(|upstream| uri.starts_with(&scheme(upstream)))
    }

    fn list<'a>(&'a self, _: &'a Requester, cursor: Option<&'a str>) -> BoxFuture<'a, Result<Page, RpcError>> {
        Box::pin(async move {
            // One server per page, so that a long list of one server does not make the first page long.
            let all = self.all();
            let mut next = match cursor {
                None | Some("") => 0,
                Some(text) => text.parse::<usize>().map_err(|_| RpcError::params("the cursor is not one of ours"))?,
            };
            let mut items = Vec::new();
            while let Some(upstream) = all.get(next) {
                let (resources, _) = upstream.resources();
                items.extend(resources.iter().map(|item| {
                    let ForwardedResource { uri, rest } = item.clone();
                    Item::Forwarded(ForwardedResource { uri: outer_uri(upstream, &uri), rest })
                }));
                next += 1;
                if items.len() >= PAGE {
                    break;
                }
            }
            Ok(Page { items, next: (next < all.len()).then(|| next.to_string()) })
        })
    }

    fn templates<'a>(&'a self, _: &'a Requester) -> BoxFuture<'a, Result<Vec<ListedTemplate>, RpcError>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for upstream in self.all() {
                let (_, templates) = upstream.resources();
                all.extend(templates.iter().map(|item| {
                    let ForwardedTemplate { uri_template, rest } = item.clone();
                    Item::Forwarded(ForwardedTemplate { uri_template: outer_uri(&upstream, &uri_template), rest })
                }));
            }
            Ok(all)
        })
    }

    fn read<'a>(
        &'a self,
        requester: &'a Requester,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<ReadContents>>, RpcError>> {
        Box::pin(async move {
            // The longest prefix is tried first: an empty prefix would match everything.
            let mut fitting: Vec<Arc<Upstream>> =
                self.all().into_iter().filter(|upstream| uri.starts_with(&scheme(upstream))).collect();
            fitting.sort_by_key(|upstream| std::cmp::Reverse(scheme(upstream).len()));
            for upstream in fitting {
                let scheme = scheme(&upstream);
                let inner = uri.strip_prefix(&scheme).unwrap_or(uri);
                match self.ask(&upstream, requester, &Question::Resource { uri: inner }).await {
                    Ok(result) => {
                        let ResourceRead { contents } = parse_answer(&upstream, result)?;
                        let renamed = contents.into_iter().map(|mut item| {
                            if let Some(Value::String(uri)) = item.get_mut("uri") {
                                *uri = outer_uri(&upstream, uri);
                            }
                            Item::Forwarded(item)
                        });
                        return Ok(Some(renamed.collect()));
                    }
                    Err(error) if is_missing(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(None)
        })
    }

    fn complete<'a>(
        &'a self,
        requester: &'a Requester,
        wanted: &'a Complete,
    ) -> BoxFuture<'a, Result<Option<CompletionFuture>, RpcError>> {
        Box::pin(async move {
            let Reference::Resource { uri, rest } = &wanted.reference else { return Ok(None) };
            for upstream in self.all() {
                let Some(inner) = uri.strip_prefix(&scheme(&upstream)) else { continue };
                let (_, templates) = upstream.resources();
                if templates.iter().any(|template| template.uri_template == inner) {
                    let reference = Reference::Resource { uri: inner.to_owned(), rest: rest.clone() };
                    return Ok(Some(
                        self.completion(&upstream, requester, Complete { reference, ..wanted.clone() }).await,
                    ));
                }
            }
            Ok(None)
        })
    }
}

impl PromptSource for Upstreams {
    fn name(&self) -> &str {
        "mcp"
    }

    fn list<'a>(&'a self, _: &'a Requester) -> BoxFuture<'a, Result<Vec<ListedPrompt>, RpcError>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for upstream in self.all() {
                let prefix = upstream.prefix();
                all.extend(upstream.prompts().iter().map(|prompt| {
                    let ForwardedPrompt { name, rest } = prompt.clone();
                    Item::Forwarded(ForwardedPrompt { name: format!("{prefix}{name}"), rest })
                }));
            }
            Ok(all)
        })
    }

    fn get<'a>(
        &'a self,
        requester: &'a Requester,
        name: &'a str,
        arguments: &'a Arguments,
    ) -> BoxFuture<'a, Result<Option<Item<PromptResult>>, RpcError>> {
        Box::pin(async move {
            let Some((upstream, inner)) = self.prompt(name) else { return Ok(None) };
            let answer = self.ask(&upstream, requester, &Question::Prompt { name: &inner, arguments }).await?;
            let Value::Object(mut result) = answer else { return Ok(None) };
            result.remove("resultType");
            for message in result.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(content) = message.get_mut("content") {
                    let mut one = Value::Array(vec![content.take()]);
                    rename_inside(&upstream, &mut one);
                    *content = one.as_array_mut().and_then(Vec::pop).unwrap_or_default();
                }
            }
            Ok(Some(Item::Forwarded(result)))
        })
    }

    fn complete<'a>(
        &'a self,
        requester: &'a Requester,
        wanted: &'a Complete,
    ) -> BoxFuture<'a, Result<Option<CompletionFuture>, RpcError>> {
        Box::pin(async move {
            let Reference::Prompt { name, rest } = &wanted.reference else { return Ok(None) };
            let Some((upstream, name)) = self.prompt(name) else { return Ok(None) };
            let reference = Reference::Prompt { name, rest: rest.clone() };
            Ok(Some(self.completion(&upstream, requester, Complete { reference, ..wanted.clone() }).await))
        })
    }
}

impl Upstreams {
    fn prompt(&self, name: &str) -> Option<(Arc<Upstream>, String)> {
        self.all().into_iter().find_map(|upstream| {
            let prefix = upstream.prefix();
            let inner = name.strip_prefix(&prefix)?;
            let prompts = upstream.prompts();
            let known = prompts.iter().any(|prompt| prompt.name == inner);
            known.then(|| (upstream.clone(), inner.to_owned()))
        })
    }

    /// A server's completions; none if it does not support them.
    async fn completion(&self, upstream: &Arc<Upstream>, requester: &Requester, wanted: Complete) -> CompletionFuture {
        let answer = self.ask(upstream, requester, &Question::Completion(&wanted)).await;
        match answer.and_then(|answer| parse_answer::<Completed>(upstream, answer)) {
            Ok(Completed { completion }) => Item::Forwarded(completion),
            Err(error) => {
                tracing::info!(server = upstream.name, error = error.message, "a server completed nothing");
                Item::Own(Completion::default())
            }
        }
    }

    async fn ask(
        &self,
        upstream: &Arc<Upstream>,
        requester: &Requester,
        question: &Question<'_>,
    ) -> Result<Value, RpcError> {
        let live = upstream.live().await.map_err(RpcError::from)?;
        let under = upstream.begin(requester.run_id, None).await.map_err(|failed| RpcError::from(failed.failure))?;
        let patience = std::time::Duration::from_millis(upstream.config.timeout_ms);
        let cancel = CancellationToken::new();
        let _stop = cancel.clone().drop_guard();
        let client = super::live::CallRoute { asks: &self.shared.asks, run_id: requester.run_id, cancel: &cancel };
        let asked = live.converse(question, None, &[], client);
        let answer = tokio::time::timeout(patience, asked).await;
        drop(under);
        match answer {
            Ok(answer) => answer.map_err(RpcError::from),
            Err(_) => Err(RpcError::new(INTERNAL_ERROR, format!("{} took too long", upstream.name))),
        }
    }
}

/// Reads an answer of a server.
fn parse_answer<T: DeserializeOwned>(upstream: &Upstream, answer: Value) -> Result<T, RpcError> {
    let broken = |error| format!("the answer of {} cannot be read: {error}", upstream.name);
    serde_json::from_value(answer).map_err(|error| RpcError::new(INTERNAL_ERROR, broken(error)))
}

fn is_missing(error: &RpcError) -> bool {
    error.code == crate::jsonrpc::RESOURCE_NOT_FOUND
        || (error.code == crate::jsonrpc::INVALID_PARAMS && error.message.to_lowercase().contains("not found"))
}
