//! The sandbox from outside: what a script can do, what it cannot, and what the parent says afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod escapes;
mod harness;
mod layers;
mod scripts;
mod walls;
