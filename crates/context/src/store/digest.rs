//! Rule-based abstracts and overviews from the first informative paragraph, the headings and the entries of a folder.
//! No model is used, and the same text gives the same digest.

use crate::store::layers::{MAX_ABSTRACT, MAX_OVERVIEW};
use toolyard_recall::extract::{self, Child};

/// A folder entry with a short description.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) is_folder: bool,
    pub(crate) abstract_text: String,
}

/// Replaces runs of white space by one space.
pub(crate) fn collapse(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Truncates at the end of a sentence, otherwise at a word with an ellipsis.
pub(crate) fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let cut: String = text.chars().take(most.saturating_sub(1)).collect();
    let sentence = cut.rfind(['.', '!', '?', '。', '！', '？']).filter(|at| *at > cut.len() / 2);
    if let Some(at) = sentence {
        let end = at + cut[at..].chars().next().map_or(1, char::len_utf8);
        return cut[..end].to_owned();
    }
    let word = cut.rfind(' ').filter(|at| *at > cut.len() / 2).unwrap_or(cut.len());
    format!("{}…", cut[..word].trim_end())
}

/// The front matter of a Markdown file, and its body.
pub(crate) fn front_matter(text: &str) -> (Option<&str>, &str) {
    let Some(rest) = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n")) else { return (None, text) };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return (Some(&rest[..at]), &rest[at + line.len()..]);
        }
        at += line.len();
    }
    (None, text)
}

/// A short description of a file: its `description` field if it has one, otherwise its first sentences.
pub(crate) fn abstract_of(name: &str, text: &str) -> String {
    let (front, body) = front_matter(text);
    match front.and_then(|front| field(front, "description")) {
        Some(described) => clip(&collapse(&described), MAX_ABSTRACT),
        None if is_short(body) => collapse(body),
        None => extract::text_abstract(name, body),
    }
}

/// A few sentences without headings are their own abstract.
fn is_short(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.len() <= MAX_ABSTRACT && !text.contains('#')
}

/// The overview of a folder: a title, a paragraph about its content (`said`, if somebody provided one), and its
/// entries.
pub(crate) fn overview(name: &str, said: Option<&str>, entries: &[Entry], total: usize) -> String {
    let children: Vec<Child<'_>> = entries
        .iter()
        .map(|entry| Child { name: &entry.name, is_directory: entry.is_folder, summary: &entry.abstract_text })
        .collect();
    let mut out = extract::directory_overview(name, &children);
    if let Some(said) = said {
        let sections = out.find("\n## ").map(|at| out[at..].to_owned()).unwrap_or_default();
        out = format!("# {name}\n\n{}\n{sections}", clip(&collapse(said), MAX_ABSTRACT));
    }
    if total > entries.len() {
        out = format!("{}\n- and {} more", clip_hard(out.trim_end(), MAX_OVERVIEW - 40), total - entries.len());
    }
    clip_hard(out.trim_end(), MAX_OVERVIEW)
}

fn clip_hard(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// The paragraph between the title and the first section.
pub(crate) fn abstract_of_overview(overview: &str) -> String {
    let mut lines = overview.lines().skip_while(|line| !line.starts_with("# "));
    lines.next();
    let paragraph: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    clip(&collapse(&paragraph.join(" ")), MAX_ABSTRACT)
}

/// One field of a front matter, as text. Only the forms that skills use are supported: one line, quoted or not, or a
/// folded block.
pub(crate) fn field(front: &str, name: &str) -> Option<String> {
    let mut lines = front.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(value) = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')) else { continue };
        let value = value.trim();
        if matches!(value, "" | ">" | "|" | ">-" | "|-") {
            let mut block = Vec::new();
            while let Some(next) = lines.next_if(|next| next.starts_with([' ', '\t'])) {
                block.push(next.trim());
            }
            return Some(block.join(" "));
        }
        let bare = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value.trim_matches(quote),
            _ => value,
        };
        return Some(bare.to_owned());
    }
    None
}

/// A list in a front matter: `[a, b]`, `a, b`, or lines that start with a dash.
pub(crate) fn list_field(front: &str, name: &str) -> Vec<String> {
    let clean = |text: &str| text.trim().trim_matches(['"', '\'', '[', ']', ' ']).to_owned();
    let mut lines = front.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(value) = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')) else { continue };
        if !value.trim().is_empty() {
            return value.split(',').map(clean).filter(|v| !v.is_empty()).collect();
        }
        let mut all = Vec::new();
        while let Some(next) = lines.next_if(|next| next.trim_start().starts_with("- ")) {
            all.push(clean(next.trim_start().trim_start_matches("- ")));
        }
        return all;
    }
    Vec::new()
}

/// The tags that a skill declares.
pub(crate) fn tags(skill: &str) -> Vec<String> {
    front_matter(skill).0.map(|front| list_field(front, "tags")).unwrap_or_default()
}

/// A text as one line of YAML.
pub(crate) fn yaml_text(text: &str) -> String {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "/._-~@+=".contains(c));
    if plain || text.starts_with("http") && !text.contains([' ', '#', '\n']) {
        text.to_owned()
    } else {
        serde_json::to_string(text).unwrap_or_else(|_| format!("{text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_in_few_words() {
        let text =
            "# Widget API\n\nIntro to the Widget API.\n\n## Rate limits\n\nThe limit is 100 requests per minute.\n";
        assert!(abstract_of("widget.md", text).contains("Intro to the Widget API."));
        assert_eq!(abstract_of("x.md", "User prefers tea."), "User prefers tea.");
        assert_eq!(abstract_of("s", "---\nname: a\ndescription: Greets a user\n---\n# x\n"), "Greets a user");
        assert!(abstract_of("l", &"word ".repeat(500)).chars().count() <= MAX_ABSTRACT);
    }

    #[test]
    fn an_abstract_is_the_overviews_first_paragraph_and_both_keep_their_limits() {
        let entries: Vec<Entry> = (0..64)
            .map(|n| Entry { name: format!("file_{n}.md"), is_folder: n % 2 == 0, abstract_text: "long ".repeat(60) })
            .collect();
        let long = overview("docs", None, &entries, 500);
        assert!(long.chars().count() <= MAX_OVERVIEW && long.starts_with("# docs\n\n"));
        let abstract_ = abstract_of_overview(&long);
        assert!(!abstract_.is_empty() && abstract_.chars().count() <= MAX_ABSTRACT);
        let said = overview("docs", Some("What we know."), &entries, 64);
        assert_eq!(abstract_of_overview(&said), "What we know.");
        assert_eq!(abstract_of_overview("# a\n\nOne.\n\n## Contents\n- b"), "One.");
    }

    #[test]
    fn fields_of_a_front_matter_are_read() {
        let front =
            "name: greet-user\ndescription: >-\n  Greets a\n  user\ntags: [a, \"b\"]\nallowed_tools:\n  - x\n  - y\n";
        assert_eq!(field(front, "name").as_deref(), Some("greet-user"));
        assert_eq!(field(front, "description").as_deref(), Some("Greets a user"));
        assert_eq!(list_field(front, "tags"), ["a", "b"]);
        assert_eq!(list_field(front, "allowed_tools"), ["x", "y"]);
    }
}
