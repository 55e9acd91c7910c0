//! The four tools: their envelopes, every row of the error matrix by its real cause, filters and explanations.

use crate::support::{Lab, Trigrams, code, files};
use serde_json::{Value, json};
use std::sync::Arc;
use toolyard_knowledge::{KnowledgeConfig, config::SensitiveConfig, sensitive::Category};

async fn small_library() -> Lab {
    let lab = Lab::new();
    lab.note("Projects/Bike.md", "---\ntags: [bike, hobby/outdoor]\naliases: [Velo]\n---\n# Repair\nThe chain of the blue bicycle is rusty.\n\n# Costs\nNothing yet.\n");
    lab.note("Projects/Car.md", "The red car needs new tyres. See [[Bike]].\n");
    lab.note(
        "Journal/2024-03-05.md",
        "#DayInShort\nRode the bicycle to work.\n\n#Evening\nRead a book about whales.\n",
    );
    lab.note("Journal/2024-04-01.md", "The bicycle was stolen.\n");
    lab.note("日記/猫.md", "私は黒い猫が好きです。今日は天気がいい。\n");
    lab.note("Hindi.md", "आज मौसम बहुत अच्छा है और मैं खुश हूँ।\n");
    lab.note("Code.md", "How to list files:\n\n```sh\nfind . -name quuxfile\n```\n");
    lab.note("Empty.md", "\n");
    lab.index("full").await;
    lab
}

