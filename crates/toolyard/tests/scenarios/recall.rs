//! `toolyard eval memory`.

use crate::harness::Place;

#[test]
fn recall_of_conversations_is_measured() {
    let place = Place::new();
    let (turns, questions) = (place.vault.join("t.jsonl"), place.vault.join("q.jsonl"));
    let lines = [
        r#"{"conv":"c1","session":1,"session_time":"1:56 pm on 8 May, 2023","id":"D1:1","speaker":"Ann","text":"I adopted a grey parrot yesterday."}"#,
        r#"{"conv":"c1","session":1,"session_time":"1:56 pm on 8 May, 2023","id":"D1:2","speaker":"Bob","text":"The weather is fine here."}"#,
        r#"{"conv":"c2","session":1,"id":"D1:1","speaker":"Cid","text":"My parrot is green."}"#,
    ];
    std::fs::write(&turns, lines.join("\n")).unwrap();
    let asked = r#"{"conv":"c1","qid":"q0","category":2,"category_name":"temporal","question":"When did Ann adopt a parrot?","answer":"7 May 2023","evidence":["D1:1"],"evidence_unresolved":[]}"#;
    std::fs::write(&questions, format!("{asked}\n")).unwrap();
    let args =
        ["eval", "memory", "--turns", turns.to_str().unwrap(), "--questions", questions.to_str().unwrap(), "--json"];
    let report = place.run(&args).json();
    for key in ["recall5", "recall10", "recall20", "mrr"] {
        assert_eq!(report[key], 1.0, "{key}: {report}");
        assert_eq!(report["by_category"]["temporal"][key], 1.0, "{report}");
        assert_eq!(report["without_adversarial"][key], 1.0, "{report}");
        assert_eq!(report["baseline"][key], 1.0, "{report}");
    }
    assert_eq!(report["interval"]["recall5"], serde_json::json!([1.0, 1.0]), "{report}");
    assert!(report["p50_ms"].is_number() && report["p99_ms"].is_number());
    std::fs::write(&questions, asked.replace("D1:1", "D9:9")).unwrap();
    let bad = place.run(&args);
    assert_eq!((bad.code, bad.error_code().as_str()), (2, "USAGE_ERROR"), "{bad:?}");
}
