//! `util.parseMarkdownBullets`: the items of a list in a piece of text.

use super::{Args, Run, Tool, answer, parse, reads};
use crate::{
    error::VaultResult,
    markdown::scan::{Scan, indent, is_list_item},
    view::{StopCondition, View},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::Output;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// Markdown.
    text: String,
    /// Also items of nested lists (default true); false gives the top level only.
    #[serde(default)]
    allow_nested: Option<bool>,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Item {
    /// Without bullet and checkbox.
    text: String,
    /// The line, unchanged.
    raw: String,
    /// 0 at the top level.
    depth: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    items: Vec<Item>,
    count: u64,
}

pub(super) const TOOL: Tool = Tool {
    name: "util.parseMarkdownBullets",
    define: || {
        reads::<Input, Data>(
            "Parse bullets",
            "Takes the items of bulleted and numbered lists out of Markdown. Code blocks are skipped.",
        )
        .permissions(&[])
        .requires(&[])
    },
    run: Run::Read(run),
};

fn run(_: &dyn View, args: Args, _: &StopCondition) -> VaultResult<Output> {
    let input: Input = parse(args)?;
    let items = items(&input.text, input.allow_nested.unwrap_or(true));
    let count = items.len() as u64;
    answer(&Data { items, count }, format!("{count} items"))
}

fn items(text: &str, allow_nested: bool) -> Vec<Item> {
    let scan = Scan::new(text);
    let mut widths: Vec<usize> = Vec::new();
    let mut found = Vec::new();
    for line in &scan.lines {
        let raw = scan.line(line);
        let (width, rest) = indent(raw);
        if line.start < scan.body_start() || scan.is_opaque(line.end - rest.len()) && !rest.is_empty() {
            continue;
        }
        if !is_list_item(rest) {
            if width == 0 && !rest.is_empty() {
                widths.clear();
            }
            continue;
        }
        while widths.last().is_some_and(|&w| w >= width) {
            widths.pop();
        }
        let depth = widths.len();
        widths.push(width);
        if depth > 0 && !allow_nested {
            continue;
        }
        let content = rest.split_once([' ', '\t']).map_or("", |(_, content)| content).trim();
        found.push(Item { text: without_checkbox(content).to_owned(), raw: raw.to_owned(), depth: depth as u64 });
    }
    found
}

fn without_checkbox(content: &str) -> &str {
    let mut chars = content.chars();
    match (chars.next(), chars.next(), chars.next()) {
        (Some('['), Some(_), Some(']')) if chars.as_str().starts_with(' ') => chars.as_str().trim_start(),
        _ => content,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_with_their_depth() {
        let text = "- a\n  - b\n    1. c\n* [x] d\ntext\n+ e\n```\n- no\n```\n-not\n";
        let got: Vec<(String, u64)> = items(text, true).into_iter().map(|i| (i.text, i.depth)).collect();
        assert_eq!(got, [("a".into(), 0), ("b".into(), 1), ("c".into(), 2), ("d".into(), 0), ("e".into(), 0)]);
        assert_eq!(items(text, false).len(), 3);
    }
}
