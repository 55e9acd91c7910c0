//! Upstream servers' prompts and resources, under names that say whose they are.

use super::{Upstreams, upstream::Upstream};
use crate::{
    RpcError,
    server::{Asker, Page, PromptSource, ResourceSource},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolyard_engine::BoxFuture;

/// What stands before a server's own URIs: `mcp-<server>+`, a scheme of its own for each. With an empty prefix, nothing.
fn scheme(upstream: &Upstream) -> String {
    if let Some(terms) = &upstream.terms {
        // Several processes of one plugin are told apart by nothing a client could see.
        return format!("mcp-plugin-{}+", terms.plugin.replace(['_', '/', '@'], "."));
    }
    if upstream.config.prefix.as_deref() == Some("") {
        return String::new();
    }
    // An underscore cannot stand in a scheme, and a point not in a server's name.
    format!("mcp-{}+", upstream.name.replace('_', "."))
}

/// A server's URI as clients know it.
pub(crate) fn outer_uri(upstream: &Upstream, uri: &str) -> String {
    format!("{}{uri}", scheme(upstream))
}

fn renamed(upstream: &Upstream, item: &Value, key: &str) -> Option<Value> {
    let mut item = item.clone();
    let uri = item.get(key)?.as_str()?.to_owned();
    item[key] = outer_uri(upstream, &uri).into();
    Some(item)
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

    fn list<'a>(&'a self, _: &'a Asker, cursor: Option<&'a str>) -> BoxFuture<'a, Result<Page, RpcError>> {
        Box::pin(async move {
            // One server a page: a long list of one does not make the first page long.
            let all = self.all();
            let mut next = match cursor {
                None | Some("") => 0,
                Some(text) => text.parse::<usize>().map_err(|_| RpcError::params("the cursor is not one of ours"))?,
            };
            let mut items = Vec::new();
            while let Some(upstream) = all.get(next) {
                let (resources, _) = upstream.resources();
                items.extend(resources.iter().filter_map(|item| renamed(upstream, item, "uri")));
                next += 1;
                if items.len() >= 1000 {
                    break;
                }
            }
            Ok(Page { items, next: (next < all.len()).then(|| next.to_string()) })
        })
    }

    fn templates<'a>(&'a self, _: &'a Asker) -> BoxFuture<'a, Result<Vec<Value>, RpcError>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for upstream in self.all() {
                let (_, templates) = upstream.resources();
                all.extend(templates.iter().filter_map(|item| renamed(&upstream, item, "uriTemplate")));
            }
            Ok(all)
        })
    }

    fn read<'a>(&'a self, asker: &'a Asker, uri: &'a str) -> BoxFuture<'a, Result<Option<Vec<Value>>, RpcError>> {
        Box::pin(async move {
            // The longest prefix first: an empty one would fit everything.
            let mut fitting: Vec<Arc<Upstream>> =
                self.all().into_iter().filter(|upstream| uri.starts_with(&scheme(upstream))).collect();
            fitting.sort_by_key(|upstream| std::cmp::Reverse(scheme(upstream).len()));
            for upstream in fitting {
                let scheme = scheme(&upstream);
                let inner = uri.strip_prefix(&scheme).unwrap_or(uri);
                match self.ask(&upstream, asker, "resources/read", json!({"uri": inner})).await {
                    Ok(mut result) => {
                        let contents = match result.get_mut("contents").map(Value::take) {
                            Some(Value::Array(contents)) => contents,
                            _ => Vec::new(),
                        };
                        let renamed = contents.into_iter().map(|item| renamed(&upstream, &item, "uri").unwrap_or(item));
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
        asker: &'a Asker,
        params: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Option<Value>, RpcError>> {
        Box::pin(async move {
            let uri = params.get("ref").and_then(|r| r.get("uri")).and_then(Value::as_str).unwrap_or_default();
            for upstream in self.all() {
                let scheme = scheme(&upstream);
                let Some(inner) = uri.strip_prefix(&scheme) else { continue };
                let (_, templates) = upstream.resources();
                if templates.iter().any(|t| t.get("uriTemplate").and_then(Value::as_str) == Some(inner)) {
                    return self.completion(&upstream, asker, params, "uri", inner).await.map(Some);
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

    fn list<'a>(&'a self, _: &'a Asker) -> BoxFuture<'a, Result<Vec<Value>, RpcError>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for upstream in self.all() {
                let prefix = upstream.prefix();
                for prompt in upstream.prompts().iter() {
                    let Some(name) = prompt.get("name").and_then(Value::as_str) else { continue };
                    let mut prompt = prompt.clone();
                    prompt["name"] = format!("{prefix}{name}").into();
                    all.push(prompt);
                }
            }
            Ok(all)
        })
    }

    fn get<'a>(
        &'a self,
        asker: &'a Asker,
        name: &'a str,
        arguments: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Option<Map<String, Value>>, RpcError>> {
        Box::pin(async move {
            let Some((upstream, inner)) = self.prompt(name) else { return Ok(None) };
            let params = json!({"name": inner, "arguments": arguments});
            match self.ask(&upstream, asker, "prompts/get", params).await? {
                Value::Object(mut result) => {
                    result.remove("resultType");
                    if let Some(messages) = result.get_mut("messages").and_then(Value::as_array_mut) {
                        for message in messages {
                            if let Some(content) = message.get_mut("content") {
                                let mut one = Value::Array(vec![content.take()]);
                                rename_inside(&upstream, &mut one);
                                *content = one.as_array_mut().and_then(Vec::pop).unwrap_or_default();
                            }
                        }
                    }
                    Ok(Some(result))
                }
                _ => Ok(None),
            }
        })
    }

    fn complete<'a>(
        &'a self,
        asker: &'a Asker,
        params: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Option<Value>, RpcError>> {
        Box::pin(async move {
            let name = params.get("ref").and_then(|r| r.get("name")).and_then(Value::as_str).unwrap_or_default();
            let Some((upstream, inner)) = self.prompt(name) else { return Ok(None) };
            self.completion(&upstream, asker, params, "name", &inner).await.map(Some)
        })
    }
}

impl Upstreams {
    fn prompt(&self, name: &str) -> Option<(Arc<Upstream>, String)> {
        self.all().into_iter().find_map(|upstream| {
            let prefix = upstream.prefix();
            let inner = name.strip_prefix(&prefix)?;
            let prompts = upstream.prompts();
            let known = prompts.iter().any(|p| p.get("name").and_then(Value::as_str) == Some(inner));
            known.then(|| (upstream.clone(), inner.to_owned()))
        })
    }

    async fn completion(
        &self,
        upstream: &Arc<Upstream>,
        asker: &Asker,
        params: &Map<String, Value>,
        key: &str,
        inner: &str,
    ) -> Result<Value, RpcError> {
        let mut params = params.clone();
        params.remove("_meta");
        if let Some(reference) = params.get_mut("ref") {
            reference[key] = inner.into();
        }
        let answer = self.ask(upstream, asker, "completion/complete", Value::Object(params)).await;
        let none = || json!({"values": [], "total": 0, "hasMore": false});
        Ok(answer.ok().and_then(|mut a| a.get_mut("completion").map(Value::take)).unwrap_or_else(none))
    }

    async fn ask(
        &self,
        upstream: &Arc<Upstream>,
        asker: &Asker,
        method: &str,
        params: Value,
    ) -> Result<Value, RpcError> {
        let live = upstream.live().await?;
        let under = upstream.begin(asker.run_id, None).await.map_err(|failed| RpcError::from(failed.failure))?;
        let patience = std::time::Duration::from_millis(upstream.config.timeout_ms);
        let cancel = CancellationToken::new();
        let _stop = cancel.clone().drop_guard();
        let asked = live.converse(method, params, &[], &self.shared.asks, asker.run_id, &cancel);
        let answer = tokio::time::timeout(patience, asked).await;
        drop(under);
        match answer {
            Ok(answer) => answer.map_err(RpcError::from),
            Err(_) => Err(RpcError::new(crate::jsonrpc::INTERNAL_ERROR, format!("{} took too long", upstream.name))),
        }
    }
}

fn is_missing(error: &RpcError) -> bool {
    error.code == crate::jsonrpc::RESOURCE_NOT_FOUND
        || (error.code == crate::jsonrpc::INVALID_PARAMS && error.message.to_lowercase().contains("not found"))
}
