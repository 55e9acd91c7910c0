//! The tasks that send events to connections: ticks, presence, health, approvals, devices, shutdown.

use super::{Connection, EventBody, Hub, OutboxItem, PresenceEntry, event::TimestampEvent};
use crate::{
    approvals,
    devices::{DeviceEvent, PairingEvent, PairingOutcome},
    settings::PONG_WITHIN,
};
use jiff::Timestamp;
use serde::Serialize;
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::sync::broadcast::error::RecvError;
use toolyard_engine::approvals::ApprovalEvent;

/// The shortest time between two presence events, with few clients.
const PRESENCE_PAUSE: Duration = Duration::from_millis(250);
/// The pause grows by `PRESENCE_PAUSE` for each this many clients, because sending a list of all clients to all clients
/// grows with their square.
const PRESENCE_CROWD: usize = 100;

/// The event `presence`.
#[derive(Serialize)]
struct PresenceEvent {
    presence: Vec<PresenceEntry>,
}

/// The event `shutdown`.
#[derive(Serialize)]
struct Shutdown<'a> {
    reason: &'a str,
    /// Addresses of other nodes, where there are some.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    elsewhere: &'a [String],
}

impl Hub {
    /// Starts everything.
    pub(super) fn start_telling(&self) {
        tokio::spawn(self.clone().tick());
        tokio::spawn(self.clone().tell_presence());
        tokio::spawn(self.clone().tell_health());
        tokio::spawn(self.clone().tell_approvals());
        tokio::spawn(self.clone().tell_devices());
        tokio::spawn(self.clone().take_pulse());
        tokio::spawn(self.clone().tell_bridge_tools());
        tokio::spawn(self.clone().tell_said());
        tokio::spawn(self.clone().close_removed_workspaces());
        if self.service().cluster().is_some() {
            tokio::spawn(self.clone().tell_others());
            tokio::spawn(self.clone().send_news());
        }
    }

