//! The server's end, frame by frame.

use crate::network::{SESSION, TOKEN, message, opening};
use serde_json::{Value, json};
use toolyard_bridge::{
    frames::Behavior,
    server::{
        Action, ApprovalRole, ConnectionId, Hub, InboundOutcome, Offer, PermissionOutcome, QUESTION_OPEN_MS,
        QuestionOutcome, ReplyError,
    },
};

fn hub() -> Hub {
    let mut hub = Hub::default();
    hub.open(opening());
    hub
}

fn hello(acks: bool, pid: u32) -> String {
    json!({"type": "hello", "openclaw_session": SESSION, "claude_session": "c", "pid": pid, "token": TOKEN, "acks": acks})
        .to_string()
}

fn join(hub: &mut Hub, acks: bool, pid: u32) -> (ConnectionId, Vec<Action>) {
    let id = hub.connected(0);
    let mut actions = hub.text(id, &hello(acks, pid), 0);
    assert!(matches!(actions.last(), Some(Action::Welcome { .. })), "{actions:?}");
    actions.extend(hub.welcome(id, Offer { tools: vec![json!({"name": "t"})], instructions: None }));
    (id, actions)
}

fn frames(actions: &[Action]) -> Vec<Value> {
    let texts = actions.iter().filter_map(|a| match a {
        Action::Send { frame, .. } => Some(frame),
        _ => None,
    });
    texts.map(|t| serde_json::from_str(t).unwrap()).collect()
}

fn closes(actions: &[Action]) -> Vec<u16> {
    actions.iter().filter_map(|a| if let Action::Close { code, .. } = a { Some(*code) } else { None }).collect()
}

