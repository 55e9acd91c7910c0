//! Converts web pages to Markdown, without navigation and other surroundings. It works on the stream of tags and builds
//! no tree, so that deep nesting and unclosed tags do no harm.

use super::{Converted, word::table_row};
use html5ever::{
    interface::TokenizerResult,
    tendril::StrTendril,
    tokenizer::{
        BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts, states::RawKind,
    },
};
use std::cell::RefCell;

/// Maximum indentation level of nested lists.
const MAX_INDENT: usize = 8;
/// The main element replaces the whole page if it has at least this many characters.
const MIN_MAIN_CHARS: usize = 200;
/// Longer link URLs, in characters, are dropped.
const MAX_LINK_CHARS: usize = 500;

/// Elements that are dropped with their content.
const NEVER: [&str; 12] = [
    "script", "style", "template", "svg", "math", "iframe", "object", "canvas", "noscript", "head", "select",
    "textarea",
];
/// Elements that surround the text of most pages.
const AROUND: [&str; 5] = ["nav", "footer", "aside", "form", "button"];

pub(super) fn convert(page: &str) -> Converted {
    let mut read = read(page, true);
    // A page that consists of navigation, or never closes it, is converted as a whole.
    if !read.markdown.chars().any(char::is_alphanumeric) {
        read = self::read(page, false);
    }
    read
}

fn read(page: &str, leave_out: bool) -> Converted {
    let sink = Sink(RefCell::new(Writer { leave_out, ..Writer::default() }));
    let input = BufferQueue::default();
    input.push_back(StrTendril::from_slice(page));
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    // The tokenizer pauses only when its sink requests that. This sink never does, so the loop reads the whole page.
    while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
    tokenizer.end();
    tokenizer.sink.0.into_inner().finish()
}

struct Sink(RefCell<Writer>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
        let mut writer = self.0.borrow_mut();
        match token {
            Token::TagToken(tag) => writer.tag(&tag),
            Token::CharacterTokens(text) => {
                writer.text(&text);
                TokenSinkResult::Continue
            }
            _ => TokenSinkResult::Continue,
        }
    }
}

#[derive(Default)]
struct Writer {
    leave_out: bool,
    out: String,
    title: String,
    in_title: bool,
    /// The element that is being skipped, and the number of open elements with its name.
    skipping: Option<(String, usize)>,
    /// Open lists: the next number, or `None` for bullets.
    lists: Vec<Option<usize>>,
    /// The next item is the first of a top-level list.
    list_begins: bool,
    pre: bool,
    link: Option<(usize, String)>,
    row: Option<Vec<String>>,
    rows: usize,
    main: Vec<(usize, usize)>,
    main_open: Option<(usize, usize)>,
    has_heading: bool,
}

impl Writer {
    fn tag(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let name = &*tag.name;
        let opens = tag.kind == TagKind::StartTag;
        if let Some((skipped, open)) = &mut self.skipping {
            if name == skipped && !tag.self_closing {
                *open = if opens { *open + 1 } else { open.saturating_sub(1) };
            }
            if *open == 0 {
                self.skipping = None;
            } else if name == "title" && skipped == "head" {
                self.in_title = opens && self.title.is_empty();
            }
            return raw(name, opens);
        }
        let left_out = NEVER.contains(&name) || (self.leave_out && AROUND.contains(&name));
        if left_out {
            if opens && !tag.self_closing {
                self.skipping = Some((name.to_owned(), 1));
            }
            return raw(name, opens);
        }
        match name {
            "title" => self.in_title = opens && self.title.is_empty(),
            "body" if opens => self.skipping = None,
            "main" | "article" => self.main_part(opens),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.heading(name, opens),
            "p" | "div" | "section" | "header" | "figure" | "figcaption" | "blockquote" | "address" | "dl"
            | "details" | "summary" | "dt" | "dd" => {
                self.block();
            }
            "ul" | "ol" => {
                if opens {
                    self.list_begins = self.lists.is_empty();
                    self.lists.push((name == "ol").then_some(1));
                } else {
                    self.lists.pop();
                }
                if self.lists.is_empty() {
                    self.block();
                }
            }
            "li" if opens => self.item(),
            "br" => self.line(),
            "hr" => self.block(),
            "pre" => {
                if opens {
                    self.block();
                    self.out.push_str("```\n");
                } else if self.pre {
                    self.out.truncate(self.out.trim_end().len());
                    self.out.push_str("\n```\n\n");
                }
                self.pre = opens;
            }
            "code" | "kbd" | "samp" if !self.pre => self.out.push('`'),
            "strong" | "b" => self.out.push_str("**"),
            "a" => self.anchor(tag, opens),
            "img" if opens => {
                if let Some(alt) = attribute(tag, "alt") {
                    self.text(&alt);
                }
            }
            "table" => {
                // Closing tags of rows are optional.
                self.table_row(false);
                self.rows = 0;
                self.block();
            }
            "tr" => self.table_row(opens),
            "td" | "th" if opens => self.cell(),
            _ => {}
        }
        raw(name, opens)
    }

