//! Tools that are added and removed: each keeps the provider that it was added with.

use crate::support::{bench, code, entry};
use serde_json::{Value, json};
use std::sync::Arc;
use toolyard_engine::{BoxFuture, CallContext, Failed, Output, Prepared, Provider, ToolExchange};
use toolyard_protocol::ToolCall;

/// Answers with its own name.
struct Named(&'static str);

impl Provider for Named {
    fn execute<'a>(
        &'a self,
        _: &'a CallContext,
        _: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        let name = json!({"by": self.0});
        Box::pin(async move { Ok(Output::data(name.as_object().cloned().unwrap_or_default())) })
    }
}

fn tool(name: &str) -> toolyard_catalog::ToolEntry {
    entry(json!({"name": name, "title": "t", "description": "d", "category": "x", "riskLevel": "read-only",
        "idempotency": "pure", "inputSchema": {"type": "object"}}))
}

#[tokio::test]
async fn a_tool_keeps_its_provider_whatever_comes_and_goes_around_it() {
    let b = bench();
    let exchange = |out: &[&str], names: &[&str], by: &'static str| ToolExchange {
        out: out.iter().map(|name| format!("openclaw:core:{name}").into()).collect(),
        entries: names.iter().map(|name| tool(name)).collect(),
        provider: Arc::new(Named(by)),
    };
    let by = async |name: &str| -> Option<Value> {
        b.call(name, json!({})).await.data.as_ref().map(|data| data["by"].clone())
    };
    b.engine.exchange(vec![exchange(&[], &["m.b", "m.d"], "one")]).unwrap();
    b.engine.exchange(vec![exchange(&[], &["a.a", "m.c", "z.z"], "two")]).unwrap();
    for (name, provider) in [("a.a", "two"), ("m.b", "one"), ("m.c", "two"), ("m.d", "one"), ("z.z", "two")] {
        assert_eq!(by(name).await, Some(provider.into()), "{name}");
    }
    // One tool is removed, one gets another provider, and one is added, in one step.
    b.engine.exchange(vec![exchange(&["a.a", "m.b"], &["m.b"], "three"), exchange(&[], &["a.b"], "four")]).unwrap();
    assert_eq!(code(&b.call("a.a", json!({})).await), "NOT_FOUND");
    for (name, provider) in [("a.b", "four"), ("m.b", "three"), ("m.c", "two"), ("m.d", "one"), ("z.z", "two")] {
        assert_eq!(by(name).await, Some(provider.into()), "{name}");
    }
    // What is refused changes nothing.
    let version = b.engine.tools().snapshot.version().to_owned();
    assert!(b.engine.exchange(vec![exchange(&["m.c"], &["n.n", "m.d"], "five")]).is_err());
    assert_eq!(b.engine.tools().snapshot.version(), version);
    assert_eq!(by("m.c").await, Some("two".into()));
    assert_eq!(by("m.d").await, Some("one".into()));
}
