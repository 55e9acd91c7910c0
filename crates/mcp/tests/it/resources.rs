//! Resources from implementations of the trait: lists over several sources, reading, subscriptions.

use crate::harness::{Lab, meta};
use serde_json::json;
use std::sync::Arc;
use toolyard_engine::BoxFuture;
use toolyard_mcp::{
    RpcError,
    server::{Change, CompletionFuture, ListedTemplate, Page, ReadContents, Requester, ResourceSource},
    wire::{
        Item,
        answers::{Completion, ContentsMeta, Resource, ResourceBody, ResourceContents, Template},
        requests::{Complete, Reference},
    },
};

/// Numbered resources, some to a page.
struct Numbers {
    name: &'static str,
    count: usize,
    page: usize,
    is_broken: bool,
}

impl ResourceSource for Numbers {
    fn name(&self) -> &str {
        self.name
    }

    fn owns(&self, uri: &str) -> bool {
        uri.strip_prefix(self.name).is_some_and(|rest| rest.starts_with("://"))
    }

    fn list<'a>(&'a self, _: &'a Requester, cursor: Option<&'a str>) -> BoxFuture<'a, Result<Page, RpcError>> {
        Box::pin(async move {
            if self.is_broken {
                return Err(RpcError::params("this source is broken on purpose"));
            }
            let from: usize = cursor.map_or(Ok(0), str::parse).map_err(|_| RpcError::params("no cursor of ours"))?;
            let to = self.count.min(from + self.page);
            let resource = |n: usize| Resource {
                uri: format!("{}://{n}", self.name),
                name: n.to_string(),
                title: None,
                mime_type: None,
                size: None,
            };
            let items = (from..to).map(|n| Item::Own(resource(n))).collect();
            Ok(Page { items, next: (to < self.count).then(|| to.to_string()) })
        })
    }

    fn templates<'a>(&'a self, _: &'a Requester) -> BoxFuture<'a, Result<Vec<ListedTemplate>, RpcError>> {
        let uri_template = format!("{}://{{n}}", self.name);
        let template = Template { uri_template, name: self.name.to_owned(), title: None, description: None };
        Box::pin(async move { Ok(vec![Item::Own(template)]) })
    }

    fn read<'a>(
        &'a self,
        _: &'a Requester,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<ReadContents>>, RpcError>> {
        Box::pin(async move {
            let number = uri.rsplit('/').next().and_then(|n| n.parse::<usize>().ok()).filter(|n| *n < self.count);
            let contents = |n: usize| ResourceContents {
                uri: uri.to_owned(),
                mime_type: "text/plain".to_owned(),
                body: ResourceBody::Text(format!("number {n}")),
                meta: ContentsMeta::default(),
            };
            Ok(number.map(|n| vec![Item::Own(contents(n))]))
        })
    }

    fn complete<'a>(
        &'a self,
        _: &'a Requester,
        wanted: &'a Complete,
    ) -> BoxFuture<'a, Result<Option<CompletionFuture>, RpcError>> {
        let ours = matches!(&wanted.reference, Reference::Resource { uri, .. } if self.owns(uri));
        let numbers = Completion { values: vec!["1".to_owned(), "2".to_owned()], total: 2, has_more: false };
        Box::pin(async move { Ok(ours.then_some(Item::Own(numbers))) })
    }
}

fn numbers(name: &'static str, count: usize, page: usize) -> Arc<dyn ResourceSource> {
    Arc::new(Numbers { name, count, page, is_broken: false })
}

#[tokio::test]
async fn lists_go_on_over_pages_and_sources_and_a_broken_one_costs_its_own() {
    let broken = Arc::new(Numbers { name: "broken", count: 5, page: 5, is_broken: true });
    let lab = Lab::with(vec![numbers("a", 2500, 1000), broken, numbers("b", 1200, 1200), numbers("c", 7, 7)]);
    let mut wire = lab.opened("2025-11-25", json!({})).await;
    let (mut uris, mut pages, mut params) = (Vec::new(), 0, json!({}));
    loop {
        let page = wire.ask("resources/list", params).await["result"].clone();
        uris.extend(page["resources"].as_array().unwrap().iter().map(|r| r["uri"].as_str().unwrap().to_owned()));
        pages += 1;
        match page.get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => break,
        }
    }
    let wanted = (0..2500).map(|n| format!("a://{n}")).chain((0..1200).map(|n| format!("b://{n}")));
    let wanted: Vec<String> = wanted.chain((0..7).map(|n| format!("c://{n}"))).collect();
    assert_eq!(uris, wanted, "each once, in order");
    assert!(pages > 3, "{pages}");
    let templates = wire.ask("resources/templates/list", json!({})).await;
    assert_eq!(templates["result"]["resourceTemplates"].as_array().unwrap().len(), 4);
    let read = wire.ask("resources/read", json!({"uri": "b://7"})).await;
    assert_eq!(read["result"]["contents"][0]["text"], "number 7");
    assert_eq!(wire.ask("resources/read", json!({"uri": "b://9999"})).await["error"]["code"], -32002);
    assert_eq!(wire.ask("resources/read", json!({"uri": "nobody://1"})).await["error"]["code"], -32002);
    let complete = json!({"ref": {"type": "ref/resource", "uri": "b://{n}"}, "argument": {"name": "n", "value": ""}});
    assert_eq!(wire.ask("completion/complete", complete).await["result"]["completion"]["total"], 2);
}

#[tokio::test]
async fn who_watches_a_resource_hears_of_it_and_of_changed_lists() {
    let lab = Lab::with(vec![numbers("a", 3, 3)]);
    let mut watching = lab.opened("2025-06-18", json!({})).await;
    let mut other = lab.opened("2025-11-25", json!({})).await;
    assert_eq!(watching.ask("resources/subscribe", json!({"uri": "a://1"})).await["result"], json!({}));
    let mut stateless = lab.stdio();
    let wanted = json!({"promptsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["a://1"]});
    stateless.begin("subscriptions/listen", json!({"_meta": meta(json!({})), "notifications": wanted})).await;
    stateless.heard("notifications/subscriptions/acknowledged").await;
    for change in
        [Change::Resource("a://2".into()), Change::Resource("a://1".into()), Change::Resources, Change::Prompts]
    {
        lab.server.changed(change);
    }
    for wire in [&mut watching, &mut stateless] {
        assert_eq!(
            wire.heard("notifications/resources/updated").await["params"]["uri"],
            "a://1",
            "only what it watches"
        );
        wire.heard("notifications/resources/list_changed").await;
        wire.heard("notifications/prompts/list_changed").await;
        assert!(wire.others.iter().all(|m| m["method"] != "notifications/resources/updated"), "{:?}", wire.others);
    }
    other.heard("notifications/prompts/list_changed").await;
    assert!(other.others.iter().all(|m| m["method"] != "notifications/resources/updated"));
    assert_eq!(watching.ask("resources/unsubscribe", json!({"uri": "a://1"})).await["result"], json!({}));
    lab.server.changed(Change::Resource("a://1".into()));
    lab.server.changed(Change::Tools);
    watching.heard("notifications/tools/list_changed").await;
    assert!(watching.others.iter().all(|m| m["method"] != "notifications/resources/updated"));
}
