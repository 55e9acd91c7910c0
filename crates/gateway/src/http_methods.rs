//! Which HTTP methods a route takes.

use axum::http::Method;

/// The methods of a route.
#[derive(Clone, Copy)]
pub(crate) enum Verbs {
    /// `GET` and `HEAD`.
    Look,
    Get,
    Post,
    /// A page and its form: `GET`, `HEAD` and `POST`.
    Form,
    /// The route checks the method itself.
    Any,
}

impl Verbs {
    pub(crate) fn takes(self, method: &Method) -> bool {
        match self {
            Self::Look => matches!(*method, Method::GET | Method::HEAD),
            Self::Get => method == Method::GET,
            Self::Post => method == Method::POST,
            Self::Form => matches!(*method, Method::GET | Method::HEAD | Method::POST),
            Self::Any => true,
        }
    }

    /// The value of `Allow`.
    pub(crate) fn names(self) -> &'static str {
        match self {
            Self::Look => "GET, HEAD",
            Self::Get | Self::Any => "GET",
            Self::Post => "POST",
            Self::Form => "GET, HEAD, POST",
        }
    }
}