    fn text(&mut self, text: &str) {
        if self.in_title {
            self.title.push_str(text);
            return;
        }
        if self.skipping.is_some() {
            return;
        }
        if let Some(cell) = self.row.as_mut().and_then(|row| row.last_mut()) {
            push_collapsed(cell, text);
        } else if self.pre {
            self.out.push_str(text);
        } else {
            push_collapsed(&mut self.out, text);
        }
    }

    fn block(&mut self) {
        if self.row.is_some() {
            return;
        }
        let end = self.out.trim_end_matches([' ', '\n']).len();
        if !self.pre {
            self.out.truncate(end.max(self.main_open.map_or(0, |(at, _)| at)));
        }
        if !self.out.is_empty() {
            self.out.push_str("\n\n");
        }
    }

    fn line(&mut self) {
        match self.row.as_mut().and_then(|row| row.last_mut()) {
            Some(cell) => cell.push(' '),
            None => self.out.push('\n'),
        }
    }

    fn heading(&mut self, name: &str, opens: bool) {
        self.block();
        if opens && self.row.is_none() {
            let level = name.as_bytes().get(1).map_or(1, |digit| usize::from(digit.saturating_sub(b'0')));
            self.has_heading |= level == 1;
            self.out.push_str(&"#".repeat(level.clamp(1, 6)));
            self.out.push(' ');
        }
    }

    fn item(&mut self) {
        if self.row.is_some() {
            return;
        }
        let end = self.out.trim_end_matches([' ', '\n']).len();
        self.out.truncate(end.max(self.main_open.map_or(0, |(at, _)| at)));
        self.out.push_str(if std::mem::take(&mut self.list_begins) { "\n\n" } else { "\n" });
        let depth = self.lists.len().saturating_sub(1).min(MAX_INDENT);
        self.out.push_str(&"  ".repeat(depth));
        match self.lists.last_mut() {
            Some(Some(number)) => {
                self.out.push_str(&format!("{number}. "));
                *number += 1;
            }
            _ => self.out.push_str("- "),
        }
    }

    fn anchor(&mut self, tag: &Tag, opens: bool) {
        if self.row.is_some() || self.pre {
            return;
        }
        if opens {
            let address =
                attribute(tag, "href").filter(|href| href.starts_with("http") && href.len() <= MAX_LINK_CHARS);
            self.link = address.map(|address| (self.out.len(), address));
        } else if let Some((start, address)) = self.link.take()
            && self.out.get(start..).is_some_and(|text| !text.trim().is_empty() && !text.contains(['\n', '[', ']']))
        {
            let spaces = self.out[start..].len() - self.out[start..].trim_start().len();
            self.out.insert(start + spaces, '[');
            self.out.push_str(&format!("]({})", address.replace([' ', ')'], "")));
        }
    }

    fn table_row(&mut self, opens: bool) {
        if let Some(row) = self.row.take() {
            let cells: Vec<String> = row.iter().map(|cell| cell.trim().to_owned()).collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                if !self.out.ends_with('\n') && !self.out.is_empty() {
                    self.out.push('\n');
                }
                table_row(&mut self.out, &cells, self.rows == 0);
                self.rows += 1;
            }
        }
        if opens {
            self.row = Some(Vec::new());
        }
    }

    fn cell(&mut self) {
        if let Some(row) = &mut self.row {
            row.push(String::new());
        }
    }

    fn main_part(&mut self, opens: bool) {
        self.block();
        self.main_open = match (self.main_open, opens) {
            (None, true) => Some((self.out.len(), 1)),
            (Some((at, open)), true) => Some((at, open + 1)),
            (Some((at, 1)), false) => {
                self.main.push((at, self.out.len()));
                None
            }
            (Some((at, open)), false) => Some((at, open - 1)),
            (None, false) => None,
        };
    }

    fn finish(mut self) -> Converted {
        if self.row.is_some() {
            self.table_row(false);
        }
        if self.pre {
            self.out.push_str("\n```\n");
        }
        if let Some((at, _)) = self.main_open {
            self.main.push((at, self.out.len()));
        }
        let main: Vec<&str> = self.main.iter().filter_map(|(from, to)| self.out.get(*from..*to)).collect();
        let main = main.join("\n\n");
        let text = if main.chars().count() >= MIN_MAIN_CHARS { main } else { self.out };
        let title = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut markdown = tidy(&text);
        if !title.is_empty() && !self.has_heading && !markdown.is_empty() {
            markdown = format!("# {title}\n\n{markdown}");
        }
        Converted { title: Some(title).filter(|title| !title.is_empty()), markdown }
    }
}

