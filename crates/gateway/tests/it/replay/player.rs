//! Plays the lines of a recording on connections to a gateway and compares what comes back.

use super::differences::{self, Shape};
use crate::harness::Server;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use ed25519_dalek::{Signer as _, SigningKey};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::mpsc;
use tokio_websockets::Message;

/// Time for anything to happen: the slowest is a question that nobody answers for 20 seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long silence is listened to.
const SILENCE: Duration = Duration::from_millis(300);

/// A connection that reads all the time, so that pings are answered while another connection is looked at.
struct Line {
    out: mpsc::UnboundedSender<Message>,
    heard: mpsc::UnboundedReceiver<Heard>,
    kept: Vec<Value>,
    closed: Option<(u16, String)>,
    nonce: String,
    last_seq: u64,
}

enum Heard {
    Frame(Value),
    Closed(u16, String),
}

pub(super) struct Player<'a> {
    server: &'a Server,
    lines: HashMap<String, Line>,
    /// Texts that the recorded gateway made up, and ours in their place.
    ours: Vec<(String, String)>,
    /// What each request of a recording asked for.
    asked: HashMap<(String, String), String>,
    wrong: Vec<String>,
}

impl<'a> Player<'a> {
    pub(super) fn new(server: &'a Server) -> Self {
        Self { server, lines: HashMap::new(), ours: Vec::new(), asked: HashMap::new(), wrong: Vec::new() }
    }

    pub(super) fn finish(self) -> Vec<String> {
        self.wrong
    }

    pub(super) async fn line(&mut self, name: &str, line: &Value) {
        match line["dir"].as_str().unwrap_or_default() {
            "open" => self.open(name).await,
            "send" => self.send(name, line),
            "recv" if line["frame"]["type"] == "res" => self.response(name, &line["frame"]).await,
            "recv" if line["frame"]["type"] == "event" => self.event(name, &line["frame"]).await,
            "close" => self.close(name, line).await,
            "timeout" => self.silence(name).await,
            "closed-by-us" => drop(self.lines.remove(name)),
            other => self.wrong.push(format!("{name}: a line that cannot be played: {other}")),
        }
    }

    async fn open(&mut self, name: &str) {
        // The page's origin is not in the recording; its name says what it was.
        let headers: &[(&'static str, &str)] =
            if name == "origin-evil" { &[("origin", "https://evil.example")] } else { &[] };
        let socket = self.server.open_with("/", headers).await.unwrap().socket;
        let (mut sink, mut stream) = socket.split();
        let (out, mut to_send) = mpsc::unbounded_channel::<Message>();
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(message) = to_send.recv().await {
                let _ = sink.send(message).await;
            }
        });
        tokio::spawn(async move {
            loop {
                let told = match stream.next().await {
                    Some(Ok(message)) if message.is_text() => {
                        Heard::Frame(serde_json::from_str(message.as_text().unwrap()).unwrap())
                    }
                    Some(Ok(message)) if message.is_close() => {
                        let (code, reason) = message.as_close().unwrap();
                        Heard::Closed(u16::from(code), reason.to_owned())
                    }
                    Some(Ok(_)) => continue,
                    Some(Err(_)) | None => Heard::Closed(1006, String::new()),
                };
                let is_end = matches!(told, Heard::Closed(..));
                if tell.send(told).is_err() || is_end {
                    return;
                }
            }
        });
        let line = Line { out, heard, kept: Vec::new(), closed: None, nonce: String::new(), last_seq: 0 };
        self.lines.insert(name.to_owned(), line);
    }

