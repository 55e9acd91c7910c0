//! Semantic similarity of the static embedding.

use toolyard_text::embedding::{DocumentCounts, StaticEmbedder, Vector, cosine};

fn vector(text: &str) -> Vector {
    StaticEmbedder::shared().embed(text, None).expect("has known words")
}

#[test]
fn a_text_is_nearer_to_its_paraphrase_than_to_another_text() {
    for (text, near, far) in [
        ("Will it rain tomorrow?", "weather forecast", "convert currencies"),
        ("book a plane ticket to Rome", "search flights and airfares", "create a spreadsheet"),
        ("translate this into French", "language translation", "send an e-mail"),
        ("remove a file", "delete documents from disk", "play a song"),
        ("symptoms of diabetes", "blood sugar disease", "football results"),
        ("calculate my mortgage payments", "home loan calculator", "cat pictures"),
    ] {
        let (near_by, far_off) = (cosine(&vector(text), &vector(near)), cosine(&vector(text), &vector(far)));
        assert!(near_by > far_off + 0.1, "{text:?}: {near:?} {near_by}, {far:?} {far_off}");
    }
}

#[test]
fn vectors_have_unit_length_and_do_not_depend_on_case_or_accents() {
    let plain = vector("a cafe in Sao Paulo");
    assert!((cosine(&plain, &plain) - 1.0).abs() < 1e-5);
    assert!((cosine(&plain, &vector("A Café in São Paulo")) - 1.0).abs() < 1e-5);
}

#[test]
fn a_text_without_known_words_has_no_vector() {
    // The model was trained on English. In other scripts it knows only single letters, which carry no meaning, so
    // full-text search must find such texts.
    for text in
        ["", "   ", "\u{16A0}\u{16A1}", "\u{0}", "查询天气", "मौसम", "привет", "こんにちは", "안녕하세요", "مرحبا"]
    {
        assert!(StaticEmbedder::shared().embed(text, None).is_none(), "{text:?}");
    }
}

#[test]
fn words_that_all_texts_of_a_collection_have_count_less() {
    let embedder = StaticEmbedder::shared();
    let texts = ["recipe for soup", "recipe for bread", "recipe for fish", "recipe for cake"];
    let mut counts = DocumentCounts::new();
    texts.iter().for_each(|text| counts.add(embedder, text));
    let weights = counts.weights();
    let likeness = |weights| {
        let embed = |text| embedder.embed(text, weights).expect("known");
        cosine(&embed(texts[0]), &embed(texts[1]))
    };
    assert!(likeness(Some(&weights)) < likeness(None));
    let mut again = counts.clone();
    again.add(embedder, "something else");
    again.remove(embedder, "something else");
    assert_eq!(again.weights(), weights);
}
