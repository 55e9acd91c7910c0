//! [`ModelView`]: decides what a model is shown. Doors call it and forward the answer.

use crate::{BoxFuture, Caller, Engine};
use toolyard_catalog::surface::{EffectiveCatalogCache, Surface, Turn};
use toolyard_protocol::Failure;

/// Decides what a model is shown, and counts the savings.
pub trait ModelView: Send + Sync + 'static {
    /// What a model that acts for this caller is shown.
    fn show<'a>(
        &'a self,
        engine: &'a Engine,
        caller: &'a Caller,
        turn: Turn<'a>,
    ) -> BoxFuture<'a, Result<Shown, Failure>>;

    /// Counters in Prometheus' text form.
    fn metrics(&self) -> String {
        String::new()
    }
}

/// The tools and texts that a model is shown.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The tools and the text for the prompt.
    pub surface: Surface,
    /// A notice for the operator if the result differs from the configuration.
    pub notice: Option<String>,
}

/// Shows every tool the caller may use, with its schema.
#[derive(Default)]
pub struct FullView(EffectiveCatalogCache);

impl ModelView for FullView {
    fn show<'a>(
        &'a self,
        engine: &'a Engine,
        caller: &'a Caller,
        _: Turn<'a>,
    ) -> BoxFuture<'a, Result<Shown, Failure>> {
        Box::pin(async move {
            let catalog = self.0.of(&engine.tools().snapshot, &engine.policy_for(caller), &caller.scopes);
            Ok(Shown { surface: Surface::direct(&catalog), notice: None })
        })
    }
}
