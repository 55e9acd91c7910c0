//! What connections are told without asking: ticks, presence, health, approvals, devices, the end. One task each.

use super::{EventBody, Hub, Out, Present, event::Tick};
use crate::{
    approvals,
    devices::{DeviceEvent, PairingNews, PairingOutcome},
    settings::PONG_WITHIN,
};
use jiff::Timestamp;
use serde::Serialize;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use tokio::sync::broadcast::error::RecvError;
use toolyard_engine::approvals::ApprovalEvent;

/// Presence is told at most this often, to few.
const PRESENCE_PAUSE: Duration = Duration::from_millis(250);
/// For each so many who are told, the pause grows by once more: a list for everybody grows with their square.
const PRESENCE_CROWD: usize = 100;

/// The event `presence`.
#[derive(Serialize)]
struct PresenceNews {
    presence: Vec<Present>,
}

/// The event `shutdown`.
#[derive(Serialize)]
struct Shutdown<'a> {
    reason: &'a str,
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
            self.broadcast(EventBody::new("tick", &Tick { ts: Timestamp::now().as_millisecond() }).droppable(), |c| {
                c.outbox.send(Out::Ping);
                true
            });
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

    /// Many who come and go at once are told of together.
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
            if self.read_connections().values().any(|c| c.has("operator.read")) {
                let versions = self.versions();
                let body = EventBody::new("presence", &PresenceNews { presence: self.presence() });
                self.broadcast(body.with_versions(versions).droppable(), |c| c.has("operator.read"));
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
            // Without a store there is nothing to tell; whoever asks is told why.
            let Ok(health) = self.fresh_health().await else { continue };
            self.inner.health_version.fetch_add(1, Ordering::AcqRel);
            let body = EventBody::new("health", &health).with_versions(self.versions());
            self.broadcast(body.droppable(), |c| c.has("operator.read"));
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
                // Whoever missed one still has the lists.
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            let kind = approvals::kind(&approval.request);
            let asker = approvals::Asker::of(&approval.request);
            self.broadcast(body, |c| {
                // Whoever asks knows already that it asked.
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
                    let payload = PairingNews::from(&*request);
                    self.broadcast(EventBody::new("device.pair.requested", &payload), |c| c.has("operator.pairing"));
                }
                Ok(DeviceEvent::Resolved { request_id, device_id, decision }) => {
                    let ts = Timestamp::now().as_millisecond();
                    let payload = PairingOutcome { request_id, device_id, decision, ts };
                    self.broadcast(EventBody::new("device.pair.resolved", &payload), |c| c.has("operator.pairing"));
                }
                // Only the console shows it, in its feed.
                Ok(DeviceEvent::Paired { .. }) => {}
                Ok(DeviceEvent::Revoked { device_id }) => {
                    for connection in self.read_connections().values() {
                        if connection.device.as_deref() == Some(device_id.as_str()) {
                            connection.outbox.send(Out::Close(1008, "device token revoked".to_owned()));
                        }
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    async fn take_pulse(self) {
        loop {
            let before = Instant::now();
            tokio::select! {
                () = tokio::time::sleep(crate::pulse::BEAT) => {}
                () = self.inner.stop.cancelled() => return,
            }
            self.inner.pulse.beat(before.elapsed());
        }
    }

    /// Says goodbye to everybody; call it before stopping.
    pub async fn farewell(&self, reason: &str) {
        self.broadcast(EventBody::new("shutdown", &Shutdown { reason }), |_| true);
        for connection in self.read_connections().values() {
            connection.outbox.send(Out::Close(1012, "service restart".to_owned()));
        }
        let give_up = Instant::now() + Duration::from_secs(1);
        while self.count() > 0 && Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
