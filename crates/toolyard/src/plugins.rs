//! Puts plugins together with the rest, and the methods about them, for every door.

use serde_json::{Value, json};
use std::sync::Arc;
use toolyard_engine::{BoxFuture, CallRequest, Caller, Engine};
use toolyard_gateway::methods::MethodExtension;
use toolyard_plugins::{Grant, Plugins, Source};
use toolyard_protocol::{ErrorCode, Failure};

/// The plugin of the specification whose tools are part of Toolyard.
const BUILT_IN: &str = "obsidian-rag";

/// The methods about plugins.
pub struct PluginMethods {
    /// The plugins.
    pub plugins: Plugins,
    /// Runs the tools of the built-in set.
    pub engine: Engine,
}

/// What installing a built-in set of tools leads to.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct BuiltIn {
    built_in: &'static str,
    enabled: bool,
    /// `healthy`, `degraded` or `unavailable`.
    status: String,
    tools: Vec<String>,
    /// What is left to do, in the order in which to do it.
    next: Vec<String>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Params {
    id: String,
    source: String,
    grant: Vec<String>,
    data: bool,
}

impl MethodExtension for PluginMethods {
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        method: &'a str,
        params: &'a Value,
    ) -> BoxFuture<'a, Option<Result<Value, Failure>>> {
        Box::pin(async move {
            let verb = method.strip_prefix("plugins.")?;
            let known = ["list", "info", "install", "update", "enable", "disable", "remove", "doctor"];
            if !known.contains(&verb) {
                return None;
            }
            Some(self.answer(caller, verb, params).await)
        })
    }
}

impl PluginMethods {
    async fn answer(&self, caller: &Caller, verb: &str, params: &Value) -> Result<Value, Failure> {
        let params = if params.is_null() { json!({}) } else { params.clone() };
        let params: Params = serde_json::from_value(params)
            .map_err(|e| Failure::new(ErrorCode::ValidationError, format!("the parameters cannot be read: {e}")))?;
        match verb {
            "list" => return Ok(json!({"plugins": self.plugins.list()})),
            "info" => return Ok(json!(self.plugins.info(&params.id)?)),
            "doctor" => return Ok(json!({"plugins": self.plugins.doctor().await})),
            _ => {}
        }
        if !caller.is_person {
            let why = "only a person installs, changes or removes plugins";
            return Err(Failure::new(ErrorCode::PolicyDenied, why));
        }
        let grant = Grant::parse(&params.grant).map_err(|why| Failure::new(ErrorCode::UsageError, why))?;
        match verb {
            "install" => match Source::parse(&params.source)? {
                Source::Clawhub(spec) if spec.split('@').next() == Some(BUILT_IN) => {
                    Ok(json!(self.built_in(caller).await))
                }
                source => Ok(json!(self.plugins.install(&source, grant).await?)),
            },
            "update" => Ok(json!(self.plugins.update(&params.id).await?)),
            "enable" => Ok(json!(self.plugins.set_enabled(&params.id, true, &grant).await?)),
            "disable" => Ok(json!(self.plugins.set_enabled(&params.id, false, &grant).await?)),
            _ => {
                self.plugins.remove(&params.id, params.data).await?;
                Ok(json!({"removed": params.id}))
            }
        }
    }

    /// The built-in set: which tools it has, how it is, and what is left to do.
    async fn built_in(&self, caller: &Caller) -> BuiltIn {
        let snapshot = self.engine.tools().snapshot.clone();
        let names =
            toolyard_knowledge::definitions().into_iter().flatten().map(|definition| definition.name.to_string());
        let tools: Vec<String> = names.filter(|name| snapshot.get(name).is_some()).collect();
        let request = CallRequest { tool: "obsidian_rag_status".to_owned(), ..CallRequest::default() };
        let result = self.engine.call(Arc::new(caller.clone()), request).await.result;
        let envelope = result.data.as_ref();
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let mut next = Vec::new();
        if tools.is_empty() {
            next.push("set knowledge.enabled = true in config.toml and start Toolyard again".to_owned());
        } else if let Some(error) = envelope.and_then(|data| data.get("error")).filter(|error| !error.is_null()) {
            next.extend(text(error.get("suggestion")));
        }
        let status = text(envelope.and_then(|data| data.get("status"))).unwrap_or_else(|| "unavailable".to_owned());
        BuiltIn { built_in: BUILT_IN, enabled: !tools.is_empty(), status, tools, next }
    }
}
