//! The bucket on an S3-compatible server, which `make object-store` starts.

// Test helpers may panic, as tests do.
#![allow(clippy::unwrap_used)]

mod server;
