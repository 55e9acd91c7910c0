//! The HTTP exchanges: status, kind of content, and the body's keys.

use super::{
    differences::{self, HttpAnswer, HttpBody, Shape},
    facts::{Credential, Exchange, Facts},
};
use crate::harness::TOKEN;
use serde_json::Value;

const SECURITY_HEADERS: [&str; 3] =
    ["x-content-type-options: nosniff", "referrer-policy: no-referrer", "permissions-policy: "];

pub(super) async fn exchanges(facts: &Facts) -> Vec<String> {
    let server = super::server().await;
    let mut wrong = Vec::new();
    for exchange in &facts.http {
        let case = &exchange.case;
        let bearer = match exchange.auth {
            Credential::Right => format!("\r\nAuthorization: Bearer {TOKEN}"),
            Credential::Wrong => "\r\nAuthorization: Bearer wrong".to_owned(),
            Credential::None => String::new(),
        };
        let request = format!("{} {} HTTP/1.1{bearer}", exchange.method, exchange.path);
        let (status, head, body) = server.exchange(&request, &exchange.body).await;
        let want = differences::http_instead(case).unwrap_or_else(|| recorded(facts, exchange));
        if status != want.status {
            wrong.push(format!("{case}: {status} instead of {}: {body}", want.status));
            continue;
        }
        let head = head.to_lowercase();
        for name in SECURITY_HEADERS {
            if !head.contains(name) {
                wrong.push(format!("{case}: without the header {name}"));
            }
        }
        match want.body {
            HttpBody::Json { ok, error_type, shape } => {
                let got: Value = serde_json::from_str(&body).unwrap_or_default();
                if !head.contains("content-type: application/json; charset=utf-8") {
                    wrong.push(format!("{case}: {head}"));
                }
                if ok != got["ok"] || error_type != got["error"]["type"] {
                    wrong.push(format!("{case}: {got} instead of ok {ok} and error type {error_type}"));
                }
                let mut differs = Vec::new();
                Shape { absent: differences::absent(&exchange.path) }.compare(&shape, &got, "", &mut differs);
                wrong.extend(differs.into_iter().map(|d| format!("{case}: {d}")));
            }
            HttpBody::Text(text) if body != text => wrong.push(format!("{case}: {body:?} instead of {text:?}")),
            HttpBody::Text(_) => {}
        }
    }
    wrong
}

fn recorded(facts: &Facts, exchange: &Exchange) -> HttpAnswer {
    let body = match &exchange.shape {
        None => HttpBody::Text(exchange.text.clone()),
        name => HttpBody::Json {
            ok: exchange.ok.clone(),
            error_type: exchange.error_type.clone(),
            shape: facts.shape(name.as_ref()).clone(),
        },
    };
    HttpAnswer { status: exchange.status, body }
}