    async fn tick(self) {
        let mut every = tokio::time::interval(self.settings().tick);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        every.tick().await;
        let sweep_after = PONG_WITHIN.min(self.settings().tick * 5 / 6);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.inner.stop.cancelled() => return,
            }
            let pinged = Instant::now();
            self.broadcast(
                EventBody::new("tick", &TimestampEvent { ts: Timestamp::now().as_millisecond() }).droppable(),
                |c| {
                    c.outbox.send(OutboxItem::Ping);
                    true
                },
            );
            let gateway = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(sweep_after).await;
                for connection in gateway.read_connections().values() {
                    if connection.silent_since(pinged) {
                        connection.stop.cancel();
                    }
                }
            });
        }
    }

    /// Sends presence events; changes that happen within the pause are sent together.
    async fn tell_presence(self) {
        loop {
            tokio::select! {
                () = self.inner.presence_changed.notified() => {}
                () = self.inner.stop.cancelled() => return,
            }
            let crowd = u32::try_from(1 + self.count() / PRESENCE_CROWD).unwrap_or(u32::MAX);
            tokio::select! {
                () = tokio::time::sleep(PRESENCE_PAUSE * crowd) => {}
                () = self.inner.stop.cancelled() => return,
            }
            if !self.read_connections().values().any(|c| c.has("operator.read")) {
                continue;
            }
            for workspace in self.connected_workspaces() {
                let versions = self.versions();
                let body = EventBody::new("presence", &PresenceEvent { presence: self.presence(&workspace) });
                self.broadcast_in(&workspace, body.with_versions(versions).droppable(), |c| c.has("operator.read"));
            }
        }
    }

    async fn tell_health(self) {
        let mut every = tokio::time::interval(self.settings().health_every);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        every.tick().await;
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.inner.stop.cancelled() => return,
            }
            if self.count() == 0 {
                continue;
            }
            self.inner.health_version.fetch_add(1, Ordering::AcqRel);
            for workspace in self.connected_workspaces() {
                // Without a store there is no health to send; a request for it returns the reason.
                let Ok(health) = self.fresh_health(&workspace).await else { continue };
                let body = EventBody::new("health", &health).with_versions(self.versions()).droppable();
                // A console has the feed, and a tab that nobody looks at is to be left alone.
                self.broadcast_in(&workspace, body, |c| c.has("operator.read") && !c.is_console());
            }
        }
    }

    async fn tell_approvals(self) {
        let mut events = self.service().engine().approvals().subscribe();
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = self.inner.stop.cancelled() => return,
            };
            let (is_resolved, approval, body) = match event {
                Ok(ApprovalEvent::Requested(approval)) => {
                    let name = format!("{}.approval.requested", approvals::kind(&approval.request));
                    let body = EventBody::new(name, &approvals::Requested::from(&*approval));
                    (false, approval, body)
                }
                Ok(ApprovalEvent::Resolved(approval)) => {
                    let name = format!("{}.approval.resolved", approvals::kind(&approval.request));
                    let body = EventBody::new(name, &approvals::Resolved::from(&*approval));
                    (true, approval, body)
                }
                // A client that missed an event can still fetch the lists.
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            let kind = approvals::kind(&approval.request);
            let asker = approvals::Asker::of(&approval.request);
            self.broadcast(body, |c| {
                // The client that asked does not need an event about its own question.
                let is_news = is_resolved || asker.connection.as_ref() != Some(&c.id);
                is_news && c.shows_approvals(kind) && asker.may_be_answered_by(c)
            });
        }
    }

    async fn tell_devices(self) {
        let mut events = self.service().devices().subscribe();
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = self.inner.stop.cancelled() => return,
            };
            match event {
                Ok(DeviceEvent::Requested(request)) => {
                    let payload = PairingEvent::from(&*request);
                    let (workspace, body) =
                        (&request.device.workspace, EventBody::new("device.pair.requested", &payload));
                    self.broadcast_in(workspace, body, |c| c.has("operator.pairing"));
                }
                Ok(DeviceEvent::Resolved { request_id, device_id, decision, workspace }) => {
                    let ts = Timestamp::now().as_millisecond();
                    let payload = PairingOutcome { request_id, device_id, decision, ts };
                    let body = EventBody::new("device.pair.resolved", &payload);
                    self.broadcast_in(&workspace, body, |c| c.has("operator.pairing"));
                }
                // Only the console's feed shows this event.
                Ok(DeviceEvent::Paired { .. }) => {}
                Ok(DeviceEvent::Revoked { device_id, .. }) => {
                    self.revoke_everywhere(&device_id).await;
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Closes the connections of workspaces that were removed and of tokens that were replaced, also at another node.
    async fn close_removed_workspaces(self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(crate::workspaces::LOOK_EVERY) => {}
                () = self.inner.stop.cancelled() => return,
            }
            let connections: Vec<Arc<Connection>> =
                self.read_connections().values().filter(|c| !c.workspace.is_default()).cloned().collect();
            if connections.is_empty() {
                continue;
            }
            let workspaces = self.service().workspaces().clone();
            let look = move || {
                let is_over = |c: &Arc<Connection>| match workspaces.admits(&c.workspace, c.token_generation) {
                    Ok(admits) => !admits,
                    Err(error) => {
                        tracing::warn!(%error, "the workspaces cannot be read");
                        false
                    }
                };
                connections.into_iter().filter(is_over).collect::<Vec<_>>()
            };
            for connection in tokio::task::spawn_blocking(look).await.unwrap_or_default() {
                connection.outbox.send(OutboxItem::Close(1008, "workspace token revoked".to_owned()));
            }
        }
    }

    async fn take_pulse(self) {
        loop {
            let before = Instant::now();
            tokio::select! {
                () = tokio::time::sleep(crate::load_monitor::BEAT) => {}
                () = self.inner.stop.cancelled() => return,
            }
            self.inner.load_monitor.beat(before.elapsed());
        }
    }

    /// Sends the shutdown event to all clients and leaves them connected. `elsewhere` are the addresses of other nodes.
    pub fn announce_shutdown(&self, reason: &str, elsewhere: &[String]) {
        self.broadcast(EventBody::new("shutdown", &Shutdown { reason, elsewhere }), |_| true);
    }

    /// Sends the shutdown event to all clients and closes their connections; call it before stopping. Each client is
    /// given one of the addresses.
    pub async fn farewell(&self, reason: &str, elsewhere: &[String]) {
        self.announce_shutdown(reason, elsewhere);
        for (number, connection) in self.read_connections().values().enumerate() {
            // A close frame has room for 123 bytes of reason.
            let node = elsewhere.get(number % elsewhere.len().max(1)).filter(|address| address.len() <= 100);
            let reason = node.map_or_else(|| "service restart".to_owned(), |node| format!("service restart: {node}"));
            connection.outbox.send(OutboxItem::Close(1012, reason));
        }
        let give_up = Instant::now() + Duration::from_secs(1);
        while self.count() > 0 && Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
