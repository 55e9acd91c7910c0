//! The tokenizer against the teacher's own, on texts of many kinds.

use toolyard_text::embedding::StaticEmbedder;

/// A text and its pieces, separated by tabs and spaces, as the teacher's tokenizer cuts it; words it does not know are
/// left out. Made by `scripts/distil/tokens.py`.
const CUTS: &str = include_str!("tokens.tsv");

#[test]
fn texts_of_many_kinds_are_cut_as_the_teacher_cuts_them() {
    let embedder = StaticEmbedder::shared();
    let mut texts = 0;
    for line in CUTS.lines() {
        let (text, wanted) = line.split_once('\t').expect("a tab");
        let mut pieces = Vec::new();
        embedder.tokenize(text, |row| pieces.push(embedder.piece(row).expect("a row of the table")));
        assert_eq!(pieces.join(" "), wanted, "{text:?}");
        texts += 1;
    }
    assert!(texts > 200, "{texts}");
}
