//! The embedding as its users meet it: texts in, nearness out.

mod meaning;
mod vectors;
