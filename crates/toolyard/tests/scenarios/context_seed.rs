//! The statements of seed 003 about the context tools, tested with `tools.invoke` on the real program.

use crate::harness::{Place, Server};
use serde_json::{Value, json};

const TOKEN: &str = "test-token-of-16-chars";

fn invoke(place: &Place, server: &Server, name: &str, args: Value) -> Value {
    let url = server.ready["url"].as_str().unwrap();
    let params = json!({"name": name, "sessionKey": "agent:main:main", "args": args}).to_string();
    let call = ["gateway", "call", "tools.invoke", "--params", &params, "--url", url, "--token", TOKEN, "--json"];
    let answer = place.run_bare(&call).json();
    assert_eq!(answer["ok"], true, "{name} {args}: {answer}");
    answer["output"].clone()
}

fn text(output: &Value) -> &str {
    output["content"][0]["text"].as_str().unwrap()
}

#[toolyard_shows::shows("003-5-01", "003-5-03", "003-5-04")]
#[test]
fn memory_store_keeps_every_text_in_its_words_whoever_speaks() {
    let place = Place::new();
    let server = place.up();
    let texts = [
        ("user", "The blue folder in the hallway holds the spare fuses."),
        ("user", "Deploys are frozen from Thursday noon until Monday."),
        ("user", "I live in Lisbon."),
        ("user", "I live in Porto."),
        ("assistant", "The build cache lies on the second disk."),
        ("system", "Backups run at four in the morning. They take an hour."),
        ("tool", "exit status 3 means that the licence server was away"),
    ];
    let mut uris = Vec::new();
    for (role, said) in texts {
        let stored = invoke(&place, &server, "memory_store", json!({"text": said, "role": role, "sessionId": "notes"}));
        let kept = stored["details"]["stored"].as_array().unwrap().iter().map(|change| change["uri"].clone());
        let read: Vec<(Value, String)> = kept
            .map(|uri| (uri.clone(), text(&invoke(&place, &server, "ov_read", json!({"uri": uri}))).to_owned()))
            .collect();
        let own = read.iter().find(|(_, file)| file.lines().nth(1) == Some(said));
        let (uri, _) = own.unwrap_or_else(|| panic!("{role}: {stored} {read:?}"));
        assert!(text(&stored).contains(uri.as_str().unwrap()), "the answer says where: {stored}");
        uris.push(uri.clone());
    }
    for ((_, said), uri) in texts.iter().zip(&uris) {
        let read = invoke(&place, &server, "ov_read", json!({"uri": uri}));
        assert!(text(&read).contains(said), "what came later replaced nothing: {read}");
    }
    let again = invoke(&place, &server, "memory_store", json!({"text": texts[0].1, "sessionId": "notes"}));
    assert_eq!(again["details"]["stored"][0]["change"], "repeat", "{again}");
    assert_eq!(again["details"]["stored"][0]["uri"], uris[0], "{again}");
    server.stop();
}

#[toolyard_shows::shows("003-5-05", "003-5-07", "003-5-09")]
#[test]
fn memory_forget_shows_as_many_candidates_as_asked_and_five_by_default() {
    let place = Place::new();
    let server = place.up();
    for n in 0..9 {
        let said = format!("The garden gate number {n} is painted green and squeaks in the rain.");
        invoke(&place, &server, "memory_store", json!({"text": said}));
    }
    let candidates = |args: Value| {
        let output = invoke(&place, &server, "memory_forget", args);
        let listed = output["details"]["candidates"].as_array().map_or(0, Vec::len);
        assert_eq!(text(&output).lines().count(), listed + 1, "{output}");
        listed
    };
    assert_eq!(candidates(json!({"query": "which garden gate squeaks", "scoreThreshold": 0.0})), 5);
    assert_eq!(candidates(json!({"query": "which garden gate squeaks", "scoreThreshold": 0.0, "limit": 2})), 2);
    assert_eq!(candidates(json!({"query": "which garden gate squeaks", "scoreThreshold": 0.0, "limit": 8})), 8);
    server.stop();
}

