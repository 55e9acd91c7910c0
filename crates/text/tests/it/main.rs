//! The embedding as its users meet it: texts in, nearness out.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod meaning;
mod tokens;
mod vectors;
