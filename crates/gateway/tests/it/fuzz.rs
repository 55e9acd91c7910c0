//! Invalid frames: seeded random bytes, truncated and modified requests. The gateway answers or closes as documented,
//! and continues to serve other clients.

use crate::harness::{PATIENCE, Server};
use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio_websockets::Message;

/// A small generator of our own: the same seed gives the same frames on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides.max(1)
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.roll(if depth == 0 { 6 } else { 9 }) {
            0 => Value::Null,
            1 => json!(self.roll(2) == 0),
            2 => json!(self.0 as i64),
            3 => json!(-1.5e300),
            4 => "é\u{0}\u{202e}x".repeat(self.roll(40) as usize).into(),
            5 => ["main", "agent:main:main", "bench_echo", "operator.admin", "", "plugin:x"][self.roll(6) as usize]
                .into(),
            6 => (0..self.roll(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let names = [
                    "name",
                    "args",
                    "sessionKey",
                    "key",
                    "id",
                    "decision",
                    "params",
                    "plan",
                    "runId",
                    "limit",
                    "__proto__",
                ];
                let count = self.roll(5);
                (0..count)
                    .map(|_| (names[self.roll(11) as usize].to_owned(), self.value(depth - 1)))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_frame_brings_the_gateway_down_or_goes_unanswered() {
    let server = Server::start().await;
    let mut witness = server.client(&["operator.read"], &[]).await;
    let methods: Vec<String> = {
        let mut ws = server.open().await;
        let hello = ws.connect(crate::harness::connect_params(&["operator.admin"], &["approvals"])).await;
        serde_json::from_value(hello["payload"]["features"]["methods"].clone()).unwrap()
    };
    let mut dice = Dice(20_261_115);
    for round in 0..12 {
        let mut ws = server.client(&["operator.admin"], &["approvals"]).await;
        let mut expected = 0;
        for i in 0..60 {
            let method = &methods[dice.roll(methods.len() as u64) as usize];
            // These methods wait for a person's answer for two minutes, so they are left out.
            if method.contains("approval.request") || method.contains("waitDecision") {
                continue;
            }
            let frame =
                json!({"type": "req", "id": format!("f{round}-{i}"), "method": method, "params": dice.value(3)});
            let mut text = frame.to_string();
            match dice.roll(5) {
                0 => {
                    // Cut somewhere: mostly not JSON any more, and then there is no answer.
                    let mut at = dice.roll(text.len() as u64) as usize;
                    while !text.is_char_boundary(at) {
                        at -= 1;
                    }
                    text.truncate(at);
                    ws.send(text).await;
                    continue;
                }
                1 => text = dice.value(3).to_string(),
                2 => {
                    let bytes: Vec<u8> = (0..dice.roll(200)).map(|_| dice.roll(256) as u8).collect();
                    let _ = ws.socket.send(Message::binary(bytes)).await;
                    continue;
                }
                _ => {}
            }
            expected += 1;
            ws.send(text).await;
        }
        // Every frame that was JSON is answered, and the connection is still open.
        ws.send(json!({"type": "req", "id": "last", "method": "health"}).to_string()).await;
        let mut answered = 0;
        let mut last_seen = false;
        while answered < expected || !last_seen {
            let frame = ws.frame().await;
            let Some(frame) = frame else { panic!("round {round}: {answered} of {expected}, closed {:?}", ws.closed) };
            if frame["type"] == "res" {
                if frame["id"] == "last" {
                    last_seen = true;
                } else {
                    answered += 1;
                }
            }
        }
        assert_eq!(witness.call("health", json!({})).await["ok"], true);
    }
}

#[tokio::test]
async fn random_first_frames_are_refused_and_closed() {
    let server = Server::start().await;
    let mut dice = Dice(7);
    for _ in 0..60 {
        let mut ws = server.open().await;
        ws.challenge().await;
        match dice.roll(4) {
            0 => ws.send(dice.value(3).to_string()).await,
            1 => ws.send("[".repeat(dice.roll(2000) as usize)).await,
            2 => {
                let bytes: Vec<u8> = (0..dice.roll(300)).map(|_| dice.roll(256) as u8).collect();
                let _ = ws.socket.send(Message::binary(bytes)).await;
            }
            _ => {
                let frame = json!({"type": "req", "id": "c", "method": "connect", "params": dice.value(4)});
                ws.send(frame.to_string()).await;
            }
        }
        let (code, _) = ws.until_closed(PATIENCE).await;
        assert!(matches!(code, 1000 | 1002 | 1007 | 1008), "{code}");
    }
    server.client(&["operator.read"], &[]).await.call("status", json!({})).await;
}
