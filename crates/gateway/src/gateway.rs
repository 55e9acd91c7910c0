//! [`Gateway`]: the state that the doors of one gateway share in addition to the application's [`Hub`]: credentials,
//! request slots, mounts.

use crate::{
    admission::{body::Bodies, connection_slots::ConnectionSlots},
    auth::{AuthFailures, Secret},
    mount::{Endpoint, Mount},
    node::{HttpNodes, NodeSlots},
    request_slots::RequestSlots,
    settings::Settings,
    shared_auth_failures,
    writes::Writes,
};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_util::sync::CancellationToken;
use toolyard_engine::redact::redactor;
use toolyard_service::{Hub, Service, SessionTools};

/// The state that the doors share. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    hub: Hub,
    settings: Settings,
    pub(crate) secret: Secret,
    pub(crate) auth_failures: AuthFailures,
    pub(crate) connection_slots: Arc<ConnectionSlots>,
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) writes: Writes,
    pub(crate) request_slots: RequestSlots,
    pub(crate) node_slots: NodeSlots,
    pub(crate) boot_id: String,
    mounts: RwLock<Vec<Mount>>,
}

impl Gateway {
    /// Creates the shared state and starts the tasks that keep it current. Must be called inside a tokio runtime.
    pub fn new(service: Service, settings: Settings, stop: CancellationToken) -> Self {
        redactor().learn(&settings.token);
        if let Some(cluster) = service.cluster() {
            match HttpNodes::new() {
                Ok(nodes) => cluster.connect(Arc::new(nodes)),
                Err(error) => tracing::error!(error, "other nodes cannot be reached from here"),
            }
        }
        let auth_failures = AuthFailures::new(settings.rate_limit.clone());
        let auth_failures = if service.cluster().is_some() { auth_failures.shared() } else { auth_failures };
        let inner = Inner {
            hub: Hub::new(service, settings.hub(), stop),
            secret: Secret::new(&settings.token),
            auth_failures,
            connection_slots: ConnectionSlots::new(),
            bodies: Arc::default(),
            writes: Writes::default(),
            request_slots: RequestSlots::default(),
            node_slots: NodeSlots::default(),
            boot_id: uuid::Uuid::now_v7().to_string(),
            mounts: RwLock::default(),
            settings,
        };
        let gateway = Self { inner: Arc::new(inner) };
        if gateway.inner.auth_failures.is_shared() {
            tokio::spawn(gateway.clone().share_auth_failures());
        }
        gateway
    }

    /// Counts wrong credentials with the other nodes, until stopped.
    async fn share_auth_failures(self) {
        let mut number = 0_u32;
        loop {
            tokio::select! {
                () = tokio::time::sleep(shared_auth_failures::TELL_EVERY) => {}
                () = self.stop().cancelled() => return,
            }
            number = number.wrapping_add(1);
            let own = self.clone();
            let look =
                move || shared_auth_failures::look(own.service().engine().store(), &own.inner.auth_failures, number);
            match tokio::task::spawn_blocking(look).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "wrong credentials are counted by this node alone now"),
                Err(error) => tracing::error!(%error, "counting wrong credentials ended unexpectedly"),
            }
        }
    }

    /// The state that clients of all doors share.
    pub fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    /// Adds an endpoint at a path. Its rule states who may call it.
    pub fn mount(&self, path: &'static str, endpoint: Arc<dyn Endpoint>) {
        let mut mounts = self.inner.mounts.write().unwrap_or_else(PoisonError::into_inner);
        mounts.push(Mount { path, endpoint, tree: false });
    }

    /// Adds an endpoint at a path and everything below it. Its rule states who may call it.
    pub fn mount_tree(&self, path: &'static str, endpoint: Arc<dyn Endpoint>) {
        let mut mounts = self.inner.mounts.write().unwrap_or_else(PoisonError::into_inner);
        mounts.push(Mount { path, endpoint, tree: true });
    }

    pub(crate) fn mounted(&self, path: &str) -> Option<Mount> {
        let mounts = self.inner.mounts.read().unwrap_or_else(PoisonError::into_inner);
        mounts.iter().find(|mount| mount.serves(path)).cloned()
    }

    /// Sets the implementation that lists and runs the tools of bridged sessions. Without it they have no tools.
    pub fn set_bridge_tools(&self, tools: Arc<dyn SessionTools>) {
        self.hub().set_bridge_tools(tools);
    }

    /// Sends the shutdown event to all clients; call it before stopping.
    ///
    /// `elsewhere` are the addresses of other nodes to which clients can connect.
    pub async fn farewell(&self, reason: &str, elsewhere: &[String]) {
        self.hub().farewell(reason, elsewhere).await;
    }

    pub(crate) fn service(&self) -> &Service {
        self.hub().service()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn stop(&self) -> &CancellationToken {
        self.hub().stop()
    }
}
