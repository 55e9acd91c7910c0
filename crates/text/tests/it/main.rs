//! Tests of the embedding's public interface.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod meaning;
mod tokens;
mod vectors;
