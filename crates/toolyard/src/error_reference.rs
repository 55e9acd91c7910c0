//! The page `docs/reference/errors/README.md`: every error code with its meaning and what to do, taken from the pages
//! that are compiled into the program. The pages themselves are written by hand.

use std::fmt::Write as _;
use toolyard_knowledge::envelope::ProblemCode;
use toolyard_protocol::ErrorCode;

const HEAD: &str = "# Error codes\n\n\
    <!-- Written by `make docs` from the codes in the program and the pages beside this one. -->\n\n\
    A failure has one of these codes, a message, and advice on what to do next. Agents should branch on the code; the\n\
    message is for people. `toolyard explain CODE` prints a code's page.\n";

/// The page, in Markdown.
pub fn page() -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n## Every tool and command\n");
    let every = ErrorCode::ALL.iter().map(|code| (code.as_str(), code.page().markdown, code.suggestion().to_owned()));
    table(&mut text, "", every);
    text.push_str("\n## The `obsidian_rag_*` tools only\n");
    table(&mut text, "notes/", ProblemCode::PAGES.iter().map(|(code, page)| (*code, *page, advice(page))));
    text
}

fn table<'a>(text: &mut String, folder: &str, pages: impl Iterator<Item = (&'a str, &'a str, String)>) {
    text.push_str("\n| code | meaning | what to do |\n| --- | --- | --- |\n");
    for (code, page, advice) in pages {
        // Writing to a String cannot fail.
        _ = writeln!(
            text,
            "| [{code}]({folder}{code}.md) | {} | {} |",
            meaning(page).replace('|', "\\|"),
            advice.replace('|', "\\|")
        );
    }
}

/// The first sentence below the title of a code's page.
fn meaning(page: &str) -> String {
    first_sentence(page.split_once('\n').map_or("", |(_, rest)| rest))
}

/// The first sentence of the section "What to do" of a code's page.
pub fn advice(page: &str) -> String {
    first_sentence(page.split_once("## What to do").map_or("", |(_, rest)| rest))
}

fn first_sentence(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.split_inclusive(". ").next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    #[test]
    fn the_page_of_error_codes_is_current() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors/README.md");
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(committed == super::page(), "docs/reference/errors/README.md is out of date: run `make docs`");
    }

    #[test]
    fn every_page_belongs_to_a_code() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors");
        let index = super::page();
        for folder in [folder.clone(), folder.join("notes")] {
            let names: BTreeSet<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
            for name in names.iter().filter_map(|name| name.to_str()).filter(|name| name.ends_with(".md")) {
                assert!(name == "README.md" || index.contains(&format!("{name})")), "{name} has no code");
            }
        }
    }
}
