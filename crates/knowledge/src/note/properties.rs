//! Reads front matter as far as search needs it: the top-level keys and their values as text. YAML it cannot read is
//! left out and is not an error, because a note with unusual front matter is still a note.

/// Maximum number of properties of a note that are read.
const MAX_PROPERTIES: usize = 200;
/// Maximum number of values of a property.
const MAX_VALUES: usize = 500;
/// Values are truncated to this many characters.
const MAX_VALUE_CHARS: usize = 2_000;

/// One top-level key with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// The key as written.
    pub key: String,
    /// One value for a scalar, or one for each item of a list.
    pub values: Vec<String>,
}

/// The properties of front matter that includes both its fences.
pub fn read_properties(front_matter: &str) -> Vec<Property> {
    let lines: Vec<&str> = front_matter.lines().collect();
    let inner = lines.get(1..lines.len().saturating_sub(1)).unwrap_or_default();
    let mut found: Vec<Property> = Vec::new();
    for line in inner {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let is_item = trimmed == "-" || trimmed.starts_with("- ");
        if line.starts_with([' ', '\t']) || is_item {
            // Indented lines and items belong to the key above them.
            if let Some(property) = found.last_mut() {
                let value = trimmed.strip_prefix('-').filter(|_| is_item).unwrap_or(trimmed);
                push(property, value);
            }
            continue;
        }
        if found.len() == MAX_PROPERTIES {
            break;
        }
        let Some((key, value)) = split_key(trimmed) else { continue };
        let mut property = Property { key, values: Vec::new() };
        if let Some(items) = flow_list(value.trim()) {
            split_flow(items).for_each(|item| push_whole(&mut property, item));
            found.push(property);
            continue;
        }
        let value = without_comment(value.trim());
        // The markers of block scalars describe line folding, which does not matter here.
        if !matches!(value, "|" | ">" | "|-" | ">-" | "|+" | ">+") {
            push(&mut property, value);
        }
        found.push(property);
    }
    found
}

fn push(property: &mut Property, value: &str) {
    push_whole(property, without_comment(value.trim()));
}

fn push_whole(property: &mut Property, value: &str) {
    let value = unquote(value.trim());
    if !value.is_empty() && property.values.len() < MAX_VALUES {
        property.values.push(value.chars().take(MAX_VALUE_CHARS).collect());
    }
}

fn split_key(line: &str) -> Option<(String, &str)> {
    let at = line.find(": ").or_else(|| line.ends_with(':').then(|| line.len() - 1))?;
    let key = unquote(line[..at].trim());
    (!key.is_empty()).then(|| (key, &line[at + 1..]))
}

/// A comment begins with ` #` outside quotes.
fn without_comment(value: &str) -> &str {
    if value.starts_with(['"', '\'']) {
        let quote = &value[..1];
        return value[1..].rfind(quote).map_or(value, |end| &value[..end + 2]);
    }
    value.find(" #").map_or(value, |at| value[..at].trim_end())
}

/// The text between the brackets of `[a, b] # comment`. A hash inside them begins a tag or is part of a name.
fn flow_list(value: &str) -> Option<&str> {
    // Unquoted `[[Note]]` is a link, although YAML would parse it as a nested list.
    let items = value.strip_prefix('[').filter(|items| !items.starts_with('['))?;
    let mut quote: Option<char> = None;
    for (at, c) in items.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') if opens_item(&items[..at]) => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, ']') => {
                let after = items[at + 1..].trim_start();
                if after.is_empty() || after.starts_with('#') {
                    return Some(&items[..at]);
                }
            }
            _ => {}
        }
    }
    None
}

/// A quote opens a string only at the beginning of an item: `[Anna's, b]` has none.
fn opens_item(before: &str) -> bool {
    matches!(before.trim_end().chars().next_back(), None | Some(','))
}

fn unquote(value: &str) -> String {
    let inner = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    match (inner('"'), inner('\'')) {
        (Some(text), _) => text.replace("\\\"", "\"").replace("\\\\", "\\"),
        (None, Some(text)) => text.replace("''", "'"),
        (None, None) => value.to_owned(),
    }
}

/// Items between commas that are not inside quotes.
fn split_flow(items: &str) -> impl Iterator<Item = &str> {
    let (mut quote, mut at_start): (Option<char>, bool) = (None, true);
    items
        .split(move |c: char| {
            match (quote, c) {
                (None, '"' | '\'') if at_start => quote = Some(c),
                (Some(open), c) if c == open => quote = None,
                (None, ',') => {
                    at_start = true;
                    return true;
                }
                _ => {}
            }
            at_start &= c.is_whitespace();
            false
        })
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<(String, Vec<String>)> {
        read_properties(text).into_iter().map(|p| (p.key, p.values)).collect()
    }
    fn is(key: &str, values: &[&str]) -> (String, Vec<String>) {
        (key.to_owned(), values.iter().map(|v| (*v).to_owned()).collect())
    }

    #[test]
    fn scalars_lists_and_comments_are_read() {
        let text = "---\ntitle: \"A: b\" # c\ntags: [x, 'y, z', \"w\"]\naliases:\n  - One\n  - \"Two\"\n# note\n\
                    flat:\n- a\n- b\ndate: 2024-03-05\nup: [[Note]]\nempty:\ntext: |\n  line one\n  line two\n---\n";
        assert_eq!(
            read(text),
            [
                is("title", &["A: b"]),
                is("tags", &["x", "y, z", "w"]),
                is("aliases", &["One", "Two"]),
                is("flat", &["a", "b"]),
                is("date", &["2024-03-05"]),
                is("up", &["[[Note]]"]),
                is("empty", &[]),
                is("text", &["line one", "line two"]),
            ]
        );
    }

    #[test]
    fn a_hash_in_a_list_is_no_comment() {
        let text = "---\ntags: [#a, #b] # real\naliases: [\"C # minor\", 'D]', E # F]\nnames: [Anna's, Bob's]\n\
                    plain: x # comment\nopen: [a, b\n---\n";
        assert_eq!(
            read(text),
            [
                is("tags", &["#a", "#b"]),
                is("aliases", &["C # minor", "D]", "E # F"]),
                is("names", &["Anna's", "Bob's"]),
                is("plain", &["x"]),
                is("open", &["[a, b"]),
            ]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "(?s).{0,200}") {
            for property in read_properties(&format!("---\n{text}\n---\n")) {
                prop_assert!(!property.key.is_empty());
                prop_assert!(property.values.iter().all(|v| !v.is_empty()));
            }
        }
    }
}
