//! Every HTTP route and its requirements, for the authority page and its tests.

use toolyard_engine::authority::{Demand, Effect};

/// The credential that an HTTP route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// No credential: the route reports whether the program is up.
    None,
    /// The gateway's token. A request with it is admitted as an agent of the owner, never as a person.
    Shared,
    /// The token of one bridged session, in the first frame.
    Session,
    /// A page that this gateway served, with a one-use code or the cookie of a paired browser.
    OwnPage,
    /// A one-use code in the path, which a notification carried.
    DenyCode,
    /// The cookie of a paired browser, and its key's signature in the first frame or a ticket in the path.
    Browser,
    /// An envelope that a node of the same cluster signed.
    Node,
}

impl Credential {
    /// The words in documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Shared => "the gateway's token",
            Self::Session => "a session's token",
            Self::OwnPage => "the console's own page, with a one-use code or its cookie",
            Self::DenyCode => "a one-use code that denies one question",
            Self::Node => "an envelope signed by a node of the cluster",
            Self::Browser => "a paired browser's cookie, with its key's signature or a one-use ticket",
        }
    }
}

/// An HTTP route and what it demands.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The path. If it ends with `/*`, it covers all paths below it.
    pub path: &'static str,
    /// What must be shown.
    pub credential: Credential,
    /// What a request may do.
    pub demand: Demand,
}

const fn route(path: &'static str, credential: Credential, effect: Effect) -> Route {
    Route { path, credential, demand: Demand::new(None, effect) }
}

/// Every HTTP route. Any other path is a page or a file of the console, leads to the WebSocket door, or is answered with 404.
pub const ROUTES: &[Route] = &[
    route("/health", Credential::None, Effect::None),
    route("/healthz", Credential::None, Effect::None),
    route("/ready", Credential::None, Effect::None),
    route("/readyz", Credential::None, Effect::None),
    route("/metrics", Credential::Shared, Effect::None),
    route("/tools/invoke", Credential::Shared, Effect::Recorded),
    route("/runs/{run}/events", Credential::Shared, Effect::None),
    route("/bridge", Credential::Session, Effect::Recorded),
    route("/bridge/inbound", Credential::Shared, Effect::State),
    route("/mcp", Credential::Shared, Effect::Recorded),
    // Requests of other nodes, decided with the rights of the caller that they carry. Only in a cluster.
    route("/node", Credential::Node, Effect::Recorded),
    // The console's pages and files are public, as they are in every copy of the program.
    route("/", Credential::None, Effect::None),
    route("/console/session", Credential::None, Effect::None),
    route("/pair", Credential::OwnPage, Effect::State),
    route("/logout", Credential::OwnPage, Effect::State),
    route("/console/socket", Credential::Browser, Effect::Recorded),
    route("/download/{ticket}", Credential::Browser, Effect::None),
    route("/deny/{code}", Credential::DenyCode, Effect::State),
    // The context store's own protocol: a store with accounts, without tools and without host paths.
    route("/openviking/health", Credential::None, Effect::None),
    route("/openviking/ready", Credential::None, Effect::None),
    route("/openviking/*", Credential::Shared, Effect::State),
    route("/api/v1/*", Credential::Shared, Effect::State),
    route("/api/openviking/*", Credential::Shared, Effect::None),
];
