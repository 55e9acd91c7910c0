//! Tests of references and templates, with examples and with random input.

use super::*;
use proptest::prelude::*;
use serde_json::{Map, json};
use std::collections::HashMap;

const NAMES: BindingNames<'_> = BindingNames { item: "item", index: "index" };

fn run(template: &Value, item: Option<(&Value, u64)>) -> Result<Value, ReferenceError> {
    let steps =
        HashMap::from([("read".to_owned(), json!({"items":[{"path":"a.md"},7],"n":null,"deep":{"x-y":[1,[2]]}}))]);
    let vars = HashMap::from([("found.files".to_owned(), "read".to_owned())]);
    let context = Map::from_iter([("selection".to_owned(), json!({"text":"hi"}))]);
    let env = Env { steps: &steps, vars: &vars, run_id: "R", started_at: "T", context: &context, item };
    resolve(&compile(template, &["found.files"], item.map(|_| NAMES))?, &env)
}

#[toolyard_shows::shows("002-2-03", "002-4-02", "002-4-03")]
#[test]
fn whole_string_references_keep_their_type() {
    for (text, value) in [
        ("$steps.read.items[0]", json!({"path":"a.md"})),
        ("$steps.read.items[1]", json!(7)),
        ("$steps.read.n", json!(null)),
        ("$steps.read.deep.x-y[1][0]", json!(2)),
        ("$vars.found.files.items[0].path", json!("a.md")),
        ("$ctx.selection.text", json!("hi")),
        ("$run.id", json!("R")),
        ("$run.startedAt", json!("T")),
    ] {
        assert_eq!(run(&json!({"v":[text]}), None).unwrap(), json!({"v":[value]}), "{text}");
    }
}

#[toolyard_shows::shows("002-4-01", "002-4-07")]
#[test]
fn missing_and_malformed_references_are_errors_with_a_place() {
    for (text, why) in [
        ("$steps.gone", "has no output"),
        ("$steps.read.nope", "no field \"nope\"; it has items, n, deep"),
        ("$steps.read.items[9]", "no element [9]; it is a list of 2"),
        ("$steps.read.n.x", "not an object or a list"),
        ("$vars.other", "no step captures other"),
        ("$ctx.cursor", "did not ask"),
        ("$ctx.weather", "no context called"),
        ("$run.user", "only $run.id"),
        ("$steps.", "well-formed"),
        ("$steps.read.", "well-formed"),
        ("$steps.read[x]", "well-formed"),
        ("$steps.read..a", "well-formed"),
    ] {
        let err = run(&json!({"a":{"b":[1, text]}}), None).unwrap_err();
        assert_eq!(err.path, "/a/b/1", "{text}");
        assert!(err.message.contains(why), "{text}: {}", err.message);
    }
}

#[toolyard_shows::shows("002-2-02", "002-4-05", "002-4-06")]
#[test]
fn loop_bindings_and_escapes() {
    let item = json!({"path":"x.md","n":3,"o":{"b":1,"a":[true]},"list":["p","q"]});
    for (text, value) in [
        ("{item.path}", json!("x.md")),
        ("{item.n}", json!(3)),
        ("{item}", item.clone()),
        ("{index}", json!(4)),
        ("{item.list[1]}", json!("q")),
        ("notes/{item.path}#{index}", json!("notes/x.md#4")),
        ("n={item.n} o={item.o}", json!("n=3 o={\"a\":[true],\"b\":1}")),
        ("{items} {other.x} {}", json!("{items} {other.x} {}")),
        ("{{item.path}}", json!("{item.path}")),
        ("{{literal}} {item.n}", json!("{literal} 3")),
        (r#"{"a":{"b":"{item.n}"}}"#, json!(r#"{"a":{"b":"3"}}"#)),
        ("$$steps.read", json!("$steps.read")),
        ("$$x^2$$", json!("$$x^2$$")),
        ("$5 and $HOME", json!("$5 and $HOME")),
        ("$steps.read is prose", json!("$steps.read is prose")),
    ] {
        assert_eq!(run(&json!(text), Some((&item, 4))).unwrap(), value, "{text}");
    }
    assert!(run(&json!("{item.nope}"), Some((&item, 0))).unwrap_err().message.contains("no field"));
    assert_eq!(run(&json!("{item.path} {index}"), None).unwrap(), json!("{item.path} {index}"), "outside a loop");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,4}", inner), 0..4).prop_map(|p| Value::Object(p.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_comes_through_a_typed_reference_unchanged(value in any_json()) {
        let steps = HashMap::from([("s".to_owned(), json!({"v": value}))]);
        let (vars, context) = (HashMap::new(), Map::new());
        let env = Env { steps: &steps, vars: &vars, run_id: "", started_at: "", context: &context, item: Some((&value, 0)) };
        prop_assert_eq!(&resolve(&compile(&json!("$steps.s.v"), &[], None).unwrap(), &env).unwrap(), &value);
        prop_assert_eq!(&resolve(&compile(&json!("{item}"), &[], Some(NAMES)).unwrap(), &env).unwrap(), &value);
    }

    #[test]
    fn text_without_dollar_or_brace_is_left_alone(text in "[^$\\{\\}]{0,40}") {
        prop_assert_eq!(compile(&json!(text), &[], Some(NAMES)).unwrap(), Template::Literal(json!(text)));
    }

    #[toolyard_shows::shows("002-4-09")]
    #[test]
    fn no_text_makes_it_panic_and_resolution_is_pure(text in "[$a-z.\\[\\]0-9\\{\\} é]{0,40}") {
        let item = json!({"a":1});
        let once = run(&json!(text), Some((&item, 1)));
        prop_assert_eq!(once, run(&json!(text), Some((&item, 1))));
    }

    #[test]
    fn escaped_values_come_back_unchanged(text in "[$stepvar.\\{\\} a]{0,24}") {
        for text in [text.clone(), format!("$steps.{text}"), format!("$$run.{text}")] {
            prop_assert_eq!(compile(&escape(json!(text)), &[], Some(NAMES)).unwrap(), Template::Literal(json!(text)));
        }
    }

    #[test]
    fn doubled_braces_always_come_back_single(inner in "[a-z. ]{0,12}") {
        let item = json!({});
        prop_assert_eq!(run(&json!(format!("{{{{{inner}}}}}")), Some((&item, 0))).unwrap(), json!(format!("{{{inner}}}")));
    }
}
