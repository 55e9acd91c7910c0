//! [`HttpMethods`]: the HTTP methods that a route accepts.

use axum::http::Method;

/// The HTTP methods that a route accepts.
#[derive(Clone, Copy)]
pub(crate) enum HttpMethods {
    /// `GET` and `HEAD`.
    Read,
    Get,
    Post,
    /// `GET` and `HEAD` for a page, and `POST` for its form.
    Form,
    /// The route checks the method itself.
    Any,
}

impl HttpMethods {
    pub(crate) fn accept(self, method: &Method) -> bool {
        match self {
            Self::Read => matches!(*method, Method::GET | Method::HEAD),
            Self::Get => method == Method::GET,
            Self::Post => method == Method::POST,
            Self::Form => matches!(*method, Method::GET | Method::HEAD | Method::POST),
            Self::Any => true,
        }
    }

    /// The value of `Allow`.
    pub(crate) fn names(self) -> &'static str {
        match self {
            Self::Read => "GET, HEAD",
            Self::Get | Self::Any => "GET",
            Self::Post => "POST",
            Self::Form => "GET, HEAD, POST",
        }
    }
}
