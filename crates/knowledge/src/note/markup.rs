//! Links and HTML tags: what is removed when Markdown becomes plain text, and the positions of link targets.

use regex::{Captures, Regex};
use std::{borrow::Cow, ops::Range, sync::LazyLock};

/// Link targets are truncated to this length for the search, because a data URI can contain a whole file.
const MAX_TARGET_CHARS: usize = 300;

/// `[[target#heading|alias]]` and embeds.
static WIKI_LINK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"!?\[\[([^\[\]\n|]*)(?:\|([^\[\]\n]*))?\]\]").ok());
/// `[text](target)` and images.
static MARKDOWN_LINK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"!?\[([^\[\]\n]*)\]\(((?:[^()\n]|\([^()\n]*\))*)\)").ok());
/// `[label]: target` at the start of a line; a footnote is treated as text.
static DEFINITION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^ {0,3}\[[^\[\]^\n][^\[\]\n]*\]:[ \t]*([^ \t\n]*)").ok());
/// `<https://example.org>` and `<a@example.org>`.
static AUTOLINK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"<([A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*|[^\s<>@]+@[^\s<>@]+)>").ok());
/// A possible HTML tag: a name with optional attributes.
static TAG: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"</?([A-Za-z][A-Za-z0-9-]*)((?:\s[^<>\n]{0,500})?)/?>").ok());
/// One attribute; without a value it must be one of [`BARE_ATTRIBUTES`].
static ATTRIBUTE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"^([A-Za-z_:@][A-Za-z0-9_:.@-]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'=<>`]+))?(?:\s+|$)"#).ok()
});

/// The elements of HTML, current and obsolete.
const ELEMENTS: &[&str] = &[
    "a",
    "abbr",
    "acronym",
    "address",
    "applet",
    "area",
    "article",
    "aside",
    "audio",
    "b",
    "base",
    "basefont",
    "bdi",
    "bdo",
    "big",
    "blockquote",
    "body",
    "br",
    "button",
    "canvas",
    "caption",
    "center",
    "cite",
    "code",
    "col",
    "colgroup",
    "data",
    "datalist",
    "dd",
    "del",
    "details",
    "dfn",
    "dialog",
    "dir",
    "div",
    "dl",
    "dt",
    "em",
    "embed",
    "fieldset",
    "figcaption",
    "figure",
    "font",
    "footer",
    "form",
    "frame",
    "frameset",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hgroup",
    "hr",
    "html",
    "i",
    "iframe",
    "img",
    "input",
    "ins",
    "kbd",
    "label",
    "legend",
    "li",
    "link",
    "main",
    "map",
    "mark",
    "marquee",
    "math",
    "menu",
    "meta",
    "meter",
    "nav",
    "nobr",
    "noframes",
    "noscript",
    "object",
    "ol",
    "optgroup",
    "option",
    "output",
    "p",
    "param",
    "picture",
    "pre",
    "progress",
    "q",
    "rp",
    "rt",
    "ruby",
    "s",
    "samp",
    "script",
    "search",
    "section",
    "select",
    "slot",
    "small",
    "source",
    "span",
    "strike",
    "strong",
    "style",
    "sub",
    "summary",
    "sup",
    "svg",
    "table",
    "tbody",
    "td",
    "template",
    "textarea",
    "tfoot",
    "th",
    "thead",
    "time",
    "title",
    "tr",
    "track",
    "tt",
    "u",
    "ul",
    "var",
    "video",
    "wbr",
];

/// Attributes that need no value. They distinguish a tag from text such as `a <b and c> d`.
const BARE_ATTRIBUTES: &[&str] = &[
    "allowfullscreen",
    "async",
    "autofocus",
    "autoplay",
    "checked",
    "compact",
    "controls",
    "defer",
    "disabled",
    "download",
    "hidden",
    "inert",
    "ismap",
    "itemscope",
    "loop",
    "multiple",
    "muted",
    "nowrap",
    "open",
    "playsinline",
    "readonly",
    "required",
    "reversed",
    "selected",
];