    fn send(&mut self, name: &str, recorded: &Value) {
        let Some(line) = self.lines.get(name) else { return };
        if recorded.get("binary").is_some() {
            let _ = line.out.send(Message::binary(vec![0u8, 1]));
            return;
        }
        let mut text = match recorded.get("frame") {
            Some(frame) => {
                let (id, method) = (frame["id"].to_string(), frame["method"].as_str().unwrap_or_default());
                self.asked.insert((name.to_owned(), id), method.to_owned());
                frame.to_string()
            }
            None => recorded["raw"].as_str().unwrap_or_default().to_owned(),
        };
        for (theirs, ours) in &self.ours {
            text = text.replace(theirs, ours);
        }
        if recorded["frame"]["params"]["device"].is_object() {
            text = sign(name, serde_json::from_str(&text).unwrap(), recorded, &line.nonce).to_string();
        }
        let length = recorded["rawLen"].as_u64().unwrap_or_default() as usize;
        if length > text.len() + 1000 {
            // The recording keeps only the beginning of a very long text.
            text = format!("{text}{}\"}}}}", "x".repeat(length - text.len()));
        }
        let _ = line.out.send(Message::text(text));
    }

    async fn response(&mut self, name: &str, want: &Value) {
        let id = &want["id"];
        let Some(got) = self.heard(name, |f| f["type"] == "res" && f["id"] == *id).await else {
            let closed = self.lines.get(name).and_then(|l| l.closed.clone());
            self.wrong.push(format!("{name} {id}: no answer, closed {closed:?}"));
            return;
        };
        if let Some(expected) = differences::instead(name, id.as_str().unwrap_or_default()) {
            let what = format!("{name} {id}, on purpose");
            self.wrong.extend(differences::holds(&expected, &got).into_iter().map(|d| format!("{what}: {d}")));
            return;
        }
        self.learn(&want["payload"], &got["payload"]);
        let method = self.asked.get(&(name.to_owned(), id.to_string())).map_or("", String::as_str);
        let mut wrong = Vec::new();
        for path in ["/type", "/ok", "/error/code", "/error/details/code", "/error/details/reason", "/payload/ok"] {
            let (want, got) = (want.pointer(path), got.pointer(path));
            if want != got {
                wrong.push(format!("{path} is {got:?} instead of {want:?}"));
            }
        }
        if want["payload"]["error"]["code"] != got["payload"]["error"]["code"] {
            wrong.push(format!("{} instead of {}", got["payload"]["error"], want["payload"]["error"]));
        }
        let shape = Shape { absent: differences::absent(method) };
        shape.compare(&want["payload"], &got["payload"], "", &mut wrong);
        self.wrong.extend(wrong.into_iter().map(|d| format!("{name} {id} {method}: {d}")));
    }

    async fn event(&mut self, name: &str, want: &Value) {
        let event = want["event"].as_str().unwrap_or_default().to_owned();
        let Some(got) = self.heard(name, |f| f["event"] == event.as_str()).await else {
            self.wrong.push(format!("{name}: no event {event}"));
            return;
        };
        if let (Some(nonce), Some(line)) = (got["payload"]["nonce"].as_str(), self.lines.get_mut(name)) {
            line.nonce = nonce.to_owned();
        }
        self.learn(&want["payload"], &got["payload"]);
        let mut wrong = Vec::new();
        for key in ["seq", "stateVersion"] {
            if want.get(key).is_some() != got.get(key).is_some() {
                wrong.push(format!("{key}: {got}"));
            }
        }
        if want["payload"]["decision"] != got["payload"]["decision"]
            || want["payload"]["resolvedBy"] != got["payload"]["resolvedBy"]
        {
            wrong.push(format!("{} instead of {}", got["payload"], want["payload"]));
        }
        let shape = Shape { absent: differences::absent(&event) };
        shape.compare(&want["payload"], &got["payload"], "", &mut wrong);
        self.wrong.extend(wrong.into_iter().map(|d| format!("{name} event {event}: {d}")));
    }

    async fn close(&mut self, name: &str, want: &Value) {
        if differences::stays_open(name) {
            return;
        }
        self.heard(name, |_| false).await;
        let Some(line) = self.lines.get(name) else { return };
        let code = line.closed.as_ref().map(|(code, _)| u64::from(*code));
        if code != want["code"].as_u64() {
            self.wrong.push(format!("{name}: closed {:?} instead of {}", line.closed, want["code"]));
        }
        // Where the real one gives a reason, ours is the same; where it gives none, ours may say more.
        let reason = want["reason"].as_str().unwrap_or_default();
        if let Some((_, ours)) = line.closed.as_ref().filter(|(_, ours)| !reason.is_empty() && ours != reason)
            && !differences::other_reason(name)
        {
            self.wrong.push(format!("{name}: closed because {ours:?} instead of {reason:?}"));
        }
    }

