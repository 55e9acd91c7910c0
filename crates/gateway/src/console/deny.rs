//! `/deny/CODE`: the page behind the link of a notification. Opening it changes nothing, because chat programs open links to
//! preview them; the button on it denies the question, once.

use super::pairing::{broken, protected};
use crate::{
    admission::{Admitted, coded},
    gateway::Gateway,
    http::fresh,
};
use axum::{
    body::Body,
    http::{HeaderValue, Method, StatusCode, header},
    response::Response,
};
use toolyard_service::console::{CodeProblem, DenyOutcome};

/// Answers with the page, or denies.
pub(crate) async fn deny(gateway: Gateway, request: Admitted) -> Response {
    let code = request.parts.uri.path().rsplit('/').next().unwrap_or_default();
    if let Some(wait) = gateway.inner.auth_failures.locked(&request.origin) {
        let message = "Too many links that do not work came from this address";
        let mut response = coded(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", message, Some("Wait, then try again."));
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        return protected(response);
    }
    let answered = match request.parts.method == Method::POST {
        true => match gateway.service().deny_by_link(code).await {
            Ok(DenyOutcome::Denied) => {
                Ok(page(StatusCode::OK, "Denied", "The question is denied. The call does not run.", ""))
            }
            Ok(DenyOutcome::TooLate) => Ok(page(
                StatusCode::CONFLICT,
                "Too late",
                "The question was answered already, or its time is over.",
                "",
            )),
            Err(problem) => Err(problem),
        },
        false => match gateway.service().console().is_deny_code(code) {
            Ok(true) => Ok(page(
                StatusCode::OK,
                "Deny this question?",
                "An agent waits for an answer. To see what it wants to do, open the console. A denial cannot be taken back.",
                "<form method=\"post\"><button type=\"submit\">Deny</button></form>",
            )),
            Ok(false) => Err(CodeProblem::Unknown),
            Err(error) => Err(CodeProblem::Store(error)),
        },
    };
    fresh(protected(match answered {
        Ok(page) => page,
        Err(CodeProblem::Store(error)) => broken(&error),
        Err(CodeProblem::Unknown | CodeProblem::Used | CodeProblem::Expired) => {
            gateway.inner.auth_failures.wrong(&request.origin);
            let text = "It was used, or the question was answered or has expired. Open the console to see what waits.";
            page(StatusCode::NOT_FOUND, "This link does not work any more", text, "")
        }
    }))
}

/// A page without scripts and styles. Its texts are ours: nothing of the question is on it, because the person with the
/// link may not be the owner.
fn page(status: StatusCode, title: &str, text: &str, form: &str) -> Response {
    // `same-origin` lets the browser name this page's origin with the form; the code is sent to nobody else.
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"referrer\" content=\"same-origin\"><meta name=\"robots\" content=\"noindex\"><title>{title} · Toolyard</title>\
         </head><body><main><h1>{title}</h1><p>{text}</p>{form}<p><a href=\"/\">Open the console</a></p></main></body></html>"
    );
    let mut response = Response::new(Body::from(html));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
