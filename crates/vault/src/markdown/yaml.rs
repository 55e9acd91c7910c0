//! A small YAML emitter for JSON values, for front matter. Strings are quoted whenever a YAML reader could take them
//! for anything else. There is no YAML parser here: front matter is edited in place, not rewritten.

use serde_json::{Map, Value};

/// Deeper nesting than this is written in flow style, which is JSON.
const MAX_BLOCK_DEPTH: usize = 8;

/// Words that YAML 1.1 or 1.2 readers take for something other than text.
const RESERVED: [&str; 14] =
    ["null", "~", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf", "nan", "inf"];

/// The block `key: value` lines of a mapping.
pub(crate) fn mapping(map: &Map<String, Value>) -> String {
    let mut out = String::new();
    map.iter().for_each(|(key, value)| entry(&mut out, key, value, 0, 1));
    out
}

/// One `key: value` entry with its line endings.
fn entry(out: &mut String, key: &str, value: &Value, indent: usize, depth: usize) {
    out.push_str(&" ".repeat(indent));
    out.push_str(&string(key));
    out.push(':');
    out.push_str(&after_colon(value, indent, 2, depth));
    out.push('\n');
}

/// The text after `key:`, without the last line ending. `item_indent` is the indentation of list items.
pub(crate) fn after_colon(value: &Value, indent: usize, item_indent: usize, depth: usize) -> String {
    match value {
        Value::Array(items) if !items.is_empty() && depth < MAX_BLOCK_DEPTH => {
            let mut out = String::new();
            for item in items {
                out.push('\n');
                out.push_str(&" ".repeat(indent + item_indent));
                out.push('-');
                match item {
                    Value::Object(map) if !map.is_empty() && depth + 1 < MAX_BLOCK_DEPTH => {
                        let mut block = String::new();
                        map.iter().for_each(|(k, v)| entry(&mut block, k, v, indent + item_indent + 2, depth + 1));
                        out.push(' ');
                        out.push_str(block.trim_start().trim_end_matches('\n'));
                    }
                    scalar_or_nested => {
                        out.push(' ');
                        out.push_str(&flow(scalar_or_nested));
                    }
                }
            }
            out
        }
        Value::Object(map) if !map.is_empty() && depth < MAX_BLOCK_DEPTH => {
            let mut block = String::from("\n");
            map.iter().for_each(|(k, v)| entry(&mut block, k, v, indent + 2, depth + 1));
            block.truncate(block.trim_end_matches('\n').len());
            block
        }
        other => format!(" {}", flow(other)),
    }
}

/// The value on one line.
pub(crate) fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(k, v)| format!("{}: {}", string(k), flow(v))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

/// Unquoted if that is unambiguous, otherwise in double quotes.
pub(crate) fn string(text: &str) -> String {
    let plain_char = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '/' | '.' | '(' | ')' | '\'' | '+');
    let is_plain = text.starts_with(char::is_alphabetic)
        && !text.ends_with(' ')
        && text.chars().all(plain_char)
        && !RESERVED.contains(&text.to_lowercase().as_str());
    if is_plain {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_are_quoted_when_they_could_be_something_else() {
        for plain in ["hello", "Hello World", "naïve", "a-b/c.d", "It's"] {
            assert_eq!(string(plain), plain);
        }
        for (text, quoted) in [
            ("yes", "\"yes\""),
            ("No", "\"No\""),
            ("2024-01-01", "\"2024-01-01\""),
            ("1.5", "\"1.5\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("# x", "\"# x\""),
            ("[[Note]]", "\"[[Note]]\""),
            ("say \"hi\"\n", "\"say \\\"hi\\\"\\n\""),
            ("a\u{2028}b", "\"a\\u2028b\""),
            ("-", "\"-\""),
            ("end ", "\"end \""),
        ] {
            assert_eq!(string(text), quoted);
        }
    }

    #[test]
    fn mappings_nest() {
        let value = json!({"title":"A","tags":["x","y: z"],"done":false,"num":3,"none":null,"e":[],
            "o":{"a":1,"b":{"c":[true]}},"list":[{"k":1,"l":"m"},[1,2]]});
        assert_eq!(
            mapping(value.as_object().unwrap()),
            "title: A\ntags:\n  - x\n  - \"y: z\"\ndone: false\nnum: 3\nnone: null\ne: []\no:\n  a: 1\n  b:\n    c:\n      - true\nlist:\n  - k: 1\n    l: m\n  - [1, 2]\n"
        );
    }
}
