//! The browsers that have switched Web Push on. A subscription belongs to a paired device and ends with it.

use std::sync::Arc;
use toolyard_engine::{
    Store,
    store::{StoreError, Swap},
};
use toolyard_notify::PushSubscription;
use toolyard_service::{Service, console::Rights, devices::Device};

const SPACE: &str = "pushSubscriptions";

/// Subscriptions by their devices.
pub(super) struct Subscriptions {
    store: Arc<dyn Store>,
}

fn unwritten(error: &serde_json::Error) -> StoreError {
    StoreError::failed(format!("a push subscription cannot be written: {error}"))
}

/// Whether a device is a browser that may answer questions, and still paired.
fn may_be_told(service: &Service, device: Option<&Device>) -> bool {
    device.is_some_and(|device| {
        let rights = device.console.as_ref().map(|console| console.rights);
        matches!(rights, Some(Rights::Owner | Rights::Approver)) && !service.console().is_expired(device)
    })
}

impl Subscriptions {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Those of browsers that are paired and may answer questions.
    pub(super) fn all(&self, service: &Service) -> Vec<PushSubscription> {
        let kept = self.store.list(SPACE).unwrap_or_else(|error| {
            tracing::warn!(%error, "push subscriptions cannot be read");
            Vec::new()
        });
        let mut current = Vec::new();
        for (device, bytes) in kept {
            match service.devices().get(&device) {
                Ok(found) if may_be_told(service, found.as_ref()) => match serde_json::from_slice(&bytes) {
                    Ok(subscription) => current.push(subscription),
                    Err(error) => tracing::warn!(device, %error, "a push subscription cannot be read"),
                },
                // The pairing has ended: nothing more is sent to this browser.
                Ok(_) => {
                    if let Err(error) = self.store.remove(SPACE, &device) {
                        tracing::warn!(device, %error, "the push subscription of a former browser is left behind");
                    }
                }
                Err(error) => tracing::warn!(device, %error, "a device cannot be read"),
            }
        }
        current
    }

    /// Keeps a subscription in place of the device's former one.
    pub(super) async fn keep(&self, subscription: &PushSubscription) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(subscription).map_err(|error| unwritten(&error))?;
        let position = self.store.put(SPACE, &subscription.device, bytes, None)?;
        self.store.durable(position).await
    }

    /// Removes a device's subscription; false if there was none.
    pub(super) async fn remove(&self, device: &str) -> Result<bool, StoreError> {
        let was_there = self.store.get(SPACE, device)?.is_some();
        let position = self.store.remove(SPACE, device)?;
        self.store.durable(position).await?;
        Ok(was_there)
    }

    /// Removes a subscription that its push service no longer knows, unless the browser has made another one since.
    pub(super) async fn forget(&self, gone: &PushSubscription) {
        let removed = serde_json::to_vec(gone)
            .map_err(|error| unwritten(&error))
            .and_then(|bytes| self.store.compare_and_set(SPACE, &gone.device, Some(&bytes), None));
        match removed {
            Ok(Swap::Done | Swap::Differs(_)) => {}
            Err(error) => tracing::warn!(device = gone.device, %error, "a push subscription that ended is left behind"),
        }
    }
}
