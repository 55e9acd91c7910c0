//! The prediction of a call: a dry run that is made when a person is asked about the call.

use super::{approve::AskedCall, envelope};
use crate::{
    CallContext, NestedCalls, Output, Progress, Provider,
    approvals::{Prediction, PreviewState},
    attempt::{Attempt, Stopped},
    scope::Previews,
};
use std::{sync::Arc, time::Duration};
use toolyard_protocol::ToolCall;

/// A prediction takes at most this long; the question is asked without it then.
const PREDICT_TIME: Duration = Duration::from_secs(10);

/// Runs the call on a twin of its provider, whose effects stay in memory. Hooks have run already and do not run again.
pub(super) async fn predict(asked: &AskedCall<'_>) -> Prediction {
    let definition = asked.entry.definition();
    if !definition.has_side_effects() || !definition.supports_dry_run {
        return Prediction::default();
    }
    let previews = Previews::default();
    let twin = asked.scope.tools.provider(asked.entry.id()).and_then(|provider| previews.of(provider));
    let Some(twin) = twin else { return Prediction::default() };
    let twin: Arc<dyn Provider> = twin;
    let AskedCall { engine, scope, call_id, call, entry, .. } = *asked;
    let (args, args_hash) = (asked.args.clone(), asked.checked.hash.clone());
    let envelope = match envelope(engine, scope, call_id, call, entry, args, args_hash, None) {
        Ok(envelope) => envelope,
        Err(failure) => return failed(failure.to_string()),
    };
    let context = Arc::new(CallContext {
        cancel: asked.stop.child_token(),
        caller: scope.acting.clone(),
        progress: Progress::none(),
        blobs: engine.blobs(),
        calls: NestedCalls::none(),
    });
    let time = PREDICT_TIME.min(Duration::from_millis(definition.default_timeout_ms.max(1)));
    let attempt = Attempt::new(&twin, &context, &envelope, time, Duration::ZERO);
    match run(&attempt, &envelope).await {
        Ok((targets, output)) => Prediction {
            state: PreviewState::Made,
            effects: Some(output.effects),
            diff: previews.diff(),
            problem: None,
            targets,
        },
        Err(problem) => failed(problem),
    }
}

async fn run(attempt: &Attempt<'_>, envelope: &ToolCall) -> Result<(Vec<crate::IntentTarget>, Output), String> {
    let words = |stopped: Stopped| stopped.into_outcome(envelope).1.failure.to_string();
    let prepared = attempt.prepare().await.map_err(words)?;
    let targets = prepared.intent.as_ref().map(|intent| intent.targets.clone()).unwrap_or_default();
    let output = attempt.execute(prepared).await.map_err(words)?;
    Ok((targets, output))
}

fn failed(problem: String) -> Prediction {
    Prediction { state: PreviewState::Failed, problem: Some(problem), ..Prediction::default() }
}
