//! Puts plugins together with the rest, and the methods about them, for every door.

use serde_json::{Value, json};
use toolyard_engine::{BoxFuture, Caller};
use toolyard_gateway::methods::MethodExtension;
use toolyard_plugins::{Grant, Plugins, Source};
use toolyard_protocol::{ErrorCode, Failure};

/// The methods about plugins.
pub struct PluginMethods(pub Plugins);

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
            "list" => return Ok(json!({"plugins": self.0.list()})),
            "info" => return Ok(json!(self.0.info(&params.id)?)),
            "doctor" => return Ok(json!({"plugins": self.0.doctor().await})),
            _ => {}
        }
        if !caller.is_person {
            let why = "only a person installs, changes or removes plugins";
            return Err(Failure::new(ErrorCode::PolicyDenied, why));
        }
        let grant = Grant::parse(&params.grant).map_err(|why| Failure::new(ErrorCode::UsageError, why))?;
        match verb {
            "install" => Ok(json!(self.0.install(&Source::parse(&params.source)?, grant).await?)),
            "update" => Ok(json!(self.0.update(&params.id).await?)),
            "enable" => Ok(json!(self.0.set_enabled(&params.id, true, &grant).await?)),
            "disable" => Ok(json!(self.0.set_enabled(&params.id, false, &grant).await?)),
            _ => {
                self.0.remove(&params.id, params.data).await?;
                Ok(json!({"removed": params.id}))
            }
        }
    }
}
