//! Property and fuzz-style tests of the pure parts: scanning, patches, front matter, diffs, links.

use crate::{
    markdown::{
        frontmatter,
        headings::{blocks, find_heading, headings},
        links::links,
        scan::Scan,
        yaml,
    },
    patch::{Patch, apply},
    path::VaultPath,
    resolve::{FileIndex, LinkMove},
    text::dominant_eol,
    unified,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;

const PIECES: &[&str] = &[
    "# A",
    "## B",
    "### A",
    "B\n===",
    "text",
    "text ^id1",
    "- item",
    "  - nested ^id2",
    "",
    "",
    "```",
    "~~~",
    "%%",
    "<!--",
    "-->",
    "    code",
    "> quote",
    "| t | u |",
    "---",
    "...",
    "key: value",
    "key2: [a, b] # c",
    "- x",
    "[[Note]]",
    "[x](a%20b.md)",
    "`[[c]]`",
    "é日本",
    "\u{feff}",
    "^lonely",
    "#tag",
    "##",
    "a: 'it''s'",
    "\"q k\": |",
    "  more",
    "]]",
    "[[",
    "](",
    "`",
    "\\",
];

fn any_note() -> impl Strategy<Value = String> {
    let line = prop::sample::select(PIECES);
    (prop::collection::vec(line, 0..14), prop::bool::ANY, prop::bool::ANY).prop_map(|(lines, crlf, ends)| {
        let eol = if crlf { "\r\n" } else { "\n" };
        let mut note = lines.join("\n").replace('\n', eol);
        if ends && !note.is_empty() {
            note.push_str(eol);
        }
        note
    })
}

fn patched(note: &str, operation: Value) -> Result<String, toolyard_protocol::Failure> {
    let patch: Patch = serde_json::from_value(json!({"operations":[operation]})).unwrap();
    apply(note, &patch).map(|(text, _)| text)
}

const KEYS: &[&str] = &["alpha", "beta", "gamma", "delta epsilon"];
const VALUES: &[&str] = &[
    " 1",
    " plain text # comment",
    " \"quoted: # no\"",
    " 'it''s'",
    " [a, b]  # inline",
    "",
    "\n  - a\n  # inner\n  - b",
    "\n- a\n- b",
    " |\n  block\n\n  text",
    " >-\n  folded",
    " {a: 1}",
    "\n  nested:\n    deep: true",
    " 2024-01-02",
];

fn any_front_matter() -> impl Strategy<Value = String> {
    (prop::collection::vec(prop::sample::select(VALUES), KEYS.len()), 1..=KEYS.len(), prop::bool::ANY, prop::bool::ANY)
        .prop_map(|(values, count, comment, crlf)| {
            let mut note = String::from("---\n");
            for (key, value) in KEYS.iter().zip(values).take(count) {
                if comment {
                    note.push_str("# about the next\n");
                }
                note.push_str(&format!("{key}:{value}\n"));
            }
            note.push_str("---\nbody: not a key\n");
            if crlf { note.replace('\n', "\r\n") } else { note }
        })
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[a-z#:' \"-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z: ]{1,5}", inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn inserting_then_deleting_gives_the_bytes_back(above in any_note(), below in any_note(), at_start in any::<bool>(), pick in any::<prop::sample::Index>()) {
        let note = format!("{above}\n# Sure\n{below}");
        let scan = Scan::new(&note);
        let all = headings(&scan);
        // An open fence or comment above may swallow every heading.
        if all.is_empty() {
            return Ok(());
        }
        let chosen = pick.index(all.len());
        let mut path: Vec<String> = all[chosen].parents.iter().map(|&p| all[p].text.clone()).collect();
        path.push(all[chosen].text.clone());
        if path.iter().any(String::is_empty) || find_heading(&all, &path) != [chosen] {
            return Ok(());
        }
        let position = if at_start { "start" } else { "end" };
        let inserted =
            patched(&note, json!({"op":"insert","target":{"type":"heading","path":path},"position":position,"value":"zz1\nzz2"})).unwrap();
        let eol = dominant_eol(&note);
        let line = if inserted.contains(&format!("zz2{eol}")) { format!("zz1{eol}zz2{eol}") } else { format!("{eol}zz1{eol}zz2") };
        let back = patched(&inserted, json!({"op":"delete","target":{"type":"text","find":line}})).unwrap();
        prop_assert_eq!(back, note);
    }

    #[test]
    fn front_matter_edits_leave_every_other_key_alone(note in any_front_matter(), pick in 0..KEYS.len(), value in any_value()) {
        let raw = |text: &str| -> Vec<(String, String)> {
            let scan = Scan::new(text);
            let all = frontmatter::entries(&scan).unwrap();
            all.iter().map(|e| (e.key.clone(), text[e.range.clone()].to_owned())).collect()
        };
        let key = KEYS[pick];
        let before = raw(&note);
        let is_there = before.iter().any(|(k, _)| k == key);
        let target = json!({"type":"frontmatter","key":key});
        if is_there {
            let after = patched(&note, json!({"op":"replace","target":target,"value":value})).unwrap();
            let (old, new) = (before.iter().filter(|(k, _)| k != key), raw(&after));
            prop_assert_eq!(old.collect::<Vec<_>>(), new.iter().filter(|(k, _)| k != key).collect::<Vec<_>>(), "{}", after);
            prop_assert_eq!(new.len(), before.len(), "{}", after);
            prop_assert!(after.ends_with(&note[note.find("body").unwrap()..]));
            prop_assert_eq!(after.matches("# about").count(), note.matches("# about").count());
            // What was written for a key does not depend on what stood there, in block style.
            let again = patched(&after, json!({"op":"replace","target":target,"value":value})).unwrap();
            prop_assert_eq!(again, after);
        } else {
            let with = patched(&note, json!({"op":"insert","target":target,"value":value})).unwrap();
            prop_assert_eq!(raw(&with).len(), before.len() + 1);
            let back = patched(&with, json!({"op":"delete","target":target})).unwrap();
            prop_assert_eq!(back, note);
        }
    }

    #[test]
    fn emitted_scalars_stay_on_one_line_and_keep_their_quotes_closed(text in any::<String>()) {
        let out = yaml::string(&text);
        prop_assert!(!out.contains(['\n', '\r']));
        if out.starts_with('"') {
            // YAML's double-quoted style is JSON's, as far as it is used here.
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        } else {
            prop_assert_eq!(out, text);
        }
    }

    #[test]
    fn diffs_of_any_two_notes_apply(a in any_note(), b in any_note()) {
        let unix = |s: &str| s.replace("\r\n", "\n");
        let (a, b) = (unix(&a), unix(&b));
        prop_assume!(a != b);
        let diff = toolyard_engine::diff::unified(&a, &b, toolyard_engine::diff::DiffNames { old: "a", new: "b" }, 3);
        prop_assert_eq!(unified::apply(&a, &diff).unwrap().0, b);
    }

    #[test]
    fn a_note_without_links_to_what_moved_is_not_touched(note in any_note()) {
        let path = |t: &str| VaultPath::parse(t).unwrap();
        let moved = HashMap::from([(path("Elsewhere.md"), path("x/Else.md"))]);
        let files = ["Note.md", "a b.md", "c.md", "Elsewhere.md"];
        let before = FileIndex::new(files.iter().map(|f| path(f)));
        let after = FileIndex::new(files.iter().map(|f| moved.get(&path(f)).cloned().unwrap_or_else(|| path(f))));
        let change = LinkMove { before: &before, after: &after, moved: &moved };
        prop_assert_eq!(change.rewrite(&path("c.md"), &note), None);
    }
}

/// Seeded random notes and operations in bulk: nothing panics, ranges lie on characters, and all that changes is text.
#[test]
fn random_notes_and_patches_never_panic() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |bound: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % bound as u64) as usize
    };
    let ops = ["insert", "delete", "replace"];
    let mut applied = 0;
    for round in 0..20_000 {
        let count = next(12);
        let mut note = String::new();
        for _ in 0..count {
            note.push_str(PIECES[next(PIECES.len())]);
            note.push_str(["\n", "\r\n", "", " ", "\n\n"][next(5)]);
        }
        let scan = Scan::new(&note);
        let found = links(&scan);
        assert!(found.windows(2).all(|w| w[0].range.end <= w[1].range.start), "{note:?}");
        assert!(found.iter().all(|l| note.get(l.range.clone()).is_some()), "{note:?}");
        assert!(
            blocks(&scan).iter().all(|b| note.get(b.range.clone()).is_some() && note.get(b.marker.clone()).is_some())
        );
        assert!(
            headings(&scan).iter().all(|h| h.start < h.body && h.body <= h.own_end && h.own_end <= h.section_end),
            "{note:?}"
        );
        let kind = next(4);
        let mut pick = |from: &[&'static str]| from[next(from.len())];
        let target = match kind {
            0 => json!({"type":"heading","path":[pick(&["A", "B", "text", "## B"])]}),
            1 => json!({"type":"block","id":pick(&["id1", "id2", "lonely"])}),
            2 => json!({"type":"frontmatter","key":pick(&["key", "key2", "a", "q k"])}),
            _ => json!({"type":"text","find":pick(&["é", "text", "\n", "["]),"count":count % 2 + 1}),
        };
        let op = ops[next(3)];
        let mut operation = json!({"op":op,"target":target});
        if op != "delete" {
            operation["value"] = ["", "x", "a\nb\n", "# New\n", "é"][next(5)].into();
        }
        match patched(&note, operation.clone()) {
            Ok(_) => applied += 1,
            Err(failure) => assert!(failure.suggestion.is_some(), "round {round}: {operation} on {note:?}"),
        }
    }
    assert!(applied > 2000, "the fuzz reaches the edits: {applied}");
}
