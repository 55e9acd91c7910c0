//! How long things take. Not run by default: `cargo test -p toolyard-vault --release --test it -- --ignored --nocapture figures`.

use crate::support::{TestVault, tool_call, under_heading};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

async fn median(vault: &TestVault, rounds: usize, mut make: impl FnMut(usize) -> (&'static str, Value)) -> Duration {
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let (tool, args) = make(round);
        let call = tool_call(tool, args);
        let context = vault.context();
        let started = Instant::now();
        let prepared = vault.provider.prepare(&context, &call).await.unwrap();
        vault.provider.execute(&context, &call, prepared).await.unwrap();
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; run it by hand"]
async fn figures() {
    let vault = TestVault::new();
    vault.write("small.md", "# A\n\nsome text\n".repeat(20));
    vault.write("other.md", "# A\n");
    let read = median(&vault, 2000, |_| ("vault.readFile", json!({"path":"small.md"}))).await;
    println!("read a small note: {read:?}");
    let append = median(&vault, 100, |i| {
        ("vault.writeFile", json!({"path":"other.md","content":format!("line {i}"),"mode":"append"}))
    })
    .await;
    println!("append to a small note (2 syncs): {append:?}");
    let patch = median(&vault, 100, |i| {
        ("vault.patchFile", json!({"path":"other.md","patch":under_heading(&["A"], &format!("p{i}"))}))
    })
    .await;
    println!("patch a small note (2 syncs): {patch:?}");
    let create =
        median(&vault, 100, |i| ("vault.createFile", json!({"path":format!("new/{i}.md"),"content":"x"}))).await;
    println!("create a note: {create:?}");

    let large = TestVault::new();
    for i in 0..10_000 {
        large.write(
            &format!("f{}/note {i}.md", i % 100),
            format!("# Note {i}\n\n[[note {}]] and some text that is not a link.\n", (i + 1) % 10_000),
        );
    }
    let list = median(&large, 5, |_| ("vault.listFiles", json!({"recursive":true,"limit":10000}))).await;
    println!("list 10,000 notes: {list:?}");
    let search = median(&large, 5, |_| ("vault.searchText", json!({"query":"needle"}))).await;
    println!("search 10,000 notes: {search:?}");
    let rename = median(&large, 4, |i| {
        let (from, to) = if i % 2 == 0 { ("f7/note 7.md", "f8/seven.md") } else { ("f8/seven.md", "f7/note 7.md") };
        ("vault.rename", json!({"fromPath":from,"toPath":to}))
    })
    .await;
    println!("rename among 10,000 notes: {rename:?}");
    let opened = Instant::now();
    drop(large.reopened());
    println!("open a vault of 10,000 notes: {:?}", opened.elapsed());
}
