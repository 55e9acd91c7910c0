//! The attribute that ties a test to the specification: `#[shows("002-3.1-04")]` above a test says that the test shows that
//! row of `docs/reference/specification.tsv`. The attribute leaves the test as it is. It refuses to compile for a row that does not
//! exist, for a function that is not a test, and for a test that no `make` target runs. `scripts/specification` reads the
//! same attributes and writes `docs/specification.md`.
//!
//! This crate knows nothing about what the rows say.

use proc_macro::{Delimiter, TokenStream, TokenTree};
use std::str::FromStr;

const ROWS: &str = include_str!("../../../docs/reference/specification.tsv");

/// Names the rows of the specification that the test below shows.
#[proc_macro_attribute]
pub fn shows(rows: TokenStream, test: TokenStream) -> TokenStream {
    match problem(rows, &test) {
        None => test,
        Some(problem) => {
            let mut refused =
                TokenStream::from_str(&format!("::core::compile_error!({problem:?});")).unwrap_or_default();
            refused.extend(test);
            refused
        }
    }
}

fn problem(rows: TokenStream, test: &TokenStream) -> Option<String> {
    let rows: Vec<String> = rows
        .into_iter()
        .filter_map(|token| match token {
            TokenTree::Literal(literal) => Some(literal.to_string().trim_matches('"').to_owned()),
            _ => None,
        })
        .collect();
    if rows.is_empty() {
        return Some("name at least one row, such as #[shows(\"002-3.1-04\")]".to_owned());
    }
    if let Some(unknown) = rows.iter().find(|row| !is_row(row)) {
        return Some(format!("docs/reference/specification.tsv has no row {unknown}"));
    }
    let attributes = attributes(test);
    if !attributes.iter().any(|attribute| is_test(attribute)) {
        return Some("#[shows] belongs above a test, before its #[test] attribute".to_owned());
    }
    let skipped = attributes.iter().find(|attribute| attribute.starts_with("ignore"))?;
    let named = skipped.contains("make ");
    (!named).then(|| "an ignored test must name the make target that runs it: #[ignore = \"make …\"]".to_owned())
}

/// Whether an attribute makes a test of a function: `test`, `tokio::test`, `tokio::test(…)`.
fn is_test(attribute: &str) -> bool {
    let path: String = attribute.chars().take_while(|c| *c != '(').filter(|c| !c.is_whitespace()).collect();
    path == "test" || path.ends_with("::test")
}

fn is_row(id: &str) -> bool {
    ROWS.lines().any(|line| line.split('\t').next() == Some(id))
}

/// The attributes that follow `#[shows]`, each as its text.
fn attributes(item: &TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    let mut tokens = item.clone().into_iter();
    while let Some(TokenTree::Punct(punct)) = tokens.next() {
        match (punct.as_char(), tokens.next()) {
            ('#', Some(TokenTree::Group(group))) if group.delimiter() == Delimiter::Bracket => {
                found.push(group.stream().to_string());
            }
            _ => break,
        }
    }
    found
}
