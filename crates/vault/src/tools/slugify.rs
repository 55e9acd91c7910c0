//! `util.slugifyTitle`: turns a title into a file name or anchor. Letters of every script are kept.

use super::{Args, Run, Tool, answer, parse, reads};
use crate::{
    error::{VaultResult, validation},
    view::{StopCondition, View},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::Output;
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// Default maximum number of characters.
const DEFAULT_LENGTH: usize = 80;
/// Largest value of `maxLength`.
const MAX_LENGTH: usize = 200;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// The title.
    title: String,
    /// At most this many characters (default 80, at most 200).
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    max_length: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    slug: String,
}

pub(super) const TOOL: Tool = Tool {
    name: "util.slugifyTitle",
    define: || {
        reads::<Input, Data>(
            "Slugify title",
            "Turns a title into a slug: lower case, words joined by hyphens, accents dropped, letters of every script kept.",
        ).permissions(&[]).requires(&[])
    },
    run: Run::Read(run),
};

fn run(_: &dyn View, args: Args, _: &StopCondition) -> VaultResult<Output> {
    let input: Input = parse(args)?;
    let length = input.max_length.unwrap_or(DEFAULT_LENGTH);
    if !(1..=MAX_LENGTH).contains(&length) {
        return Err(validation(format!("maxLength is 1 to {MAX_LENGTH}")));
    }
    let slug = slugify(&input.title, length);
    if slug.is_empty() {
        return Err(validation("the title has no letter or digit to make a slug of"));
    }
    answer(&Data { slug: slug.clone() }, slug)
}

fn slugify(title: &str, length: usize) -> String {
    let mut slug = String::new();
    let mut base = ' ';
    for c in title.nfkd().flat_map(char::to_lowercase) {
        if is_combining_mark(c) {
            // Accents of the alphabets that have them as decoration go; marks of other scripts carry the vowel.
            if !matches!(base, '\u{0}'..='\u{52f}') {
                slug.push(c);
            }
            continue;
        }
        base = c;
        if c.is_alphanumeric() {
            slug.push(c);
        } else if (c.is_whitespace() || matches!(c, '-' | '_' | '/' | '–' | '—'))
            && !slug.is_empty()
            && !slug.ends_with('-')
        {
            slug.push('-');
        }
    }
    let composed: String = slug.nfc().take(length).collect();
    composed.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_every_script_stay() {
        for (title, slug) in [
            ("Hello, World!", "hello-world"),
            ("Crème Brûlée – 2024", "creme-brulee-2024"),
            ("日本語 のノート", "日本語-のノート"),
            ("Привет мир", "привет-мир"),
            ("ﬁne ①", "fine-1"),
            ("a -- b__c", "a-b-c"),
            ("한국어", "한국어"),
            ("が", "が"),
            ("---", ""),
        ] {
            assert_eq!(slugify(title, 80), slug, "{title}");
        }
        assert_eq!(slugify("abc def", 4), "abc");
    }
}
