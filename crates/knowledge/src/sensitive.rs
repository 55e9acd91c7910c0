//! Detects sensitive content: health, money, relations, commitments, secrets. Used on results before an agent sees
//! them, and on chunks before they are sent to another machine. Reports the category, never the words.

mod secrets;

use regex::Regex;
use schemars::JsonSchema;
use secrets::SecretFinder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use unicode_normalization::UnicodeNormalization;

/// A kind of sensitive content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Illness, medication, therapy.
    Health,
    /// Text about debts.
    FinancialDebt,
    /// Payments and expenses.
    Financial,
    /// People and relations.
    Relations,
    /// Promises and deadlines.
    Commitment,
    /// Keys, tokens, passwords, card numbers.
    Secrets,
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

/// Detects sensitive content.
#[derive(Debug)]
pub struct Guard {
    rules: Vec<Rule>,
    secrets: SecretFinder,
    sections: Vec<String>,
}

#[derive(Debug)]
struct Rule {
    category: Category,
    words: Regex,
    /// The pattern for code, if it differs.
    in_code: Option<Regex>,
}

/// The text to scan: everything of a chunk that a reader would see.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScanInput<'a> {
    /// The note's title, or a fact's key.
    pub title: &'a str,
    /// The headings above the chunk.
    pub section: Option<&'a str>,
    /// The text of the chunk.
    pub text: &'a str,
    /// Code, comments and properties that may be shown with it.
    pub opaque: &'a str,
    /// The note's tags.
    pub tags: &'a [String],
}

// A word matches with its endings: "payments" matches "payment".
const HEALTH: &str = r"medicat(?:ions?|ed)|medicines?|medikament(?:en?|s)?|therap(?:y|ies|ists?|ien?)|diagnos(?:is|es|ed|en?|ing)|prescri(?:ptions?|bed)|depress(?:ions?|ed)|anxiet(?:y|ies)|#?(?:mental|physical)[ _-]?health";
const DEBT: &str = r"owe|owes|owed|owing|debts?|debtors?|indebted|loan(?:s|ed)?|schulden|ious?";
const MONEY: &str = r"paid|spent|salar(?:y|ies)|invoic(?:es?|ed|ing)|mortgage[sd]?|payments?";
const RELATIONS: &str = r"#relations";
const COMMITMENT: &str = r"promised|i promise|i will pay|deadlines?|committed to|due (?:on|by)";
/// A number with a currency, or a currency sign with a number.
const AMOUNT: &str = r"\d\s?(?:[$€£¥₹]|\b(?:usd|eur|gbp|inr|jpy)\b)|[$€£¥₹]\s?\d";
/// The same in code, where `$1` is an argument and not an amount.
const AMOUNT_IN_CODE: &str = r"\d\s?(?:[€£¥₹]|\b(?:usd|eur|gbp|inr|jpy)\b)|[€£¥₹]\s?\d|\$\s?\d[\d.,]*\d";

impl Guard {
    /// `sections` are headings whose content belongs to the category `relations`.
    pub fn new(matching: Matching, sections: &[String]) -> Self {
        let rules = [
            (Category::Health, HEALTH),
            (Category::FinancialDebt, DEBT),
            (Category::Financial, MONEY),
            (Category::Relations, RELATIONS),
            (Category::Commitment, COMMITMENT),
        ];
        let compiled = rules.into_iter().filter_map(|(category, words)| {
            // An underscore separates words here: `therapy_date` contains `therapy`.
            let whole = format!(r"(?:^|[^\p{{L}}\p{{N}}])(?:{words})(?:$|[^\p{{L}}\p{{N}}])");
            let (pattern, in_code) = match (matching, category) {
                (Matching::Words, Category::Financial) => {
                    (format!("{whole}|{AMOUNT}"), Some(format!("{whole}|{AMOUNT_IN_CODE}")))
                }
                (Matching::Words, _) => (whole, None),
                (Matching::Strict, Category::Financial) => (format!(r"{words}|\$"), None),
                (Matching::Strict, _) => (words.to_owned(), None),
            };
            let rule = |pattern: String| Regex::new(&format!("(?i){pattern}")).ok();
            Some(Rule { category, words: rule(pattern)?, in_code: in_code.and_then(rule) })
        });
        Self {
            rules: compiled.collect(),
            secrets: SecretFinder::new(),
            sections: sections.iter().map(|name| plain_name(name)).collect(),
        }
    }

    /// The categories found in a text under a section of a note with these tags.
    pub fn categories(&self, text: &str, section: Option<&str>, tags: &[String]) -> BTreeSet<Category> {
        self.categories_of(ScanInput { text, section, tags, ..ScanInput::default() })
    }