/// The text without links and tags, and the link targets.
pub(super) fn without_markup(text: &str) -> (String, Vec<String>) {
    let mut targets = Vec::new();
    let mut text = replaced(text.into(), &WIKI_LINK, |found| {
        let target = found.get(1).map_or("", |m| m.as_str()).trim_end_matches('\\');
        match found.get(2) {
            Some(alias) => {
                push_target(&mut targets, target, alias.as_str());
                alias.as_str().to_owned()
            }
            None => target.to_owned(),
        }
    });
    // Two passes, because an image may be the text of a link.
    for _ in 0..2 {
        text = replaced(text, &MARKDOWN_LINK, |found| {
            push_target(&mut targets, destination(&found[2]), &found[1]);
            found[1].to_owned()
        });
    }
    text = replaced(text, &AUTOLINK, |found| found[1].to_owned());
    text = replaced(text, &TAG, |found| match attributes(found) {
        Some(attributes) => {
            let leads = attributes.iter().filter(|(name, _)| matches!(name.as_str(), "href" | "src"));
            leads.for_each(|(_, value)| push_target(&mut targets, value, ""));
            " ".to_owned()
        }
        None => found[0].to_owned(),
    });
    (text.into_owned(), targets)
}

/// The ranges of link targets and HTML tags in a line, ordered by start. The text of a link is not included.
pub(super) fn link_targets(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (regex, group) in [(&WIKI_LINK, 0), (&MARKDOWN_LINK, 2), (&DEFINITION, 1)] {
        let all = regex.iter().flat_map(|regex| regex.captures_iter(line));
        found.extend(all.filter_map(|captures| captures.get(group)).map(|target| target.range()));
    }
    let tags = TAG.iter().flat_map(|regex| regex.captures_iter(line)).filter(|tag| attributes(tag).is_some());
    found.extend(tags.filter_map(|tag| tag.get(0)).map(|tag| tag.range()));
    found.sort_unstable_by_key(|range| range.start);
    found
}

fn replaced<'a>(text: Cow<'a, str>, regex: &Option<Regex>, by: impl FnMut(&Captures<'_>) -> String) -> Cow<'a, str> {
    match regex.as_ref().map(|regex| regex.replace_all(&text, by)) {
        Some(Cow::Owned(changed)) => Cow::Owned(changed),
        _ => text,
    }
}

/// The attributes of a tag; `None` when the text only looks like one. An unknown element name makes a tag only if all
/// its attributes have values.
fn attributes(tag: &Captures<'_>) -> Option<Vec<(String, String)>> {
    let is_element = ELEMENTS.contains(&tag[1].to_ascii_lowercase().as_str());
    let mut rest = tag[2].trim().trim_end_matches('/').trim_end();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let one = ATTRIBUTE.as_ref()?.captures(rest)?;
        let name = one[1].to_ascii_lowercase();
        match one.get(2) {
            Some(value) => found.push((name, value.as_str().trim_matches(['"', '\'']).to_owned())),
            None if BARE_ATTRIBUTES.contains(&name.as_str()) => {}
            None => return None,
        }
        rest = &rest[one[0].len()..];
    }
    (is_element || !found.is_empty()).then_some(found)
}

/// The target inside `](…)`, without a title.
fn destination(inside: &str) -> &str {
    let inside = inside.trim();
    match inside.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((target, _)) => target,
        None => inside.split([' ', '\t']).next().unwrap_or_default(),
    }
}

fn push_target(targets: &mut Vec<String>, target: &str, shown: &str) {
    let target = target.trim();
    // An anchor refers to a heading of the same note, and a data URI contains no searchable text.
    if target.is_empty() || target == shown.trim() || target.starts_with('#') || target.starts_with("data:") {
        return;
    }
    targets.push(target.replace("%20", " ").chars().take(MAX_TARGET_CHARS).collect());
}
