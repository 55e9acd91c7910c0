use super::*;
use serde_json::json;
use toolyard_catalog::{Policy, PolicyConfig, Registry, Subject, ToolSource};
use toolyard_protocol::ToolDefinition;

fn secrets() -> RunSecrets {
    RunSecrets::new(Arc::new(Signer::from_secret("test", &[3; 32])))
}

fn policy(config: Value) -> Arc<EffectivePolicy> {
    let config: PolicyConfig = serde_json::from_value(config).unwrap();
    let subject = Subject { agent: "main", session: None, door: "cli", scopes: &[] };
    Policy::compile(&config).unwrap().effective(&subject)
}

fn tool(schema: Value) -> ToolEntry {
    let definition: ToolDefinition = serde_json::from_value(json!({
        "name": "login", "title": "Log in", "description": "Logs in.", "category": "util", "riskLevel": "read-only",
        "inputSchema": schema, "idempotency": "pure",
    }))
    .unwrap();
    ToolEntry::new(definition, ToolSource::core()).unwrap()
}

fn keep(secrets: &RunSecrets, schema: Value, rules: Value, args: &Value) -> Option<StoredArguments> {
    let (tools, policy, tool) = (Registry::new().snapshot(), policy(rules), tool(schema));
    let marks = SecretMarks { tool: Some(&tool), tools: &tools, policy: &policy };
    secrets.keep(marks, args.as_object().unwrap(), Placeholders::Hide)
}

#[test]
fn secrets_are_marked_by_schema_rule_name_and_looks() {
    let schema = json!({"type":"object","properties":{"pin":{"type":"integer","writeOnly":true}}});
    let rules = json!({"secrets":[{"tools":["login"],"arguments":["answers.*.text"]}]});
    let args = json!({
        "pin": 1234, "answers": [{"text": "first pet", "id": 1}], "dbPassword": "hunter2",
        "note": "call with Bearer abcdefgh12345678 twice", "token": "page-2", "keyword": "plain",
    });
    let kept = keep(&secrets(), schema, rules, &args).unwrap();
    let found: Vec<(&str, SecretSource)> = kept.secrets.iter().map(|s| (s.path.as_str(), s.by)).collect();
    assert_eq!(
        found,
        [
            ("/pin", SecretSource::Schema),
            ("/answers/0/text", SecretSource::Rule),
            ("/dbPassword", SecretSource::Detector),
            ("/note", SecretSource::Detector)
        ]
    );
    let text = Value::Object(Map::clone(&kept.args)).to_string();
    for secret in ["1234\"", ":1234", "first pet", "hunter2", "abcdefgh12345678"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert_eq!(kept.args["token"], "page-2");
    assert_eq!(kept.args["keyword"], "plain");
    assert!(kept.args["note"].as_str().unwrap().starts_with("call with Bearer (secret hmac-sha256:"));
    assert_eq!(placeholders(&text).len(), 4);
}

#[test]
fn whoever_has_the_key_can_prove_the_secret_and_nobody_else_can_guess_it() {
    let args = json!({"password": "hunter2"});
    let kept = keep(&secrets(), json!({"type":"object"}), json!({}), &args).unwrap();
    let placeholder = kept.args["password"].as_str().unwrap();
    let ours = Signer::from_secret("test", &[3; 32]).verifier();
    assert_eq!(ours.proves_secret(&json!("hunter2"), placeholder), Some(true));
    assert_eq!(ours.proves_secret(&json!("hunter3"), placeholder), Some(false));
    let other = Signer::from_secret("test", &[4; 32]).verifier();
    assert_eq!(other.proves_secret(&json!("hunter2"), placeholder), Some(false));
    let public = Verifier::parse(&ours.to_text()).unwrap();
    assert_eq!(public.proves_secret(&json!("hunter2"), placeholder), None);
    assert_ne!(canonical::hash(&*kept.args).unwrap(), canonical::hash(args.as_object().unwrap()).unwrap());
}

#[test]
fn a_secret_is_hidden_wherever_the_run_says_it_again() {
    let secrets = secrets();
    let args = json!({"password": "correct-horse", "login": "ada:correct-horse"});
    let kept = keep(&secrets, json!({"type":"object"}), json!({}), &args).unwrap();
    let placeholder = kept.args["password"].as_str().unwrap();
    assert_eq!(kept.args["login"], format!("ada:{placeholder}"));
    assert_eq!(secrets.hide_text("no such user: correct-horse"), format!("no such user: {placeholder}"));
    let mut value = json!({"correct-horse": ["correct-horse"]});
    secrets.hide_value(&mut value);
    assert!(!value.to_string().contains("correct-horse"));
}

#[test]
fn a_placeholder_that_a_caller_wrote_is_not_taken_for_a_secret() {
    let args = json!({"password": "hunter2"});
    let kept = keep(&secrets(), json!({"type":"object"}), json!({}), &args).unwrap();
    let forged = Value::Object(Map::clone(&kept.args));
    let again = keep(&secrets(), json!({"type":"object"}), json!({}), &forged).unwrap();
    assert_ne!(again.args, kept.args, "a forged placeholder has an HMAC of its own");
    let text = json!({"text": kept.args["password"]});
    assert!(keep(&secrets(), json!({"type":"object"}), json!({}), &text).is_some());
    let none = policy(json!({}));
    let tools = Registry::new().snapshot();
    let marks = SecretMarks::of(&tools, &none, "none");
    let read = secrets().keep(marks, forged.as_object().unwrap(), Placeholders::Stay);
    assert!(read.is_none(), "what was read from a record stays: {read:?}");
    assert!(demand_secrets(forged.as_object().unwrap()).is_err());
    assert!(demand_secrets(args.as_object().unwrap()).is_ok());
}