#[toolyard_shows::shows("000-1-10", "000-2-04", "000-2-09", "000-2-10")]
#[tokio::test(flavor = "multi_thread")]
async fn search_answers_in_the_envelope_with_section_date_and_tags() {
    let lab = small_library().await;
    let answer = lab.search("rusty chain of the bicycle").await;
    assert_eq!((answer["status"].as_str(), &answer["error"]), (Some("healthy"), &Value::Null), "{answer:#}");
    let first = &answer["data"]["results"][0];
    assert_eq!(first["source_file"], "Projects/Bike.md");
    assert_eq!(first["section"], "Repair");
    assert_eq!(first["tags"], json!(["bike", "hobby/outdoor"]));
    assert_eq!((first["date"].is_null(), first["chunk_index"].as_u64()), (true, Some(0)));
    assert!(first["snippet"].as_str().unwrap().contains("blue bicycle"));
    let range: Vec<usize> =
        first["byte_range"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    let text = std::fs::read_to_string(lab.path("Projects/Bike.md")).unwrap();
    assert_eq!(&text[range[0]..range[1]], "# Repair\nThe chain of the blue bicycle is rusty.");
    let score = first["score"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&score));
    let meta = &answer["meta"];
    assert!(meta["query_time_ms"].as_f64().unwrap() > 0.0 && meta["chunks_scanned"].as_u64().unwrap() > 5);
    assert!(!meta["index_version"].as_str().unwrap().is_empty());
    assert!(meta["vault_mtime"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_language_and_code_is_found() {
    let lab = small_library().await;
    assert_eq!(lab.found("黒い猫").await[0], "日記/猫.md");
    assert_eq!(lab.found("天気").await[0], "日記/猫.md");
    assert_eq!(lab.found("मौसम").await[0], "Hindi.md");
    let answer = lab.search("quuxfile").await;
    assert_eq!(files(&answer)[0], "Code.md");
    let first = &answer["data"]["results"][0];
    assert!(!first["chunk_text"].as_str().unwrap().contains("quuxfile"), "code stays out of chunk_text");
    assert!(first["snippet"].as_str().unwrap().contains("quuxfile"), "and is shown where it is the reason");
    assert_eq!(lab.found("Velo").await[0], "Projects/Bike.md", "aliases count");
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_narrow_by_folder_date_and_tag() {
    let lab = small_library().await;
    let search = |args: Value| {
        let mut all = json!({"query": "bicycle", "max_results": 50});
        all.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
        lab.call("obsidian_rag_search", all)
    };
    let sorted = |answer: &Value| {
        let mut f = files(answer);
        f.sort();
        f.dedup();
        f
    };
    let answer = search(json!({"directory_filter": ["Journal"]})).await;
    assert_eq!(sorted(&answer), ["Journal/2024-03-05.md", "Journal/2024-04-01.md"]);
    let answer =
        search(json!({"directory_filter": ["Journal/"], "date_range": {"from": "2024-03-01", "to": "2024-03-31"}}))
            .await;
    assert_eq!(sorted(&answer), ["Journal/2024-03-05.md"]);
    assert_eq!(answer["data"]["results"][0]["date"], "2024-03-05");
    let answer = search(json!({"date_range": {"to": "2024-04-01T23:00:00Z"}})).await;
    assert_eq!(sorted(&answer), ["Journal/2024-03-05.md", "Journal/2024-04-01.md"]);
    let answer = search(json!({"tags": ["#Hobby"]})).await;
    assert_eq!(sorted(&answer), ["Projects/Bike.md"]);
    let answer = search(json!({"directory_filter": ["Nowhere"]})).await;
    assert_eq!(answer["status"], "healthy");
    assert!(files(&answer).is_empty());
}

/// Errors that a schema cannot express are reported in the envelope, like every other problem of these tools.
#[toolyard_shows::shows("000-2-01")]
#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_mean_nothing_are_refused_with_what_to_do() {
    let lab = small_library().await;
    for (args, place) in [
        (json!({"query": "x", "date_range": {"from": "soon"}}), "/date_range/from"),
        (json!({"query": "x", "date_range": {"to": "2024-02-30"}}), "/date_range/to"),
        (json!({"query": "x", "date_range": {"from": "2024-05-02", "to": "2024-05-01"}}), "/date_range: from is after"),
        (json!({"query": "x", "tags": ["fine", "not a tag"]}), "/tags/1"),
    ] {
        let answer = lab.call("obsidian_rag_search", args).await;
        assert_eq!((answer["status"].as_str(), code(&answer)), (Some("unavailable"), "VALIDATION_ERROR"), "{answer}");
        assert_eq!((&answer["data"], &answer["error"]["recoverable"]), (&Value::Null, &json!(true)));
        assert!(answer["error"]["message"].as_str().unwrap().contains(place), "{answer}");
        assert!(!answer["error"]["suggestion"].as_str().unwrap().is_empty());
    }
    let answer = lab.call("obsidian_rag_memory_store", json!({"key": " ", "value": "v", "source": "a.md"})).await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("unavailable"), "VALIDATION_ERROR"), "{answer}");
    // Violations of the schema are reported in the same way.
    for (tool, args, place) in [
        ("obsidian_rag_search", json!({"query": "x", "max_results": 0}), "/max_results"),
        ("obsidian_rag_search", json!({"query": ""}), "/query"),
        ("obsidian_rag_search", json!({"query": 5}), "/query"),
        ("obsidian_rag_search", json!({}), "/query"),
        ("obsidian_rag_search", json!({"query": "x", "no_such": 1}), "no_such"),
        ("obsidian_rag_index", json!({"mode": "sideways"}), "/mode"),
        ("obsidian_rag_status", json!({"files": 7}), "/files"),
        ("obsidian_rag_memory_store", json!({"key": "k"}), "/value"),
    ] {
        let answer = lab.call(tool, args).await;
        assert_eq!((answer["status"].as_str(), code(&answer)), (Some("unavailable"), "VALIDATION_ERROR"), "{answer}");
        assert_eq!((&answer["data"], &answer["error"]["recoverable"]), (&Value::Null, &json!(true)));
        assert!(answer["error"]["message"].as_str().unwrap().contains(place), "{answer}");
        assert!(answer["meta"]["vault_mtime"].is_string(), "{answer}");
    }
    let one_day = json!({"query": "bicycle", "date_range": {"from": "2024-03-05", "to": "2024-03-05"}});
    assert_eq!(files(&lab.call("obsidian_rag_search", one_day).await), ["Journal/2024-03-05.md"; 2]);
}

/// `é` may be one character on disk and two in a query, or the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn filters_mean_the_same_name_in_both_spellings_of_a_letter() {
    let lab = Lab::new();
    lab.note("Cafe\u{301}/one.md", "bicycle #caf\u{e9}");
    lab.note("Caf\u{e9}/two.md", "bicycle #cafe\u{301}");
    lab.note("Other/three.md", "bicycle");
    lab.index("full").await;
    for spelled in ["Caf\u{e9}", "Cafe\u{301}"] {
        for filter in [json!({"directory_filter": [spelled]}), json!({"tags": [spelled]})] {
            let mut args = filter.clone();
            args["query"] = "bicycle".into();
            let mut found = files(&lab.call("obsidian_rag_search", args).await);
            found.sort();
            assert_eq!(found, ["Cafe\u{301}/one.md", "Caf\u{e9}/two.md"], "{filter}");
        }
    }
    let args = json!({"query": "bicycle", "directory_filter": ["Caf\u{e9}/one.md"]});
    assert_eq!(files(&lab.call("obsidian_rag_search", args).await), ["Cafe\u{301}/one.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_note_is_called_headed_and_linked_to_is_found() {
    let lab = Lab::with(KnowledgeConfig::default(), None);
    lab.note("Wifi password.md", "");
    lab.note("Alias.md", "---\naliases: [Zeppelin]\n---\n");
    lab.note("Headings.md", "## Blue bicycle\n\n## Red car\ntext\n");
    lab.note("Linked.md", "Lunch with [[Brunhilde|my boss]], see [this](https://example.org/quokka).\n");
    lab.note("Inline.md", "Returns `Vec<Wombat>` or <https://example.org/echidna>.\n");
    let answer = lab.index("full").await;
    assert_eq!(answer["data"]["indexed_files"], 4, "an empty note is found and stays empty");
    for (query, file) in [
        ("wifi password", "Wifi password.md"),
        ("zeppelin", "Alias.md"),
        ("bicycle", "Headings.md"),
        ("Brunhilde", "Linked.md"),
        ("quokka", "Linked.md"),
        ("wombat", "Inline.md"),
        ("echidna", "Inline.md"),
    ] {
        assert_eq!(lab.found(query).await, [file], "{query}");
    }
    let found = lab.search("wifi password").await;
    assert_eq!(found["data"]["results"][0]["chunk_text"], "Wifi password");
    let status = lab.call("obsidian_rag_status", json!({"files": "empty"})).await;
    assert_eq!(status["data"]["file_list"]["files"][0]["path"], "Wifi password.md");
}

/// A name that is not valid UTF-8 cannot be a path, but the note is listed as failed.
#[tokio::test(flavor = "multi_thread")]
async fn notes_with_unreadable_names_are_listed_as_failed() {
    use std::os::unix::ffi::OsStrExt;
    let lab = small_library().await;
    for name in [&b"caf\xe9.md"[..], b"caf\xe9.png"] {
        std::fs::write(lab.path("").join(std::ffi::OsStr::from_bytes(name)), "latin").unwrap();
    }
    lab.index("sync").await;
    let status = lab.call("obsidian_rag_status", json!({"files": "failed"})).await;
    let listed = status["data"]["file_list"]["files"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{status:#}");
    assert_eq!(listed[0]["path"], "caf\u{fffd}.md");
    assert!(listed[0]["reason"].as_str().unwrap().contains("not UTF-8"), "{status:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn snippets_show_where_words_stand_whatever_comes_before_them() {
    let lab = Lab::new();
    let filler = "今日は天気がとてもいいです。".repeat(60);
    lab.note("a.md", format!("{filler}倉庫の鍵は青い箱の中にある。{filler}"));
    lab.index("full").await;
    let answer = lab.search("倉庫の鍵").await;
    let snippet = answer["data"]["results"][0]["snippet"].as_str().unwrap();
    assert!(snippet.contains("倉庫の鍵"), "{snippet}");
    // Text is preferred to code, however many other words precede the match.
    let words: String = (0..200).map(|number| format!("w{number} ")).collect();
    lab.note("b.md", format!("{words}a yellow submarine\n\n```\nlet submarine = 1;\n```\n"));
    lab.index("sync").await;
    let answer = lab.search("submarine").await;
    let snippet = answer["data"]["results"][0]["snippet"].as_str().unwrap();
    assert!(snippet.contains("yellow submarine"), "{snippet}");
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_adds_up() {
    let lab = small_library().await;
    let answer = lab.call("obsidian_rag_search", json!({"query": "blue bicycle", "explain": true})).await;
    for result in answer["data"]["results"].as_array().unwrap() {
        let explain = &result["explain"];
        let sum: f64 = ["full_text", "vector", "links"]
            .iter()
            .map(|part| explain[part]["part"].as_f64().unwrap() * explain[part]["weight"].as_f64().unwrap())
            .sum();
        assert!((sum - result["score"].as_f64().unwrap()).abs() < 0.01, "{result:#}");
    }
    let first = &answer["data"]["results"][0]["explain"];
    assert_eq!(first["matched_terms"], json!(["blue", "bicycl"]));
}

/// Error matrix: no index, then an empty vault.
#[toolyard_shows::shows("000-2-03", "000-3-02")]
#[tokio::test(flavor = "multi_thread")]
async fn no_index_and_an_empty_vault_are_unavailable() {
    let lab = Lab::new();
    for _ in 0..2 {
        let answer = lab.search("anything").await;
        assert_eq!((answer["status"].as_str(), code(&answer)), (Some("unavailable"), "INDEX_NOT_FOUND"));
        assert_eq!((answer["error"]["recoverable"].as_bool(), &answer["data"]), (Some(true), &Value::Null));
        assert!(answer["error"]["suggestion"].as_str().unwrap().contains("obsidian_rag_index"));
        lab.index("full").await;
    }
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(status["data"]["plugin_health"], "unavailable");
}

/// Error matrix: path traversal, in every spelling, in both arguments that take paths.
#[toolyard_shows::shows("000-2-07", "000-3-04")]
#[tokio::test(flavor = "multi_thread")]
async fn paths_that_lead_out_are_security_violations() {
    let lab = small_library().await;
    std::os::unix::fs::symlink("/etc", lab.path("out")).unwrap();
    std::os::unix::fs::symlink("../..", lab.path("Projects/up")).unwrap();
    for path in [
        "../secret",
        "..",
        "a/../../b",
        "/etc/passwd",
        "//etc",
        "..\\..\\x",
        "%2e%2e/x",
        "..%2fx",
        "%252e%252e%252fx",
        "a/%2e%2e/%2e%2e/b",
        "C:\\x",
        "file:///etc/passwd",
        ".obsidian/app.json",
        ".git",
        "out/passwd",
        "out",
        "Projects/up/x",
        "a\u{0}b",
        "a/./b",
        "\u{2028}",
        ".. /x",
        "．．/etc/passwd",
        "%c0%ae%c0%ae/etc",
        "%2525252e%2525252e/x",
        "%u002e%u002e/x",
        "\u{200b}../x",
        "%2egit/config",
    ] {
        let answer =
            lab.call("obsidian_rag_search", json!({"query": "x", "directory_filter": ["Journal", path]})).await;
        assert_eq!((answer["status"].as_str(), code(&answer)), (Some("unavailable"), "SECURITY_VIOLATION"), "{path:?}");
        assert_eq!((answer["error"]["recoverable"].as_bool(), &answer["data"]), (Some(false), &Value::Null));
        let answer = lab.call("obsidian_rag_memory_store", json!({"key": "k", "value": "v", "source": path})).await;
        assert_eq!((answer["status"].as_str(), code(&answer)), (Some("unavailable"), "SECURITY_VIOLATION"), "{path:?}");
    }
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(status["data"]["facts"], 0);
}

/// Files hidden by the policy's path rules are neither found nor listed nor named.
#[tokio::test(flavor = "multi_thread")]
async fn the_callers_path_rules_hold_for_results() {
    let lab = small_library().await;
    let policy = json!({"sandbox": {"denyGlobs": ["Journal/**"]}});
    let lab = Lab::over(lab.dir, lab.index, KnowledgeConfig::default(), Some(Arc::new(Trigrams(64))), policy);
    let found = lab.call("obsidian_rag_search", json!({"query": "bicycle stolen", "max_results": 50})).await;
    assert!(files(&found).iter().all(|f| !f.starts_with("Journal/")), "{:?}", files(&found));
    assert!(!files(&found).is_empty());
    let answer =
        lab.call("obsidian_rag_search", json!({"query": "x", "directory_filter": ["Journal/2024-04-01.md"]})).await;
    assert_eq!(code(&answer), "SECURITY_VIOLATION");
    let status = lab.call("obsidian_rag_status", json!({"files": "all"})).await;
    assert!(!status.to_string().contains("Journal/"), "{status:#}");
}

/// Error matrix: sensitive content is flagged by default, and withheld where confirmation is required.
#[toolyard_shows::shows("000-3-05")]
#[tokio::test(flavor = "multi_thread")]
async fn sensitive_results_are_flagged_or_withheld() {
    let lab = small_library().await;
    lab.note("Money.md", "# Debts\nAnna owes me 20 euros since May.\n");
    lab.index("sync").await;
    let answer = lab.search("what does Anna owe").await;
    assert_eq!(answer["data"]["sensitive_detected"], true);
    let suggestion = &answer["data"]["memory_suggestion"];
    assert_eq!((suggestion["key"].as_str(), suggestion["source"].as_str()), (Some("money-debts"), Some("Money.md")));
    assert!(suggestion["value"].as_str().unwrap().contains("owes me 20 euros"));
    assert_eq!(
        lab.search("rusty chain").await["data"]["sensitive_detected"],
        true,
        "the answer has five results, and one is about debts"
    );

    let sensitive =
        SensitiveConfig { require_confirmation_for: vec![Category::FinancialDebt], ..SensitiveConfig::default() };
    let config = KnowledgeConfig { sensitive, ..KnowledgeConfig::default() };
    let lab = lab.restarted(config, Some(Arc::new(Trigrams(64))));
    let asked = json!({"query": "what does Anna owe", "max_results": 1});
    let answer = lab.call("obsidian_rag_search", asked.clone()).await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "SENSITIVE_FILTERED"));
    assert_eq!(answer["error"]["recoverable"], true);
    assert_eq!(
        (answer["data"]["results"].as_array().unwrap().len(), answer["data"]["withheld_count"].as_u64()),
        (0, Some(1))
    );
    assert!(!answer.to_string().contains("20 euros"), "nothing of it shows: {answer}");
    let mut confirmed = asked;
    confirmed["confirm_sensitive"] = true.into();
    assert_eq!(files(&lab.call("obsidian_rag_search", confirmed).await), ["Money.md"]);
}

/// Secrets are withheld unless the user agreed; the other results are shown.
#[toolyard_shows::shows("000-3-05")]
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_withheld_by_default_and_the_rest_is_shown() {
    let lab = Lab::new();
    lab.note("Router.md", "The router stands in the hall.\n\nrouter password: kiwi7moon42\n");
    lab.note("Cable.md", "The router has a red cable.\n");
    lab.index("full").await;
    let answer = lab.search("router").await;
    assert_eq!((answer["status"].as_str(), code(&answer)), (Some("degraded"), "SENSITIVE_FILTERED"), "{answer:#}");
    assert_eq!((&answer["data"]["withheld_count"], &answer["data"]["sensitive_detected"]), (&json!(1), &json!(true)));
    assert_eq!(files(&answer), ["Cable.md"]);
    assert!(!answer.to_string().contains("kiwi7moon42"), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("secrets"), "{answer}");
    let confirmed = lab.call("obsidian_rag_search", json!({"query": "router", "confirm_sensitive": true})).await;
    let mut shown = files(&confirmed);
    shown.sort();
    assert_eq!(shown, ["Cable.md", "Router.md"]);
    assert!(confirmed["data"]["memory_suggestion"].is_null(), "a secret is not offered for remembering: {confirmed:#}");
}

/// Without a note, the time is that of the vault's folder.
#[toolyard_shows::shows("000-2-12")]
#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_the_vault_is_always_a_time() {
    let lab = Lab::new();
    for tool in ["obsidian_rag_status", "obsidian_rag_search"] {
        let args = if tool == "obsidian_rag_search" { json!({"query": "x"}) } else { json!({}) };
        let answer = lab.call(tool, args).await;
        let time: jiff::Timestamp = answer["meta"]["vault_mtime"].as_str().unwrap().parse().unwrap();
        assert!(time > jiff::Timestamp::UNIX_EPOCH, "{answer}");
    }
}

/// Everything that is shown is checked: comments, properties, titles, headings, tags, and a fact's key.
#[tokio::test(flavor = "multi_thread")]
async fn sensitive_content_is_noticed_wherever_it_stands() {
    let sensitive = SensitiveConfig {
        require_confirmation_for: vec![Category::FinancialDebt, Category::Health],
        ..SensitiveConfig::default()
    };
    let config = KnowledgeConfig { sensitive, ..KnowledgeConfig::default() };
    for (name, text, question) in [
        ("a.md", "A sunny day.\n\n%% I owe Bob 500 %%\n", "owe Bob"),
        ("a.md", "---\nmedication: sertraline\n---\nA sunny day.\n", "sertraline"),
        ("a.md", "A sunny day.\n\n```\ndebt = 500\n```\n", "sunny day"),
        ("My therapies.md", "A sunny day.\n", "sunny day"),
        ("a.md", "# Debts\nA sunny day.\n", "sunny day"),
        ("a.md", "A sunny day. #debt\n", "sunny day"),
        ("a.md", "---\ntags: [me/medication]\n---\nA sunny day.\n", "sunny day"),
    ] {
        let lab = Lab::with(config.clone(), Some(Arc::new(Trigrams(64))));
        lab.note(name, text);
        lab.index("full").await;
        let answer = lab.search(question).await;
        assert_eq!(code(&answer), "SENSITIVE_FILTERED", "{text}: {answer:#}");
        assert_eq!(answer["data"]["withheld_count"], 1);
        assert!(!answer["data"].to_string().contains("sunny"), "{answer:#}");
    }
    let lab = Lab::with(config, Some(Arc::new(Trigrams(64))));
    lab.note("a.md", "A sunny day.\n\n```sh\necho $1\n```\n");
    lab.index("full").await;
    assert_eq!(lab.search("sunny day").await["data"]["sensitive_detected"], false);
    lab.call("obsidian_rag_memory_store", json!({"key": "debt-to-anna", "value": "500", "source": "a.md"})).await;
    assert_eq!(code(&lab.search("what about anna's debt").await), "SENSITIVE_FILTERED");
}

#[tokio::test(flavor = "multi_thread")]
async fn remembered_facts_come_first_with_history() {
    let lab = small_library().await;
    let store = |value: &str| {
        lab.call(
            "obsidian_rag_memory_store",
            json!({"key": "bike-lock-code", "value": value, "source": "Projects/Bike.md"}),
        )
    };
    let answer = store("1234").await;
    assert_eq!(
        (answer["data"]["stored"].as_bool(), answer["data"]["key"].as_str()),
        (Some(true), Some("bike-lock-code"))
    );
    assert_eq!(store("1234").await["data"]["changed"], false);
    let answer = store("9876").await;
    assert_eq!(answer["data"]["history"][0]["value"], "1234");
    let found = lab.search("code of the bike lock").await;
    let first = &found["data"]["results"][0];
    assert_eq!((first["kind"].as_str(), first["snippet"].as_str()), (Some("memory"), Some("9876")));
    assert_eq!(first["source_file"], "Projects/Bike.md");
    assert_eq!(found["data"]["results"][1]["kind"], "note");
}

/// A fact is filtered by the note in its source: by folder, tag and date, and by the path rules.
#[tokio::test(flavor = "multi_thread")]
async fn facts_pass_the_filters_that_their_notes_pass() {
    let lab = small_library().await;
    for (key, source) in [
        ("bike-lock-code", "Projects/Bike.md"),
        ("bike-thief-name", "Journal/2024-04-01.md"),
        ("bike-lamp-price", "Projects/not indexed.md"),
    ] {
        lab.call("obsidian_rag_memory_store", json!({"key": key, "value": "something", "source": source})).await;
    }
    let facts = |mut args: Value| {
        args["query"] = "what did I write about the bike lock code, the bike thief name and the bike lamp price".into();
        let lab = &lab;
        async move {
            let answer = lab.call("obsidian_rag_search", args).await;
            let results = answer["data"]["results"].as_array().unwrap().clone();
            let mut keys: Vec<String> = results
                .iter()
                .filter(|result| result["kind"] == "memory")
                .map(|result| result["title"].as_str().unwrap().to_owned())
                .collect();
            keys.sort();
            keys
        }
    };
    assert_eq!(facts(json!({})).await, ["bike-lamp-price", "bike-lock-code", "bike-thief-name"]);
    assert_eq!(facts(json!({"date_range": {}})).await.len(), 3, "an open range is no filter");
    assert_eq!(facts(json!({"directory_filter": ["Projects"]})).await, ["bike-lamp-price", "bike-lock-code"]);
    assert_eq!(facts(json!({"tags": ["hobby"]})).await, ["bike-lock-code"]);
    assert_eq!(facts(json!({"date_range": {"to": "2024-12-31"}})).await, ["bike-thief-name"]);
    let policy = json!({"sandbox": {"denyGlobs": ["Projects/**"]}});
    let lab = Lab::over(lab.dir, lab.index, KnowledgeConfig::default(), Some(Arc::new(Trigrams(64))), policy);
    let answer = lab.search("the bike thief name, and the bike lock code").await;
    assert_eq!(answer["data"]["results"][0]["title"], "bike-thief-name");
    assert!(!answer.to_string().contains("bike-lock-code"));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_counts_and_lists_with_reasons() {
    let lab = small_library().await;
    lab.note("Bad.md", b"\xff\xfe not text");
    lab.note("Binary.md", b"a\0b");
    lab.note("New.md", "not indexed yet");
    let status = lab.call("obsidian_rag_status", json!({})).await;
    assert_eq!(status["data"]["unindexed_files"], 3);
    lab.index("sync").await;
    let status = lab.call("obsidian_rag_status", json!({"files": "skipped"})).await;
    let data = &status["data"];
    assert_eq!(data["plugin_health"], "healthy");
    assert_eq!(data["unindexed_files"], 0);
    assert_eq!(data["files"], json!({"indexed": 8, "empty": 1, "skipped": 2, "failed": 0, "unembedded_chunks": 0}));
    let listed: Vec<(&str, &str)> = data["file_list"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["path"].as_str().unwrap(), f["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(listed, [("Bad.md", "not UTF-8"), ("Binary.md", "not text")]);
    assert_eq!(data["last_job"]["error_count"], 2);
    assert!(data["last_sync"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    assert!(data["active_job"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_index_is_degraded() {
    let lab = small_library().await;
    let config = KnowledgeConfig {
        search: toolyard_knowledge::config::SearchConfig { stale_after_secs: 1, ..Default::default() },
        ..KnowledgeConfig::default()
    };
    let lab = lab.restarted(config, Some(Arc::new(Trigrams(64))));
    crate::support::eventually("an hour, shortened to a second, passes", || async {
        lab.note("Later.md", "written after the last sync");
        lab.knowledge.observe().await;
        let answer = lab.search("bicycle").await;
        answer["status"] == "degraded" && code(&answer) == "INDEX_STALE" && !files(&answer).is_empty()
    })
    .await;
    lab.index("sync").await;
    assert_eq!(lab.search("bicycle").await["status"], "healthy");
}

#[toolyard_shows::shows("000-1-04")]
#[tokio::test]
async fn definitions_are_sound() {
    let all = toolyard_knowledge::definitions().unwrap();
    let names: Vec<String> = all.iter().map(|d| d.name.to_string()).collect();
    assert_eq!(
        names,
        ["obsidian_rag_search", "obsidian_rag_index", "obsidian_rag_status", "obsidian_rag_memory_store"]
    );
    for definition in all {
        definition.check().unwrap();
        assert!(!definition.required_permissions.is_empty());
        assert_eq!(definition.input_schema.parse()["additionalProperties"], false, "{}", definition.name);
        assert!(definition.output_schema.unwrap().parse()["properties"]["meta"].is_object());
    }
}
