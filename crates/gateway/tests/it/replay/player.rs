//! Plays the steps of a scenario on connections to a gateway and compares what comes back.

use super::{
    differences::{self, Shape},
    facts::{Act, Answer, Device, Event, Facts, Signature},
};
use crate::harness::Server;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use ed25519_dalek::{Signer as _, SigningKey};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::mpsc;
use tokio_websockets::Message;

/// How long an event may take; the slowest is a question that expires after 20 seconds.
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
    facts: &'a Facts,
    lines: HashMap<String, Line>,
    /// Names for what the recorded gateway made up, and what this one made up in its place.
    ours: Vec<(String, String)>,
    /// What each request of a recording asked for.
    asked: HashMap<(String, String), String>,
    wrong: Vec<String>,
}

impl<'a> Player<'a> {
    pub(super) fn new(server: &'a Server, facts: &'a Facts) -> Self {
        Self { server, facts, lines: HashMap::new(), ours: Vec::new(), asked: HashMap::new(), wrong: Vec::new() }
    }

    pub(super) fn finish(self) -> Vec<String> {
        self.wrong
    }

    pub(super) async fn step(&mut self, name: &str, act: &Act) {
        match act {
            Act::Open { origin } => self.open(name, origin.as_deref()).await,
            Act::Send { frame, device } => self.send(name, frame, device.as_ref()),
            Act::SendText { text, pad_to } => self.send_text(name, text, *pad_to),
            Act::Answer(want) => self.answer(name, want).await,
            Act::Event(want) => self.event(name, want).await,
            Act::Close { code, reason } => self.close(name, *code, reason).await,
            Act::Silence => self.silence(name).await,
            Act::Leave => drop(self.lines.remove(name)),
        }
    }

    async fn open(&mut self, name: &str, origin: Option<&str>) {
        let headers: Vec<(&'static str, &str)> = origin.map(|origin| ("origin", origin)).into_iter().collect();
        let socket = self.server.open_with("/", &headers).await.unwrap().socket;
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

    fn send(&mut self, name: &str, frame: &Value, device: Option<&Device>) {
        let Some(line) = self.lines.get(name) else { return };
        let method = frame["method"].as_str().unwrap_or_default();
        self.asked.insert((name.to_owned(), frame["id"].to_string()), method.to_owned());
        let mut text = frame.to_string();
        for (theirs, ours) in &self.ours {
            text = text.replace(theirs, ours);
        }
        if let Some(device) = device {
            text = sign(serde_json::from_str(&text).unwrap(), device, &line.nonce).to_string();
        }
        let _ = line.out.send(Message::text(text));
    }

    /// Only the beginning of a very long text is kept; it is filled up to its length and ended.
    fn send_text(&self, name: &str, text: &str, pad_to: usize) {
        let Some(line) = self.lines.get(name) else { return };
        let text = match pad_to.checked_sub(text.len()) {
            Some(missing) => format!("{text}{}\"}}}}", "x".repeat(missing)),
            None => text.to_owned(),
        };
        let _ = line.out.send(Message::text(text));
    }

    async fn answer(&mut self, name: &str, want: &Answer) {
        let id = &want.id;
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
        self.learn(&want.learn, &got["payload"]);
        let method = self.asked.get(&(name.to_owned(), id.to_string())).map_or("", String::as_str);
        let mut wrong = Vec::new();
        let ok = Some(Value::Bool(want.ok));
        for (path, want) in [
            ("/ok", &ok),
            ("/error/code", &want.code),
            ("/error/details/code", &want.details_code),
            ("/error/details/reason", &want.details_reason),
            ("/payload/ok", &want.payload_ok),
            ("/payload/error/code", &want.payload_code),
        ] {
            let (want, got) = (want.as_ref(), got.pointer(path));
            if want != got {
                wrong.push(format!("{path} is {got:?} instead of {want:?}"));
            }
        }
        let shape = Shape { absent: differences::absent(method) };
        shape.compare(self.facts.shape(want.payload.as_ref()), &got["payload"], "", &mut wrong);
        self.wrong.extend(wrong.into_iter().map(|d| format!("{name} {id} {method}: {d}")));
    }

    async fn event(&mut self, name: &str, want: &Event) {
        let event = want.event.as_str();
        let Some(got) = self.heard(name, |f| f["event"] == event).await else {
            self.wrong.push(format!("{name}: no event {event}"));
            return;
        };
        if let (Some(nonce), Some(line)) = (got["payload"]["nonce"].as_str(), self.lines.get_mut(name)) {
            line.nonce = nonce.to_owned();
        }
        self.learn(&want.learn, &got["payload"]);
        let mut wrong = Vec::new();
        for (key, want) in [("seq", want.seq), ("stateVersion", want.state_version)] {
            if want != got.get(key).is_some() {
                wrong.push(format!("{key}: {got}"));
            }
        }
        for (key, want) in [("decision", &want.decision), ("resolvedBy", &want.resolved_by)] {
            if *want != got["payload"][key] {
                wrong.push(format!("{key} is {} instead of {want}", got["payload"][key]));
            }
        }
        let shape = Shape { absent: differences::absent(event) };
        shape.compare(self.facts.shape(want.payload.as_ref()), &got["payload"], "", &mut wrong);
        self.wrong.extend(wrong.into_iter().map(|d| format!("{name} event {event}: {d}")));
    }

    async fn close(&mut self, name: &str, code: u16, reason: &str) {
        if differences::stays_open(name) {
            return;
        }
        self.heard(name, |_| false).await;
        let Some(line) = self.lines.get(name) else { return };
        if line.closed.as_ref().map(|(code, _)| *code) != Some(code) {
            self.wrong.push(format!("{name}: closed {:?} instead of {code}", line.closed));
        }
        // If the real gateway gives a reason, ours must be equal; if it gives none, ours may give one.
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

    /// Keeps ids and tokens that the gateway made up, to be sent where a request names them.
    fn learn(&mut self, learn: &BTreeMap<String, String>, got: &Value) {
        for (path, name) in learn {
            match got.pointer(path).and_then(Value::as_str) {
                Some(ours) => self.ours.push((name.clone(), ours.to_owned())),
                None => self.wrong.push(format!("a payload lacks {path}, which later requests need: {got}")),
            }
        }
    }

    /// The first matching frame, received already or still to come.
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

/// Signs a connect frame over this gateway's nonce, with a key made from the device's name, as old as the recorded
/// signature was. What was wrong with the recorded signature is wrong with this one.
fn sign(mut frame: Value, device: &Device, nonce: &str) -> Value {
    let seed: [u8; 32] = Sha256::digest(&device.key).into();
    let key = SigningKey::from_bytes(&seed);
    let public = key.verifying_key().to_bytes();
    let id: String = Sha256::digest(public).iter().map(|b| format!("{b:02x}")).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let signed_at = now - device.age_ms;
    let nonce = device.nonce.as_deref().unwrap_or(nonce);
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
    let signature = match device.signature {
        Some(Signature::Wrong) => [b'0'; 64],
        None => key.sign(text.as_bytes()).to_bytes(),
    };
    frame["params"]["device"] = json!({
        "id": id, "publicKey": BASE64URL.encode(public), "signature": BASE64URL.encode(signature),
        "signedAt": signed_at, "nonce": nonce,
    });
    frame
}
