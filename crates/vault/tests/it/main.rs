//! The vault as the engine uses it: calls go through `prepare` and `execute` on real folders.

mod concurrency;
mod crash;
mod figures;
mod overlay;
mod paths;
mod regression;
mod rename;
mod support;
mod tools;
mod undo;