    /// The categories found in any part of the material.
    pub fn categories_of(&self, material: ScanInput<'_>) -> BTreeSet<Category> {
        let section = material.section.unwrap_or_default();
        // Each part of a nested tag counts as a tag: `life/relations` is about relations.
        let tags: String =
            material.tags.iter().flat_map(|tag| tag.split('/')).map(|part| format!("#{part} ")).collect();
        let prose = [material.title, section, material.text, &tags];
        let found = |rule: &&Rule| {
            prose.iter().any(|text| rule.words.is_match(text))
                || rule.in_code.as_ref().unwrap_or(&rule.words).is_match(material.opaque)
        };
        let mut found: BTreeSet<Category> = self.rules.iter().filter(found).map(|rule| rule.category).collect();
        if self.is_listed(section) {
            found.insert(Category::Relations);
        }
        if [material.title, section, material.text, material.opaque].iter().any(|text| self.secrets.finds(text)) {
            found.insert(Category::Secrets);
        }
        found
    }

    /// Whether one of the headings, or one of the tags that start a section of a date note, is in the list.
    fn is_listed(&self, section: &str) -> bool {
        let listed = |name: &str| self.sections.contains(&plain_name(name));
        !self.sections.is_empty()
            && section
                .split(" > ")
                .any(|part| listed(part) || (part.starts_with('#') && part.split_whitespace().any(listed)))
    }
}

/// A heading in the form in which names are compared.
fn plain_name(name: &str) -> String {
    name.trim().trim_start_matches('#').trim_start().to_lowercase().nfc().collect()
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
    fn words_count_with_their_endings_and_as_tags() {
        use Category::{Commitment, Financial, FinancialDebt, Health, Relations};
        for (words, category) in [
            (
                "medications medicated medicines Medikamente therapies therapists Therapien diagnoses prescriptions",
                Health,
            ),
            ("depressions anxieties #therapy #medication mental-health #mental_health", Health),
            ("debts debtors loaned indebted IOUs #debt #debts", FinancialDebt),
            ("payments invoices invoiced salaries mortgages #payment", Financial),
            ("deadlines #deadline", Commitment),
        ] {
            for word in words.split(' ') {
                assert_eq!(found(Matching::Words, &format!("about {word}, today")), [category], "{word}");
            }
        }
        for text in ["the prepaid flower", "a therapod", "sedated", "public relations", "medical", "promising"] {
            assert_eq!(found(Matching::Words, text), [], "{text}");
        }
        let guard = Guard::new(Matching::Words, &[]);
        for (tag, category) in [
            ("debt", FinancialDebt),
            ("money/debts", FinancialDebt),
            ("therapy", Health),
            ("my_medication", Health),
            ("mentalhealth/sleep", Health),
            ("life/relations", Relations),
        ] {
            let categories: Vec<Category> = guard.categories("x", None, &[tag.to_owned()]).into_iter().collect();
            assert_eq!(categories, [category], "{tag}");
        }
        assert!(guard.categories("x", None, &["indebt".to_owned(), "public-relations".to_owned()]).is_empty());
    }

    #[test]
    fn every_part_that_may_be_seen_is_looked_through() {
        let guard = Guard::new(Matching::Words, &[]);
        let plain = ScanInput { title: "A day", section: Some("Morning"), text: "sunny", ..ScanInput::default() };
        assert!(guard.categories_of(plain).is_empty());
        let debt = BTreeSet::from([Category::FinancialDebt]);
        for material in [
            ScanInput { title: "debt-to-anna", ..plain },
            ScanInput { title: "debt_to_anna", ..plain },
            ScanInput { section: Some("Day > Debts"), ..plain },
            ScanInput { opaque: "%% I owe Bob 500 %%", ..plain },
        ] {
            assert_eq!(guard.categories_of(material), debt, "{material:?}");
        }
        let opaque = |opaque| guard.categories_of(ScanInput { opaque, ..plain });
        assert_eq!(opaque("medication: x"), BTreeSet::from([Category::Health]));
        assert_eq!(opaque("price: $20"), BTreeSet::from([Category::Financial]));
        assert!(opaque("echo $1 ${2} $x").is_empty(), "an argument is no amount");
    }

    #[test]
    fn sections_are_told_in_any_script() {
        let guard = Guard::new(Matching::Words, &["Family".to_owned(), "Ärzte".to_owned(), "#ΦΊΛΟΙ".to_owned()]);
        for section in ["Day > family", "FAMILY", "Ärzte", "ärzte > Montag", "A\u{308}rzte", "#Φίλοι", "#Day #family"]
        {
            assert_eq!(guard.categories("x", Some(section), &[]), BTreeSet::from([Category::Relations]), "{section}");
        }
        assert!(guard.categories("x", Some("Day > families"), &[]).is_empty());
    }
}