/// Elements whose content the tokenizer must not parse as tags.
fn raw(name: &str, opens: bool) -> TokenSinkResult<()> {
    match name {
        _ if !opens => TokenSinkResult::Continue,
        "script" => TokenSinkResult::RawData(RawKind::ScriptData),
        "style" | "iframe" | "noembed" | "noframes" | "xmp" => TokenSinkResult::RawData(RawKind::Rawtext),
        "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
        _ => TokenSinkResult::Continue,
    }
}

fn attribute(tag: &Tag, name: &str) -> Option<String> {
    tag.attrs.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| attribute.value.to_string())
}

fn push_collapsed(out: &mut String, text: &str) {
    for c in text.chars() {
        if !c.is_whitespace() {
            out.push(c);
        } else if !out.is_empty() && !out.ends_with([' ', '\n']) {
            out.push(' ');
        }
    }
}

/// Removes trailing spaces, repeated empty lines, and emphasis without content.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines() {
        let line = line.trim_end();
        let bare = line.trim_matches(['*', '`', '#', '-', ' ']);
        if bare.is_empty() && !line.starts_with("```") {
            empty += 1;
            continue;
        }
        if !out.is_empty() {
            out.push_str(if empty > 0 { "\n\n" } else { "\n" });
        }
        empty = 0;
        out.push_str(&line.replace("****", ""));
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_becomes_markdown() {
        let page = "<!doctype html><html><head><title>Widgets &amp; more</title><style>p{}</style><script>if (a<b) {}</script></head>\
            <body><nav><a href='/'>Home</a></nav><h1>Widgets</h1><p>All about <b>widgets</b>, see <a href='https://e.org/x'>this</a>.</p>\
            <ul><li>one<li>two<ol><li>deep</ol></ul><pre>a\n  b</pre><table><tr><th>k<th>v<tr><td>1<td>2</table><footer>(c)</footer>";
        let converted = convert(page);
        assert_eq!(converted.title.as_deref(), Some("Widgets & more"));
        assert_eq!(
            converted.markdown,
            "# Widgets\n\nAll about **widgets**, see [this](https://e.org/x).\n\n- one\n- two\n  1. deep\n\n```\na\n  b\n```\n\n| k | v |\n| --- | --- |\n| 1 | 2 |\n"
        );
    }

    #[test]
    fn the_main_part_is_taken_where_there_is_one() {
        let page = format!("<div>menu</div><main><p>{}</p></main><div>end</div>", "text ".repeat(60));
        let markdown = convert(&page).markdown;
        assert!(!markdown.contains("menu") && !markdown.contains("end") && markdown.contains("text"));
    }

    #[test]
    fn a_page_without_a_title_heading_gets_its_title() {
        assert_eq!(convert("<title>T</title><p>x</p>").markdown, "# T\n\nx\n");
        assert_eq!(convert("<nav>only this").markdown, "only this\n");
    }

    #[test]
    fn deep_nesting_is_no_problem() {
        let page = format!("{}x{}", "<div>".repeat(200_000), "</div>".repeat(200_000));
        assert_eq!(convert(&page).markdown, "x\n");
    }

    proptest! {
        #[test]
        fn any_tags_in_any_order_are_read(tags in prop::collection::vec(prop::sample::select(vec!["<main>", "</main>", "<p>", "<h1>", "</h1>", "a b", "<li>", "<ul>", "</ul>", "<pre>", "</pre>", "<tr>", "<td>", "</table>", "<a href='http://x'>", "</a>", "<nav>", "</nav>", "<title>", "</title>", "<script>", "</script>", "<head>", "</head>", "\u{732b}"]), 0..60)) {
            let _ = convert(&tags.concat());
        }
    }
}