#[toolyard_shows::shows("003-3-01", "003-3-03", "003-6-01", "003-6-03")]
#[test]
fn ov_search_covers_memories_and_skills_and_its_limit_counts_all_results() {
    let place = Place::new();
    let server = place.up();
    let none = invoke(&place, &server, "ov_search", json!({"query": "memories and sessions of the user"}));
    assert_eq!(none["details"]["total"], 0, "an empty store holds nothing to be found: {none}");
    let root = invoke(&place, &server, "ov_list", json!({"uri": "viking://"}));
    assert!(!text(&root).contains("viking://agent"), "{root}");
    // Plain Markdown: the heading names the skill, the first paragraph describes it.
    let skill = invoke(
        &place,
        &server,
        "add_skill",
        json!({"data": "# Brew Tea\n\nBrews green tea in the kitchen.\n\nBoil water.\n", "wait": true}),
    );
    assert_eq!(skill["details"]["name"], "brew-tea", "{skill}");
    for n in 0..4 {
        let said = format!("Guest {n} drinks green tea from the kitchen.");
        invoke(&place, &server, "memory_store", json!({"text": said}));
    }
    let found = invoke(&place, &server, "ov_search", json!({"query": "green tea from the kitchen", "limit": 20}));
    let count = |kind: &str| found["details"][kind].as_array().unwrap().len();
    assert!(count("memories") >= 4 && count("skills") >= 1, "{found}");
    let scores = ["memories", "resources", "skills"].map(|kind| found["details"][kind].as_array().unwrap().clone());
    assert!(scores.iter().flatten().all(|hit| hit["score"].as_f64().unwrap() >= 0.15), "{found}");
    let few = invoke(&place, &server, "ov_search", json!({"query": "green tea from the kitchen", "limit": 3}));
    assert_eq!(few["details"]["total"], 3, "{few}");
    server.stop();
}

#[toolyard_shows::shows("003-6-06", "003-6-08", "003-6-09")]
#[test]
fn add_resource_keeps_a_single_file_as_it_is_called_and_takes_media_of_the_gateway() {
    let place = Place::new();
    let around = place.home.parent().unwrap().join("granted");
    std::fs::create_dir_all(&around).unwrap();
    std::fs::write(around.join("spec.md"), "# Spec\n\nThe widget turns left.\n").unwrap();
    let inbound = place.home.join("media/inbound");
    std::fs::create_dir_all(&inbound).unwrap();
    std::fs::write(inbound.join("photo-notes.md"), "# Notes\n\nA zebra on the road.\n").unwrap();
    place.config(&format!("[context]\nenableAddResourceTool = true\nimportRoots = [\"{}\"]\n", around.display()));
    let server = place.up();
    let source = around.join("spec.md").display().to_string();
    let project = json!({"source": source, "parent": "viking://resources/project"});
    for _ in 0..2 {
        let added = invoke(&place, &server, "add_resource", project.clone());
        assert_eq!(added["details"]["root_uri"], "viking://resources/project/spec.md", "{added}");
    }
    let read = invoke(&place, &server, "ov_read", json!({"uri": "viking://resources/project/spec.md"}));
    assert!(text(&read).contains("turns left"), "{read}");
    let exact = json!({"source": source, "to": "viking://resources/one/exact.md"});
    let exact = invoke(&place, &server, "add_resource", exact);
    assert_eq!(exact["details"]["root_uri"], "viking://resources/one/exact.md", "{exact}");
    let media = invoke(&place, &server, "add_resource", json!({"source": "media://inbound/photo-notes.md"}));
    assert_eq!(media["details"]["root_uri"], "viking://resources/photo-notes.md", "{media}");
    let found = invoke(&place, &server, "ov_search", json!({"query": "zebra on the road"}));
    assert!(text(&found).contains("viking://resources/photo-notes.md"), "{found}");
    let url = server.ready["url"].as_str().unwrap();
    for bad in ["media://inbound/../../state/x", "media://inbound/none.md", "media://elsewhere/photo-notes.md"] {
        let params =
            json!({"name": "add_resource", "sessionKey": "agent:main:main", "args": {"source": bad}}).to_string();
        let call = ["gateway", "call", "tools.invoke", "--params", &params, "--url", url, "--token", TOKEN, "--json"];
        assert_eq!(place.run_bare(&call).json()["ok"], false, "{bad}");
    }
    server.stop();
}

#[toolyard_shows::shows("003-9-01", "003-9-03")]
#[test]
fn references_to_large_results_have_the_documents_form_and_both_forms_are_read() {
    let place = Place::new();
    let server = place.up();
    let url = server.ready["url"].as_str().unwrap();
    let output = (0..3000).map(|n| format!("line {n} error code {}", n % 7)).collect::<Vec<_>>().join("\n");
    let part = json!({"type": "tool", "tool_id": "c1", "tool_name": "RunCommand", "tool_output": output});
    let params = json!({"sessionKey": "agent:main:main", "messages": [{"role": "assistant", "parts": [part]}]});
    let params = params.to_string();
    let call = ["gateway", "call", "context.capture", "--params", &params, "--url", url, "--token", TOKEN, "--json"];
    assert_eq!(place.run_bare(&call).code, 0);
    let listed = invoke(&place, &server, "openviking_tool_result_list", json!({"tool_name": "RunCommand"}));
    let result = &listed["details"]["tool_results"][0];
    let (session, id) = (result["session_id"].as_str().unwrap(), result["tool_result_id"].as_str().unwrap());
    let document = format!("viking://session/{session}/tool-results/{id}");
    assert!(text(&listed).contains(&format!("ref: {document}")), "{listed}");
    let canonical = format!("viking://user/default/sessions/{session}/tool-results/{id}");
    for reference in [document, canonical] {
        let args = json!({"tool_output_ref": reference, "offset": 0, "limit": 6});
        assert_eq!(text(&invoke(&place, &server, "openviking_tool_result_read", args)), "line 0", "{reference}");
    }
    server.stop();
}

