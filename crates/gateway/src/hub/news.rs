//! What connections are told without asking: ticks, presence, health, approvals, devices, the end. One task each.

use super::{Gateway, Out};
use crate::{devices::DeviceEvent, rpc::approvals, settings::PONG_WITHIN, ws::frame::EventBody};
use jiff::Timestamp;
use serde_json::json;
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

impl Gateway {
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
            self.broadcast(
                EventBody::new("tick", &json!({"ts": Timestamp::now().as_millisecond()})).droppable(),
                |c| {
                    c.outbox.send(Out::Ping);
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
                let (presence, health) = self.versions();
                let body = EventBody::new("presence", &json!({"presence": self.presence()}));
                self.broadcast(body.with_versions(presence, health).droppable(), |c| c.has("operator.read"));
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
            let Ok(health) = crate::rpc::health::fresh(&self).await else { continue };
            let version = self.inner.health_version.fetch_add(1, Ordering::AcqRel) + 1;
            let body = EventBody::new("health", &health).with_versions(self.versions().0, version);
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
            let (name, approval, payload) = match event {
                Ok(ApprovalEvent::Requested(approval)) => {
                    let payload = approvals::requested(&approval);
                    ("requested", approval, payload)
                }
                Ok(ApprovalEvent::Resolved(approval)) => {
                    let payload = approvals::resolved(&approval);
                    ("resolved", approval, payload)
                }
                // Whoever missed one still has the lists.
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            let kind = approvals::kind(&approval.request);
            let asker = approvals::Asker::of(&approval.request);
            self.broadcast(EventBody::new(format!("{kind}.approval.{name}"), &payload), |c| {
                // Whoever asks knows already that it asked.
                let is_news = name == "resolved" || asker.connection != Some(c.id.as_str());
                is_news && c.shows_approvals(kind) && asker.may_be_answered_by(c)
            });
        }
    }

    async fn tell_devices(self) {
        let mut events = self.inner.devices.subscribe();
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = self.inner.stop.cancelled() => return,
            };
            let now = Timestamp::now().as_millisecond();
            match event {
                Ok(DeviceEvent::Requested(request)) => {
                    let d = &request.device;
                    let payload = json!({
                        "requestId": request.request_id, "deviceId": d.device_id, "publicKey": d.public_key,
                        "platform": d.platform, "clientId": d.client_id, "clientMode": d.client_mode, "role": d.role,
                        "scopes": d.scopes, "remoteIp": request.remote_ip, "ts": request.ts,
                    });
                    self.broadcast(EventBody::new("device.pair.requested", &payload), |c| c.has("operator.pairing"));
                }
                Ok(DeviceEvent::Resolved { request_id, device_id, decision }) => {
                    let payload =
                        json!({"requestId": request_id, "deviceId": device_id, "decision": decision, "ts": now});
                    self.broadcast(EventBody::new("device.pair.resolved", &payload), |c| c.has("operator.pairing"));
                }
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
        self.broadcast(EventBody::new("shutdown", &json!({"reason": reason})), |c| {
            let _ = c;
            true
        });
        for connection in self.read_connections().values() {
            connection.outbox.send(Out::Close(1012, "service restart".to_owned()));
        }
        let give_up = Instant::now() + Duration::from_secs(1);
        while self.count() > 0 && Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