#[toolyard_shows::shows("004-1-04", "004-1-09", "004-1-11", "004-1-12", "004-1-13")]
#[test]
fn hello_is_checked_and_answered_with_tools_and_meta() {
    let mut hub = hub();
    let (_, actions) = join(&mut hub, true, 1);
    let ack = &frames(&actions)[0];
    assert_eq!((&ack["type"], &ack["tools"][0]["name"]), (&json!("hello_ack"), &json!("t")));
    let meta = &ack["session_meta"];
    assert_eq!((&meta["protocol"], &meta["heartbeat_ms"]), (&json!(1), &json!(30_000)));
    assert_eq!(meta["openclaw_session"], SESSION);
    assert!(meta["limits"]["max_frame"].is_u64());
    for (text, code) in [
        (hello(true, 1).replace(TOKEN, "wrong"), 4001),
        (hello(true, 1).replace(SESSION, "nobody").replace(TOKEN, "wrong"), 4001),
        (hello(true, 1).replace(SESSION, "nobody"), 4002),
        (r#"{"type":"ping"}"#.to_owned(), 4004),
        ("nonsense".to_owned(), 4004),
        ("x".repeat(100_000), 1009),
    ] {
        let id = hub.connected(0);
        assert_eq!(closes(&hub.text(id, &text, 0)), [code], "{}", &text[..20.min(text.len())]);
        assert!(hub.text(id, &hello(true, 1), 0).is_empty(), "nothing counts after the close");
    }
    let silent = hub.connected(0);
    assert!(hub.tick(silent, 4_999).is_empty());
    assert_eq!(closes(&hub.tick(silent, 5_000)), [4003]);
    assert!(hub.view(None, ApprovalRole::Approver)[0].connected, "none of them touched the plugin that is in");
}

#[toolyard_shows::shows("004-7-05")]
#[test]
fn the_newest_hello_wins() {
    let mut hub = hub();
    let (first, _) = join(&mut hub, true, 1);
    let (second, actions) = join(&mut hub, true, 2);
    assert!(actions.iter().any(|a| matches!(a, Action::Close { to, code: 4005, .. } if *to == first)));
    assert!(hub.disconnected(first).is_empty(), "the old one's end is nobody's");
    let (_, actions) = hub.inbound(SESSION, message("m"), ApprovalRole::Approver).unwrap();
    assert!(actions.iter().any(|a| matches!(a, Action::Send { to, .. } if *to == second)));
}

#[toolyard_shows::shows("004-6-01", "004-6-02", "004-6-03")]
#[test]
fn heartbeats_close_after_two_misses_and_any_frame_is_a_sign_of_life() {
    let mut hub = hub();
    let (id, _) = join(&mut hub, true, 1);
    assert_eq!(frames(&hub.tick(id, 30_000))[0]["type"], "ping");
    hub.text(id, r#"{"type":"pong","ts":30000}"#, 30_010);
    assert_eq!(frames(&hub.tick(id, 60_000)).len(), 1);
    assert_eq!(frames(&hub.tick(id, 90_000)).len(), 1, "one miss is no end");
    assert_eq!(closes(&hub.tick(id, 120_000)), [4006]);
    let (id, _) = join(&mut hub, true, 1);
    for at in 1..20 {
        assert!(closes(&hub.tick(id, at * 30_000)).is_empty());
        hub.text(id, r#"{"type":"something_new"}"#, at * 30_000);
    }
    let answered = hub.text(id, r#"{"type":"ping","ts":7}"#, 0);
    assert_eq!(frames(&answered), [json!({"type": "pong", "ts": 7})]);
}

#[toolyard_shows::shows("004-7-04")]
#[test]
fn messages_wait_for_the_plugin_and_the_oldest_give_way_with_a_warning() {
    let mut hub = hub();
    let mut dropped = Vec::new();
    for n in 0..103 {
        let (accepted, actions) = hub.inbound(SESSION, message(&format!("m{n}")), ApprovalRole::Approver).unwrap();
        assert_eq!(accepted, InboundOutcome::Message { sent: false });
        dropped.extend(actions.into_iter().filter_map(|a| match a {
            Action::Dropped { request_id, .. } => Some(request_id),
            _ => None,
        }));
    }
    assert_eq!(dropped, ["m0", "m1", "m2"]);
    let (id, actions) = join(&mut hub, true, 1);
    let sent = frames(&actions);
    assert_eq!((sent.len(), &sent[0]["type"], &sent[1]["request_id"]), (101, &json!("hello_ack"), &json!("m3")));
    assert_eq!(hub.view(None, ApprovalRole::Approver)[0].waiting, 100, "until they are confirmed");
    let acked = hub.text(id, r#"{"type":"ack","request_id":"m3"}"#, 0);
    assert!(matches!(&acked[..], [Action::Forget { request_id, .. }] if request_id == "m3"));
    hub.disconnected(id);
    let (_, actions) = join(&mut hub, true, 1);
    assert_eq!(frames(&actions)[1]["request_id"], "m4");
}

#[test]
fn towards_a_plugin_without_acks_written_is_delivered() {
    let mut hub = hub();
    let (id, _) = join(&mut hub, false, 1);
    let (_, actions) = hub.inbound(SESSION, message("m"), ApprovalRole::Approver).unwrap();
    let receipt = actions.iter().find_map(|a| match a {
        Action::Send { receipt, .. } => receipt.clone(),
        _ => None,
    });
    assert_eq!(receipt.as_deref(), Some("m"));
    assert_eq!(hub.view(None, ApprovalRole::Approver)[0].waiting, 1);
    hub.written(id, "m");
    assert_eq!(hub.view(None, ApprovalRole::Approver)[0].waiting, 0);
}

#[toolyard_shows::shows("004-4-04", "004-4-05")]
#[test]
fn a_call_runs_once_and_its_result_finds_the_plugin_that_asked() {
    let mut hub = hub();
    let (first, _) = join(&mut hub, true, 1);
    let call = r#"{"type":"tool_call","call_id":"tc_001","tool":"echo","args":{"a":1}}"#;
    let ordered = hub.text(first, call, 0);
    let [Action::Call(order)] = &ordered[..] else { panic!("{ordered:?}") };
    assert_eq!((order.tool.as_str(), &order.args["a"]), ("echo", &json!(1)));
    assert!(hub.text(first, call, 0).is_empty(), "under way already");
    hub.disconnected(first);
    assert!(hub.call_done(SESSION, "tc_001", Ok(json!({}))).is_empty(), "nobody waits any more");
    let (second, _) = join(&mut hub, true, 1);
    let again = hub.text(second, call, 0);
    let [Action::Call(same)] = &again[..] else { panic!("{again:?}") };
    assert_eq!(same.once, order.once, "so that the engine gives the recorded result");
    let done = hub.call_done(SESSION, "tc_001", Ok(json!({"x": 1})));
    assert_eq!(frames(&done), [json!({"type": "tool_result", "call_id": "tc_001", "ok": true, "result": {"x": 1}})]);
    hub.disconnected(second);
    let (other, _) = join(&mut hub, true, 2);
    let [Action::Call(another)] = &hub.text(other, call, 0)[..] else { panic!() };
    assert_ne!(another.once, order.once, "another process counts its calls anew");
    let failed = hub.call_done(SESSION, "tc_001", Err("no".into()));
    assert_eq!(frames(&failed)[0], json!({"type": "tool_result", "call_id": "tc_001", "ok": false, "error": "no"}));
    hub.text(other, call, 0);
    let rendered = toolyard_bridge::server::CallFailure { text: "no".into(), result: Some(json!({"isError": true})) };
    assert_eq!(frames(&hub.call_done(SESSION, "tc_001", Err(rendered)))[0]["result"]["isError"], true);
}

#[test]
fn calls_have_limits_that_are_told() {
    let mut hub = hub();
    let (id, _) = join(&mut hub, true, 1);
    let call = |n: &str| json!({"type": "tool_call", "call_id": n, "tool": "echo"}).to_string();
    for n in 0..64 {
        assert!(matches!(&hub.text(id, &call(&n.to_string()), 0)[..], [Action::Call(_)]));
    }
    let refused = frames(&hub.text(id, &call("64"), 0));
    assert!(refused[0]["error"].as_str().unwrap().contains("64 calls"), "{refused:?}");
    assert_eq!(frames(&hub.text(id, &call(&"x".repeat(500)), 0))[0]["ok"], false);
    let huge = hub.call_done(SESSION, "1", Ok(json!("x".repeat(17 << 20))));
    assert!(frames(&huge)[0]["error"].as_str().unwrap().contains("carries at most"));
    assert!(matches!(&hub.text(id, r#"{"type":"tool_cancel","call_id":"2"}"#, 0)[..], [Action::Cancel { .. }]));
    assert!(hub.text(id, r#"{"type":"tool_cancel","call_id":"unknown"}"#, 0).is_empty());
    assert!(hub.text(id, "{broken", 0).is_empty(), "one bad frame is not worth a connection");
    assert!(hub.view(None, ApprovalRole::Approver)[0].connected);
}

const ASK: &str =
    r#"{"type":"permission_request","request_id":"abxyz","tool":"Bash","args":{"command":"ls"},"rationale":"look"}"#;

fn say(hub: &mut Hub, text: &str, user: &str) -> (InboundOutcome, Vec<Action>) {
    let mut message = message("v");
    message.content = text.to_owned();
    message.meta.insert("user_id".to_owned(), json!(user));
    hub.inbound(SESSION, message, ApprovalRole::Approver).unwrap()
}

#[test]
fn a_question_is_answered_once_by_whoever_may() {
    let mut hub = hub();
    let (id, _) = join(&mut hub, true, 1);
    let asked = hub.text(id, ASK, 0);
    assert!(matches!(&asked[..], [Action::Asked { question, .. }] if question.tool == "Bash"), "{asked:?}");
    assert!(hub.text(id, ASK, 0).is_empty(), "the same question is asked once");
    let (stranger, actions) = say(&mut hub, "yes abxyz", "u2");
    assert_eq!(
        (stranger, actions),
        (InboundOutcome::Verdict(PermissionOutcome::NotAllowed), vec![]),
        "and it is no chat either"
    );
    let (friend, actions) = say(&mut hub, " YES abxyz ", "u1");
    assert_eq!(friend, InboundOutcome::Verdict(PermissionOutcome::Counted(Behavior::Allow)));
    assert_eq!(frames(&actions), [json!({"type": "permission_reply", "request_id": "abxyz", "behavior": "allow"})]);
    let how = QuestionOutcome::Answered { behavior: Behavior::Allow, by: "sender:u1".into() };
    assert!(actions.iter().any(|a| matches!(a, Action::QuestionClosed { how: h, .. } if *h == how)));
    assert_eq!(say(&mut hub, "no abxyz", "u1").0, InboundOutcome::Verdict(PermissionOutcome::TooLate));
    assert_eq!(hub.permission_reply(SESSION, "abxyz", Behavior::Deny, "p"), Err(ReplyError::NotOpen));
    let (chat, actions) = say(&mut hub, "yes maybe", "u1");
    assert_eq!((chat, frames(&actions).len()), (InboundOutcome::Message { sent: true }, 1), "nobody asked that");
}

#[test]
fn whoever_may_not_approve_neither_answers_nor_sees_a_question() {
    let mut hub = hub();
    let (id, _) = join(&mut hub, true, 1);
    let say = |hub: &mut Hub, text: &str| {
        let mut message = message("v");
        message.content = text.to_owned();
        message.meta.insert("user_id".to_owned(), json!("u1"));
        hub.inbound(SESSION, message, ApprovalRole::Messenger).unwrap()
    };
    assert_eq!(say(&mut hub, "yes maybe").0, InboundOutcome::Message { sent: true }, "nothing is asked: it is chat");
    hub.text(id, ASK, 0);
    // An open id and an unknown id are refused in the same way, so that guessing reveals nothing.
    for text in ["yes abxyz", "no abxyz", "yes vwxyz"] {
        assert_eq!(say(&mut hub, text), (InboundOutcome::Verdict(PermissionOutcome::NeedsApprover), vec![]), "{text}");
    }
    assert_eq!(say(&mut hub, "is abxyz a good idea?").0, InboundOutcome::Message { sent: true });
    let view = &hub.view(None, ApprovalRole::Messenger)[0];
    assert_eq!((view.open_questions, &view.questions), (1, &None));
    assert!(!serde_json::to_string(view).unwrap().contains("abxyz"));
    let view = &hub.view(None, ApprovalRole::Approver)[0];
    assert_eq!(view.questions.as_ref().unwrap()[0].request_id, "abxyz");
}

#[test]
fn without_a_secret_nobody_can_tell_a_session_that_is_open() {
    let mut hub = hub();
    let mut other = opening();
    other.opening.session = "other".to_owned();
    other.opening.token_sha256 = toolyard_bridge::server::SessionTerms::digest("another secret");
    hub.open(other);
    let mut ends = |text: String| {
        let id = hub.connected(0);
        hub.text(id, &text, 0)
            .into_iter()
            .map(|action| match action {
                Action::Close { code, reason, .. } => (code, reason),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    let wrong = hello(true, 1).replace(TOKEN, "wrong");
    assert_eq!(ends(wrong.clone()), ends(wrong.replace(SESSION, "nobody")));
    // The same with the secret of another session, which is valid for that session only.
    let foreign = hello(true, 1).replace(TOKEN, "another secret");
    assert_eq!(ends(foreign.clone()), ends(foreign.replace(SESSION, "nobody")));
    assert_eq!(ends(foreign)[0].0, 4002);
    // A secret that was replaced, or whose session is closed, is invalid.
    let mut again = opening();
    again.opening.token_sha256 = toolyard_bridge::server::SessionTerms::digest("a newer secret");
    hub.open(again);
    hub.close("other");
    for token in [TOKEN, "another secret"] {
        let id = hub.connected(0);
        assert_eq!(closes(&hub.text(id, &hello(true, 1).replace(TOKEN, token), 0)), [4001]);
    }
}

#[test]
fn a_question_expires_and_goes_with_its_connection() {
    let mut hub = hub();
    let (id, _) = join(&mut hub, true, 1);
    hub.text(id, ASK, 0);
    let mut settled = Vec::new();
    for at in 1..=QUESTION_OPEN_MS / 1_000 {
        settled.extend(hub.tick(id, at * 1_000).into_iter().filter(|a| matches!(a, Action::QuestionClosed { .. })));
        hub.text(id, r#"{"type":"pong"}"#, at * 1_000);
    }
    assert!(matches!(&settled[..], [Action::QuestionClosed { how: QuestionOutcome::Expired, .. }]), "{settled:?}");
    hub.text(id, ASK, 0);
    let gone = hub.disconnected(id);
    assert!(
        gone.iter().any(|a| matches!(a, Action::QuestionClosed { how: QuestionOutcome::Withdrawn, .. })),
        "{gone:?}"
    );
    assert_eq!(hub.permission_reply(SESSION, "abxyz", Behavior::Allow, "p"), Err(ReplyError::NotOpen));
    let (id, _) = join(&mut hub, true, 1);
    assert!(hub.text(id, &ASK.replace("abxyz", "ablyz"), 0).is_empty(), "no proper id");
}

#[test]
fn replies_of_claude_are_told_once_they_are_kept() {
    let mut hub = hub();
    let (id, _) = join(&mut hub, true, 1);
    let said = |n: u64| json!({"type": "outbound_message", "call_id": format!("o{n}"), "chat_id": "c", "text": "hi", "files": ["/a"]});
    let actions = hub.text(id, &said(1).to_string(), 0);
    assert!(matches!(&actions[..], [Action::Outbound { seq: 1, message, .. }] if message.text == "hi"), "{actions:?}");
    assert!(hub.outbound_after(SESSION, 0, ApprovalRole::Approver).unwrap().is_empty(), "not before it is durable");
    assert_eq!(frames(&hub.outbound_stored(SESSION, 1, Ok(())))[0]["ok"], true);
    assert_eq!(hub.outbound_after(SESSION, 0, ApprovalRole::Approver).unwrap().len(), 1);
    assert!(hub.outbound_after(SESSION, 1, ApprovalRole::Approver).unwrap().is_empty());
    hub.text(id, &said(2).to_string(), 0);
    let lost = frames(&hub.outbound_stored(SESSION, 2, Err("the disk is full".into())));
    assert_eq!((&lost[0]["ok"], &lost[0]["error"]), (&json!(false), &json!("the disk is full")));
    assert_eq!(
        hub.outbound_after(SESSION, 0, ApprovalRole::Approver).unwrap().len(),
        1,
        "what was not kept was not said"
    );
    let mut forgotten = 0;
    for n in 3..=103 {
        forgotten +=
            hub.text(id, &said(n).to_string(), 0).iter().filter(|a| matches!(a, Action::ForgetSaid { .. })).count();
        hub.outbound_stored(SESSION, n, Ok(()));
    }
    assert_eq!(
        (forgotten, hub.outbound_after(SESSION, 0, ApprovalRole::Approver).unwrap().len()),
        (2, 100),
        "the last hundred are kept"
    );
    let long = json!({"type": "outbound_message", "call_id": "o2", "chat_id": "c", "text": "x".repeat(2 << 20)});
    assert_eq!(frames(&hub.text(id, &long.to_string(), 0))[0]["ok"], false);
    let closed = hub.close(SESSION).unwrap();
    assert_eq!(closed.iter().filter(|a| matches!(a, Action::ForgetSaid { .. })).count(), 100);
    // After a restart it continues where it stopped.
    hub.open(opening());
    for seq in [7, 8] {
        hub.restore_outbound(SESSION, seq, outbound("before"));
    }
    let (id, _) = join(&mut hub, true, 1);
    assert!(matches!(&hub.text(id, &said(1).to_string(), 0)[..], [Action::Outbound { seq: 9, .. }]));
    assert_eq!(hub.outbound_after(SESSION, 7, ApprovalRole::Approver).unwrap().len(), 1);
}

/// The question is posted in the chat, and the answer to the post is a verdict, not the result of a call.
#[toolyard_shows::shows("004-5-03")]
#[test]
fn a_question_is_posted_in_the_chat_that_the_session_serves() {
    let mut hub = hub();
    let (id, _) = join(&mut hub, true, 1);
    let asked = |hub: &mut Hub, name: &str| {
        let frame = json!({"type": "permission_request", "request_id": name, "tool": "Bash", "args": {},
            "rationale": "look around", "input_preview": "ls"});
        hub.text(id, &frame.to_string(), 0)
    };
    let posted = |actions: &[Action]| {
        actions.iter().find_map(|a| match a {
            Action::Outbound { seq, message, .. } => Some((*seq, message.clone())),
            _ => None,
        })
    };
    let unknown = asked(&mut hub, "abxyz");
    assert!(
        posted(&unknown).is_none() && unknown.iter().any(|a| matches!(a, Action::Asked { .. })),
        "no chat is known"
    );
    let said = |hub: &mut Hub, chat: &str, user: &str, from: ApprovalRole| {
        let mut said = message("m");
        said.meta.insert("chat_id".to_owned(), chat.into());
        said.meta.insert("user_id".to_owned(), user.into());
        hub.inbound(SESSION, said, from).unwrap();
    };
    said(&mut hub, "7", "u1", ApprovalRole::Approver);
    // No question is posted in the chat of a sender who may not answer.
    said(&mut hub, "8", "u1", ApprovalRole::Messenger);
    said(&mut hub, "9", "u2", ApprovalRole::Approver);
    said(&mut hub, "9", "", ApprovalRole::Approver);
    let (seq, post) = posted(&asked(&mut hub, "bcxyz")).unwrap();
    assert_eq!((post.chat_id.as_str(), post.permission.as_deref()), ("7", Some("bcxyz")));
    assert!(post.text.contains("Bash") && post.text.contains("look around") && post.text.contains("ls"), "{post:?}");
    assert!(post.text.ends_with("Approve? Reply `yes bcxyz` or `no bcxyz`."), "{post:?}");
    assert!(frames(&hub.outbound_stored(SESSION, seq, Ok(()))).is_empty(), "it answers no call");
    assert!(hub.outbound_after(SESSION, 0, ApprovalRole::Messenger).unwrap().is_empty(), "questions are for approvers");
    assert_eq!(hub.outbound_after(SESSION, 0, ApprovalRole::Approver).unwrap().len(), 1);
    // What a plugin says cannot pass for a question.
    let forged =
        json!({"type": "outbound_message", "call_id": "o", "chat_id": "7", "text": "x", "permission": "abxyz"});
    assert_eq!(posted(&hub.text(id, &forged.to_string(), 0)).unwrap().1.permission, None);
}

fn outbound(text: &str) -> toolyard_bridge::frames::OutboundMessage {
    serde_json::from_value(json!({"call_id": "o", "chat_id": "c", "text": text})).unwrap()
}

#[test]
fn more_tools_than_a_frame_carries_are_cut_and_the_plugin_stays() {
    let mut hub = hub();
    let id = hub.connected(0);
    hub.text(id, &hello(true, 1), 0);
    let tools = (0..20).map(|n| json!({"name": format!("t{n}"), "description": "x".repeat(1 << 20)})).collect();
    let sent = frames(&hub.welcome(id, Offer { tools, instructions: Some("Look.".into()) }));
    assert_eq!(sent[0]["session_meta"]["instructions"], "Look.");
    assert_eq!(sent[0]["tools"].as_array().unwrap().len(), 10);
}

#[test]
fn a_closed_session_is_unknown_and_an_opened_one_keeps_what_waits() {
    let mut hub = hub();
    hub.inbound(SESSION, message("m"), ApprovalRole::Approver).unwrap();
    hub.open(opening());
    assert_eq!(hub.view(None, ApprovalRole::Approver)[0].waiting, 1);
    let (id, _) = join(&mut hub, true, 1);
    let actions = hub.close(SESSION).unwrap();
    assert!(actions.iter().any(|a| matches!(a, Action::Close { to, code: 4002, .. } if *to == id)));
    assert!(actions.iter().any(|a| matches!(a, Action::Forget { request_id, .. } if request_id == "m")));
    assert_eq!(hub.inbound(SESSION, message("n"), ApprovalRole::Approver).unwrap_err(), ReplyError::UnknownSession);
    assert!(hub.is_empty() && hub.close(SESSION).is_none());
}
