//! Tokenization into terms, in many scripts.

use super::*;
use proptest::prelude::*;

fn cut(rules: &Rules, text: &str, side: Side) -> Vec<String> {
    let mut found = Vec::new();
    rules.terms(text, side, |term, _| found.push(term.to_owned()));
    found
}

fn document(text: &str) -> Vec<String> {
    cut(&NOTES, text, Side::Document)
}

fn question(text: &str) -> Vec<String> {
    cut(&NOTES, text, Side::Question)
}

#[test]
fn words_are_folded_and_stemmed() {
    assert_eq!(
        document("The Runners' running, CAFÉS and naïve Anna's don't"),
        ["runner", "run", "cafe", "naiv", "anna"]
    );
    assert_eq!(question("café"), question("cafe\u{301}"));
    assert_eq!(cut(&MEMORIES, "She went camping", Side::Document), cut(&MEMORIES, "going to the camp", Side::Question));
    assert_eq!(cut(&TOOLS, "What's the user's name?", Side::Question), ["user", "nam"]);
}

#[test]
fn names_are_taken_apart_and_kept_whole() {
    assert_eq!(
        document("createFile mRNA BRCA1 IL-6 getHTTPResponse"),
        [
            "createfil",
            "creat",
            "file",
            "mrna",
            "m",
            "rna",
            "brca1",
            "brca",
            "1",
            "il",
            "6",
            "gethttprespons",
            "http",
            "respons"
        ]
    );
    assert_eq!(cut(&TOOLS, "vault.createFile", Side::Document), ["vault", "createfil", "creat", "fil"]);
    assert_eq!(cut(&TOOLS, "getHTTPResponse2", Side::Document), ["gethttpresponse2", "http", "respons", "2"]);
    assert_eq!(cut(&TOOLS, "YouTube", Side::Document), ["youtub", "tub"]);
}

#[test]
fn scripts_without_spaces_are_found_by_any_part() {
    for (note, asked) in [
        ("私は黒い猫が好きです", "猫"),
        ("私は黒い猫が好きです", "黒い猫"),
        ("今日の天気は晴れ", "天気"),
        ("한국어 문서를 검색합니다", "검색"),
        ("ภาษาไทยไม่มีช่องว่าง", "ไทย"),
        ("मौसम की जानकारी", "मौसम"),
        ("偏好Rust后端", "rust"),
    ] {
        for rules in [NOTES, MEMORIES, TOOLS] {
            let terms = cut(&rules, note, Side::Document);
            let asked = cut(&rules, asked, Side::Question);
            assert!(asked.iter().all(|term| terms.contains(term)), "{asked:?} in {note}: {terms:?}");
        }
    }
    assert_eq!(question("हिन्दी"), ["हिन्दी"]);
    assert_eq!(question("天気API"), ["天気", "api"]);
    assert_eq!(question("用户偏好"), ["用户", "户偏", "偏好"]);
    assert_eq!(question("猫"), ["猫"]);
}

#[test]
fn a_word_is_found_however_its_letters_are_pointed_joined_or_accented() {
    for (note, asked) in [
        ("مُحَمَّد كَتَبَ", "محمد"),
        ("أحمد وإبراهيم وآدم", "احمد"),
        ("كتـــاب", "كتاب"),
        ("کتاب فارسی", "كتاب"),
        ("می\u{200c}خواهم", "میخواهم"),
        ("שָׁלוֹם", "שלום"),
        ("Ο ΔΡΟΜΟΣ της πόλης", "δρόμος"),
        ("Καλημέρα", "καλημερα"),
        ("Ёлка", "елка"),
        ("за́мок", "замок"),
        ("co\u{ad}opera\u{ad}tion", "cooperation"),
        ("क्\u{200d}ष", "क्ष"),
        ("l'école", "école"),
        ("l’École d’été", "ecole"),
        ("jusqu'à l'Allemagne", "allemagne"),
        ("dell’acqua", "acqua"),
        ("I mustn’t go", "mustn't"),
        ("Anna’s", "anna"),
        ("une idée", "l'idée"),
    ] {
        let terms = document(note);
        assert!(question(asked).iter().any(|term| terms.contains(term)), "{asked} in {note}: {terms:?}");
    }
    for (one, other) in [("мой", "мои"), ("मौसम", "मसम"), ("їжа", "іжа"), ("سؤال", "سوال")]
    {
        assert_ne!(question(one), question(other), "these are letters, not accents");
    }
    assert_eq!(question("l'école"), ["l'ecol", "ecol"]);
    assert_eq!(question("mustn't o'clock rock'n'roll"), ["mustn't", "o'clock", "rock'n'rol"]);
    assert_eq!(document("sala\u{200b}mandra"), ["sala", "mandra"], "a space is a space, seen or not");
}

proptest! {
    #[test]
    fn whatever_is_asked_in_the_words_of_a_text_is_found(text in "\\PC{0,80}") {
        for rules in [NOTES, MEMORIES, TOOLS] {
            let terms = cut(&rules, &text, Side::Document);
            for term in cut(&rules, &text, Side::Question) {
                prop_assert!(!term.is_empty() && !term.contains(char::is_whitespace), "{term:?}");
                prop_assert!(terms.contains(&term), "{term:?} in {terms:?}");
            }
        }
    }
}
