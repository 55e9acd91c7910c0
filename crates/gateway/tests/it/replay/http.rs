//! The recorded HTTP exchanges: status, kind of content, and the body's keys.

use super::differences::{self, Shape};
use crate::harness::TOKEN;
use serde_json::Value;

pub(super) async fn exchanges() -> Vec<String> {
    let server = super::server().await;
    let mut wrong = Vec::new();
    for line in super::lines(super::HTTP) {
        let word = |key: &str| line[key].as_str().unwrap_or_default();
        let case = word("case");
        let bearer = match word("auth") {
            "y" => format!("\r\nAuthorization: Bearer {TOKEN}"),
            "bad" => "\r\nAuthorization: Bearer wrong".to_owned(),
            _ => String::new(),
        };
        let request = format!("{} {} HTTP/1.1{bearer}", word("method"), word("path"));
        let (status, head, body) = server.exchange(&request, word("reqBody")).await;
        let (want_status, want_body) = differences::http_instead(case).unwrap_or((word("status"), word("body")));
        if status.to_string() != want_status {
            wrong.push(format!("{case}: {status} instead of {want_status}: {body}"));
            continue;
        }
        let head = head.to_lowercase();
        for name in ["x-content-type-options: nosniff", "referrer-policy: no-referrer", "permissions-policy: "] {
            if !head.contains(name) {
                wrong.push(format!("{case}: without the header {name}"));
            }
        }
        match serde_json::from_str::<Value>(want_body) {
            Ok(want) => {
                let got: Value = serde_json::from_str(&body).unwrap_or_default();
                if !head.contains("content-type: application/json; charset=utf-8") {
                    wrong.push(format!("{case}: {head}"));
                }
                if want["ok"] != got["ok"] || want["error"]["type"] != got["error"]["type"] {
                    wrong.push(format!("{case}: {got} instead of {want}"));
                }
                let mut shape = Vec::new();
                Shape { absent: differences::absent(word("path")) }.compare(&want, &got, "", &mut shape);
                wrong.extend(shape.into_iter().map(|d| format!("{case}: {d}")));
            }
            Err(_) if body != want_body => wrong.push(format!("{case}: {body:?} instead of {want_body:?}")),
            Err(_) => {}
        }
    }
    wrong
}
