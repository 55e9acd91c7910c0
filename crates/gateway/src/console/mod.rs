//! The console's door: its files, pairing, its session, its socket and its downloads.
//!
//! A browser is a person here if it shows three things: an origin of our own, the cookie of a paired device, and a
//! signature of that device's key over the nonce of the connection. Rights come from the stored device, never from what
//! the page says.

mod assets;
mod cookie;
mod deny;
mod download;
mod pairing;
mod socket;

pub(crate) use assets::{asset, serve_asset};
pub(crate) use deny::deny;
pub(crate) use download::download;
pub(crate) use pairing::{FORM, logout, pair, session};
pub(crate) use socket::{PendingBrowser, connect, hello, socket};
