//! Where notices come from: questions, ends of plans, and servers that stop answering.

use super::Notifications;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::{broadcast::error::RecvError, mpsc};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{
    RunEndListener,
    approvals::{Approval, ApprovalEvent, PersonPresence},
    redact::redactor,
    store::RunKind,
};
use toolyard_mcp::{Upstreams, client::Health};
use toolyard_notify::{Notice, Subject};
use toolyard_protocol::{RunId, RunStatus, WorkspaceId};

/// How often servers are looked at.
const SERVERS_EVERY: Duration = Duration::from_secs(15);
/// Ended plans that wait to be looked at; one more is left out.
const MAX_ENDS: usize = 256;
/// The severity of a question that is sent in quiet hours, if those let urgent ones pass.
const CRITICAL: &str = "critical";

/// An ended plan.
type End = (RunId, RunStatus);

/// Ends of plans, from the engine to the task that sends notifications.
#[derive(Clone)]
pub(super) struct RunEnds {
    sender: mpsc::Sender<End>,
    receiver: Arc<Mutex<Option<mpsc::Receiver<End>>>>,
}

impl Default for RunEnds {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(MAX_ENDS);
        Self { sender, receiver: Arc::new(Mutex::new(Some(receiver))) }
    }
}

impl RunEnds {
    /// Hears of every run, and keeps plans: a direct call has a caller that sees how it ends.
    pub(super) fn listener(&self) -> RunEndListener {
        let sender = self.sender.clone();
        Box::new(move |run_id, kind, status| {
            let matters = matches!(status, RunStatus::Failed | RunStatus::Paused | RunStatus::Finished);
            if kind == RunKind::Plan && matters && sender.try_send((run_id, status)).is_err() {
                tracing::debug!(%run_id, "nobody is told that a plan has ended");
            }
        })
    }
}

/// Watches until told to stop.
pub(super) async fn watch(notifications: &Notifications, upstreams: &Upstreams, stop: &CancellationToken) {
    let engine = notifications.host.service.engine().clone();
    let mut questions = engine.approvals().subscribe();
    let ends = notifications.ends.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut ends) = ends else { return };
    let mut servers = tokio::time::interval(SERVERS_EVERY);
    servers.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut broken = HashSet::new();
    let mut presence = present(notifications, None);
    loop {
        tokio::select! {
            event = questions.recv() => match event {
                // The channels are the owner's, who is in the default workspace.
                Ok(ApprovalEvent::Requested(approval)) if !approval.request.workspace().is_default() => {}
                // The node that has the question sends the notification.
                Ok(ApprovalEvent::Requested(approval)) if engine.approvals().is_asked_here(&approval.request.id) => {
                    notifications.notifier.tell(question(&approval));
                }
                Ok(ApprovalEvent::Requested(_)) => {}
                Ok(ApprovalEvent::Resolved(_)) => {}
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "questions came faster than they could be told");
                }
                Err(RecvError::Closed) => return,
            },
            Some((run_id, status)) = ends.recv() => end(notifications, run_id, status).await,
            _ = servers.tick() => {
                look_at_servers(notifications, upstreams, &mut broken);
                presence = present(notifications, presence);
            }
            () = notifications.changed.notified() => presence = present(notifications, presence),
            () = stop.cancelled() => return,
        }
    }
}

/// While a person can be reached by a channel, agents' questions are asked although nobody is connected.
fn present(notifications: &Notifications, before: Option<PersonPresence>) -> Option<PersonPresence> {
    match notifications.notifier.reaches_a_person() {
        true => before.or_else(|| {
            Some(notifications.host.service.engine().approvals().person_reachable(&WorkspaceId::default()))
        }),
        false => None,
    }
}

fn question(approval: &Approval) -> Notice {
    let request = &approval.request;
    let details = format!("{} asks to call {}: {}", request.agent, request.tool, request.title);
    Notice {
        subject: Subject::Question { id: request.id.clone(), expires_at: request.expires_at },
        is_urgent: request.severity == CRITICAL,
        details: redactor().text(&details).into_owned(),
    }
}

async fn end(notifications: &Notifications, run_id: RunId, status: RunStatus) {
    let store = notifications.host.service.engine().store().clone();
    let row = tokio::task::spawn_blocking(move || store.settle().and_then(|()| store.run(run_id))).await;
    let title = match row {
        // The channels are the owner's, who is in the default workspace.
        Ok(Ok(Some(row))) if !WorkspaceId::default().owns(row.session.as_deref().unwrap_or_default()) => return,
        Ok(Ok(Some(row))) => row.title,
        _ => String::new(),
    };
    let run = run_id.to_string();
    let subject = match status {
        RunStatus::Paused => Subject::RunWaiting { run },
        RunStatus::Failed => Subject::RunFailed { run },
        _ => Subject::RunFinished { run },
    };
    let details = redactor().text(&title).into_owned();
    notifications.notifier.tell(Notice { subject, is_urgent: false, details });
}

/// Tells of servers that have stopped answering since they were last looked at.
fn look_at_servers(notifications: &Notifications, upstreams: &Upstreams, broken: &mut HashSet<String>) {
    for server in upstreams.status() {
        if server.status != Health::Unavailable {
            broken.remove(&server.name);
            continue;
        }
        if broken.insert(server.name.clone()) {
            let why = server.error.as_deref().unwrap_or("it does not answer");
            let details = redactor().text(&format!("{}: {why}", server.name)).into_owned();
            let subject = Subject::ServerBroken { server: server.name };
            notifications.notifier.tell(Notice { subject, is_urgent: false, details });
        }
    }
}
