//! `runs.follow`: the events of all runs as they happen, for a terminal that watches.

use crate::{Call, Handle, Lane, MethodError, Service, Terms, methods, params::Count};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::Instant;
use toolyard_engine::Subscription;
use toolyard_protocol::{ErrorCode, Failure};

/// How long one request lasts at most; the client then asks again. A client that has gone is noticed by then.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// Events of steps are sent at most this often, because they only say that the list has changed.
const STEPS_EVERY: Duration = Duration::from_secs(1);

methods! {
    /// Sends the events of all runs for a while: each event of a run, and at most one of a step in a second.
    RunsFollow = "runs.follow", Terms::read().local().lane(Lane::Waiting), FollowParams => FollowedEvents;
}

/// How long runs are followed.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FollowParams {
    /// Milliseconds, 30000 at most; without it, the answer comes at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<Count>,
}

/// A summary of the events that the request has sent.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FollowedEvents {
    /// Events that were sent.
    pub events: u64,
    /// Whether events were lost, so that the list must be read again.
    pub lost: bool,
}

impl Handle<RunsFollow> for Service {
    async fn handle(&self, call: &Call<'_>, params: FollowParams) -> Result<FollowedEvents, MethodError> {
        let Some(sink) = &call.events else {
            return Err(Failure::new(ErrorCode::Unavailable, "this door cannot send events within a request")
                .suggest("Use console.subscribe or runs.subscribe.")
                .into());
        };
        let wait = params.wait_ms.map_or(Duration::ZERO, |ms| Duration::from_millis(ms.0)).min(MAX_WAIT);
        let subscription = Subscription { workspace: Some(call.caller.workspace.clone()), ..Subscription::default() };
        let mut events = self.engine().watch_events(subscription).await;
        let end = Instant::now() + wait;
        let mut step_told: Option<Instant> = None;
        let mut followed = FollowedEvents { events: 0, lost: false };
        while let Ok(Some(event)) = tokio::time::timeout_at(end, events.next()).await {
            if !event.event_type.is_of_run() {
                if step_told.is_some_and(|at| at.elapsed() < STEPS_EVERY) {
                    continue;
                }
                step_told = Some(Instant::now());
            }
            sink(event);
            followed.events += 1;
        }
        followed.lost = events.take_lost() > 0;
        Ok(followed)
    }
}