    async fn silence(&mut self, name: &str) {
        let until = tokio::time::Instant::now() + SILENCE;
        while let Some(frame) = self.next(name, until).await {
            if frame["type"] == "res" {
                self.wrong.push(format!("{name}: silence expected, got {frame}"));
            }
            if let Some(line) = self.lines.get_mut(name) {
                line.kept.push(frame);
            }
        }
    }

    /// Ids and tokens that a gateway makes up are learned, to be said instead of the recorded ones.
    fn learn(&mut self, want: &Value, got: &Value) {
        for path in ["/id", "/auth/deviceToken"] {
            if let (Some(theirs), Some(ours)) =
                (want.pointer(path).and_then(Value::as_str), got.pointer(path).and_then(Value::as_str))
            {
                self.ours.push((theirs.to_owned(), ours.to_owned()));
            }
        }
    }

    /// The first frame that fits, heard already or still to come.
    async fn heard(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        let line = self.lines.get_mut(name)?;
        if let Some(at) = line.kept.iter().position(&wanted) {
            return Some(line.kept.remove(at));
        }
        let until = tokio::time::Instant::now() + PATIENCE;
        while let Some(frame) = self.next(name, until).await {
            if wanted(&frame) {
                return Some(frame);
            }
            self.lines.get_mut(name)?.kept.push(frame);
        }
        None
    }

    async fn next(&mut self, name: &str, until: tokio::time::Instant) -> Option<Value> {
        let line = self.lines.get_mut(name)?;
        match tokio::time::timeout_at(until, line.heard.recv()).await.ok()?? {
            Heard::Frame(frame) => {
                if let Some(seq) = frame["seq"].as_u64() {
                    if seq != line.last_seq + 1 {
                        self.wrong.push(format!("{name}: event {seq} after {}", line.last_seq));
                    }
                    line.last_seq = seq;
                }
                Some(frame)
            }
            Heard::Closed(code, reason) => {
                line.closed.get_or_insert((code, reason));
                None
            }
        }
    }
}

/// Signs a recorded connect frame anew: with a key of ours in place of the recorded one, over this gateway's nonce, as
/// old as the recorded signature was. What was wrong with the recorded one is wrong with ours.
fn sign(name: &str, mut frame: Value, recorded: &Value, nonce: &str) -> Value {
    let device = recorded["frame"]["params"]["device"].clone();
    let seed: [u8; 32] = Sha256::digest(device["id"].as_str().unwrap()).into();
    let key = SigningKey::from_bytes(&seed);
    let public = key.verifying_key().to_bytes();
    let id: String = Sha256::digest(public).iter().map(|b| format!("{b:02x}")).collect();
    let age_ms = recorded["t"].as_f64().unwrap() * 1000.0 - device["signedAt"].as_f64().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let signed_at = now - age_ms as u64;
    let nonce = if name == "connect-device-bad-nonce" { device["nonce"].as_str().unwrap() } else { nonce };
    let params = &frame["params"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let scopes: Vec<String> = params["scopes"].as_array().unwrap().iter().map(word).collect();
    let client = &params["client"];
    let text = format!(
        "v3|{id}|{}|{}|{}|{}|{signed_at}|{}|{nonce}|{}|{}",
        word(&client["id"]),
        word(&client["mode"]),
        word(&params["role"]),
        scopes.join(","),
        word(&params["auth"]["token"]),
        word(&client["platform"]),
        word(&client["deviceFamily"]),
    );
    let signature = match name {
        "connect-device-bad-signature" => word(&device["signature"]),
        _ => BASE64URL.encode(key.sign(text.as_bytes()).to_bytes()),
    };
    frame["params"]["device"] = json!({
        "id": id, "publicKey": BASE64URL.encode(public), "signature": signature, "signedAt": signed_at, "nonce": nonce,
    });
    frame
}
