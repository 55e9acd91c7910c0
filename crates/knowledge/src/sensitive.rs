//! Finds what a person may not want passed on: health, money, relations, commitments. Used on results before an agent
//! sees them and on chunks before they would leave the machine. Says which category, never which words.

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A kind of sensitive content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Illness, medication, therapy.
    Health,
    /// Who owes whom.
    FinancialDebt,
    /// What was paid and spent.
    Financial,
    /// People and relations.
    Relations,
    /// Promises and deadlines.
    Commitment,
}

/// How strictly words are matched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Matching {
    /// Whole words; a currency sign counts only before or after a number.
    #[default]
    Words,
    /// Anywhere, as the first version of these tools did: "repaid" counts, and so does every `$`.
    Strict,
}

/// Finds sensitive content.
#[derive(Debug)]
pub struct Guard {
    rules: Vec<(Category, Regex)>,
    sections: Vec<String>,
}

const HEALTH: &str = r"medication|medicine|medikament|therapy|therapist|therapie|diagnos(?:is|ed|e)|prescription|depress(?:ion|ed)|anxiety|#mentalhealth|#physicalhealth";
const DEBT: &str = r"owe|owes|owed|owing|debt|debts|loan|loans|schulden|iou";
const MONEY: &str = r"paid|spent|salary|invoice|mortgage|payment";
const RELATIONS: &str = r"#relations";
const COMMITMENT: &str = r"promised|i will pay|deadline|committed to|due (?:on|by)";
/// A currency sign with a number, or a number with a currency.
const AMOUNT: &str = r"[$€£¥₹]\s?\d|\d\s?(?:[$€£¥₹]|\b(?:usd|eur|gbp|inr|jpy)\b)";

impl Guard {
    /// `sections` are headings whose content counts as relations.
    pub fn new(matching: Matching, sections: &[String]) -> Self {
        let bounded = |words: &str| match matching {
            // A hash is no letter, so there is no word boundary before it; it is its own.
            Matching::Words => format!(r"(?i)(?:^|[^\p{{L}}\p{{N}}_#])(?:{words})(?:$|[^\p{{L}}\p{{N}}_])"),
            Matching::Strict => format!("(?i){words}"),
        };
        let money = match matching {
            Matching::Words => format!("(?:{})|(?i:{AMOUNT})", bounded(MONEY)),
            Matching::Strict => format!(r"(?i){MONEY}|\$"),
        };
        let rules = [
            (Category::Health, bounded(HEALTH)),
            (Category::FinancialDebt, bounded(DEBT)),
            (Category::Financial, money),
            (Category::Relations, bounded(RELATIONS)),
            (Category::Commitment, bounded(COMMITMENT)),
        ];
        let compiled = rules.into_iter().filter_map(|(category, rule)| Some((category, Regex::new(&rule).ok()?)));
        Self { rules: compiled.collect(), sections: sections.iter().map(|s| s.to_lowercase()).collect() }
    }

    /// Every category found in a text that stands under a section of a note with these tags.
    pub fn categories(&self, text: &str, section: Option<&str>, tags: &[String]) -> BTreeSet<Category> {
        let mut found: BTreeSet<Category> =
            self.rules.iter().filter(|(_, rule)| rule.is_match(text)).map(|(category, _)| *category).collect();
        for tag in tags {
            match tag.split('/').next().unwrap_or_default() {
                "mentalhealth" | "physicalhealth" => found.insert(Category::Health),
                "relations" => found.insert(Category::Relations),
                _ => false,
            };
        }
        let in_section = |name: &String| {
            section.is_some_and(|s| s.split(" > ").any(|part| part.trim_start_matches('#').eq_ignore_ascii_case(name)))
        };
        if self.sections.iter().any(in_section) {
            found.insert(Category::Relations);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(matching: Matching, text: &str) -> Vec<Category> {
        Guard::new(matching, &[]).categories(text, None, &[]).into_iter().collect()
    }

    #[test]
    fn whole_words_count_and_parts_of_words_do_not() {
        use Category::{Commitment, Financial, FinancialDebt, Health, Relations};
        for (text, categories) in [
            ("Anna owes me", vec![FinancialDebt]),
            ("the flower powered towel", vec![]),
            ("paid $20", vec![Financial]),
            ("costs 20 €", vec![Financial]),
            ("bash $HOME and $x", vec![]),
            ("my Therapy.", vec![Health]),
            ("note #mentalhealth", vec![Health]),
            ("#Relations", vec![Relations]),
            ("I promised to call", vec![Commitment]),
            ("unpaid bills were repaid", vec![]),
        ] {
            assert_eq!(found(Matching::Words, text), categories, "{text}");
        }
    }

    #[test]
    fn strict_matching_counts_parts_too() {
        assert_eq!(found(Matching::Strict, "repaid"), [Category::Financial]);
        assert_eq!(found(Matching::Strict, "$HOME"), [Category::Financial]);
    }

    #[test]
    fn tags_and_sections_count() {
        let guard = Guard::new(Matching::Words, &["Family".to_owned()]);
        assert!(guard.categories("x", None, &["mentalhealth/sleep".to_owned()]).contains(&Category::Health));
        assert!(guard.categories("x", Some("Day > family"), &[]).contains(&Category::Relations));
        assert!(guard.categories("x", Some("Day > families"), &[]).is_empty());
    }
}