/// Seed 003, recall traces: every filter of `ov_recall_trace` narrows the answer.
#[toolyard_shows::shows("003-8-04", "003-8-06", "003-8-08", "003-8-09", "003-8-10", "003-8-12", "003-13-07")]
#[test]
fn ov_recall_trace_filters_by_session_kind_time_and_number() {
    let place = Place::new();
    let server = place.up();
    let trace = |args: Value| invoke(&place, &server, "ov_recall_trace", args)["details"].clone();
    for number in 0..22 {
        invoke(
            &place,
            &server,
            "memory_recall",
            json!({"query": format!("plugin config {number}"), "resourceTypes": ["resource"]}),
        );
    }
    let all = trace(json!({"turn": "all"}));
    assert_eq!(all["count"], 20, "the default limit: {all}");
    assert_eq!(trace(json!({"turn": "all", "limit": 3}))["count"], 3);
    let first = &all["entries"][0];
    let time = first["ts"].as_i64().unwrap_or_else(|| panic!("no time in {first}"));
    for (filter, count) in [
        (json!({"since": time + 3_600_000}), 0),
        (json!({"since": time - 3_600_000}), 20),
        (json!({"until": time - 3_600_000}), 0),
        (json!({"until": time + 3_600_000}), 20),
        (json!({"sessionId": "no-such-session"}), 0),
        (json!({"ovSessionId": "no-such-session"}), 0),
        (json!({"ovSessionId": first["ovSessionId"]}), 20),
        (json!({"resourceTypes": ["user"]}), 0),
        (json!({"resourceTypes": ["resource"]}), 20),
    ] {
        let mut args = json!({"turn": "all"});
        args.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
        let answer = trace(args);
        assert_eq!(answer["count"], count, "{filter}: {answer}");
    }
    server.stop();
}

#[toolyard_shows::shows("003-11-05")]
#[test]
fn nothing_of_the_old_agent_namespace_is_used_or_shown() {
    let place = Place::new();
    let server = place.up();
    let skill = json!({"data": "# Brew Tea\n\nBrews green tea in the kitchen.\n\nBoil water.\n", "wait": true});
    let mut answers = vec![invoke(&place, &server, "add_skill", skill)];
    answers.push(invoke(&place, &server, "memory_store", json!({"text": "Anna drinks green tea from the kitchen."})));
    let query = "green tea from the kitchen";
    for types in [json!(["agent"]), json!(["user", "agent", "resource"])] {
        let recalled = json!({"query": query, "resourceTypes": types, "scoreThreshold": 0.0});
        let recalled = invoke(&place, &server, "memory_recall", recalled);
        assert!(text(&recalled).contains("Anna drinks green tea"), "agent means the same memories: {recalled}");
        answers.push(recalled);
    }
    answers.push(invoke(&place, &server, "ov_search", json!({"query": query, "limit": 20})));
    for uri in ["viking://", "viking://user", "viking://resources"] {
        answers.push(invoke(&place, &server, "ov_list", json!({"uri": uri, "recursive": true})));
    }
    answers.push(invoke(&place, &server, "ov_recall_trace", json!({"turn": "all", "includeContent": true})));
    for answer in &answers {
        assert!(!answer.to_string().contains("viking://agent"), "{answer:#}");
    }
    assert!(answers[0].to_string().contains("viking://user/"), "a skill is the user's: {}", answers[0]);
    // The old header has no effect on searches and lists.
    let key = ("X-API-Key", TOKEN);
    for (path, body) in [
        ("/api/v1/search/find", json!({"query": query, "limit": 20})),
        ("/api/v1/search/grep", json!({"uri": "viking://", "pattern": "tea"})),
    ] {
        let result = |headers: &[(&str, &str)]| {
            let (status, answer) = server.post(path, headers, &body);
            let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
            assert_eq!(status, 200, "{path}: {body}");
            body["result"].clone()
        };
        let plain = result(&[key]);
        assert!(plain.to_string().contains("viking://user/"), "{path}: {plain}");
        assert_eq!(result(&[key, ("X-OpenViking-Agent", "somebody-else")]), plain, "{path}");
    }
    server.stop();
    // There is no prefix for agents to be set.
    for key in ["agentPrefix", "agent_prefix"] {
        place.config(&format!("[context]\n{key} = \"x\"\n"));
        let refused = place.run(&["config", "check", "--json"]);
        assert!(refused.code != 0 && refused.stdout.contains(key), "{refused:?}");
    }
}
