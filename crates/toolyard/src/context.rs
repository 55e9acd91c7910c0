//! Connects the context store to the rest of the program: its tools, its HTTP interface and its methods.

use crate::{home::Home, wiring};
use bytes::Bytes;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{RegistryError, ToolEntry, ToolSource};
use toolyard_context::{
    ContextConfig, ContextProvider, ContextStore, PLUGIN, SessionIds, account_of,
    error::{ApiError, Code},
    store::shared::{PieceStore, SharedParts},
    wire::{
        http::{BODY_WITHIN, HttpDoor, MAX_BODY_BYTES, PREFIX, refusal},
        tools,
    },
};
use toolyard_engine::{BoxFuture, Engine, Provider};
use toolyard_gateway::{
    admission::Rule,
    mount::{Endpoint, MountBody},
};
use toolyard_protocol::{Failure, WorkspaceId};
use toolyard_service::Lane;

/// Where the interface is: at the gateway's own root, and below a path of its own with `/health`.
pub(crate) const PATHS: [&str; 3] = ["/api/v1", "/api/openviking", PREFIX];
/// How often watched sources are looked at.
const WATCH_EVERY: Duration = Duration::from_secs(30);
/// How often unused pieces are looked for in the bucket, in units of [`WATCH_EVERY`]: once an hour.
const SWEEP_EVERY: u64 = 120;

/// Opens the store and registers its tools. If the store cannot be opened, everything else still works, and its tools
/// answer with the reason.
pub(crate) fn open(
    config: &ContextConfig,
    home: &Home,
    vault: &Path,
    engine: &Engine,
    pieces: Option<Arc<dyn PieceStore>>,
) -> Result<Option<Arc<ContextStore>>, Failure> {
    let import_roots = config.import_roots.iter().map(|folder| crate::config::expand(folder)).collect();
    let config = &ContextConfig { import_roots, ..config.clone() };
    let opened = if engine.store().is_shared() {
        let parts = SharedParts { store: engine.store().clone(), pieces };
        ContextStore::open_shared(home.context_copy(), config.clone(), parts)
    } else {
        ContextStore::open(folder(config, home), config.clone())
    };
    match opened {
        Ok(store) => {
            store.protect(&[vault.to_owned(), home.path().to_owned()]);
            store.keep_media(home.path().join("media"));
            let provider = ContextProvider::new(store.clone(), session_ids(engine));
            register(engine, config, Arc::new(provider))?;
            Ok(Some(store))
        }
        Err(error) => {
            tracing::warn!(error = %error.message, "the context store is not open");
            register(engine, config, Arc::new(wiring::Described))?;
            Ok(None)
        }
    }
}

/// The folder of the context store of a single machine.
pub(crate) fn folder(config: &ContextConfig, home: &Home) -> PathBuf {
    config.path.as_deref().map_or_else(|| home.context(), crate::config::expand)
}

/// The tools as entries of the plugin whose interface they implement. They report invalid arguments themselves, in that
/// plugin's format.
pub(crate) fn entries(config: &ContextConfig) -> Result<Vec<ToolEntry>, RegistryError> {
    let granted = !config.import_roots.is_empty();
    toolyard_context::definitions(config)?
        .into_iter()
        .map(|definition| {
            let host = tools::host_arguments(definition.name.as_str());
            let entry = ToolEntry::new(definition, ToolSource::plugin(PLUGIN))?;
            Ok(entry.with_own_checks(true).with_host_arguments(host, granted))
        })
        .collect()
}

/// Adds the tools.
pub(crate) fn register(engine: &Engine, config: &ContextConfig, provider: Arc<dyn Provider>) -> Result<(), Failure> {
    engine.register(entries(config).map_err(wiring::refused)?, provider).map_err(wiring::refused)
}

/// The gateway's own ids of its sessions.
pub(crate) fn session_ids(engine: &Engine) -> SessionIds {
    let store = engine.store().clone();
    Arc::new(move |key: &str| toolyard_service::sessions::session_id(&*store, key))
}

/// Checks watched sources every `WATCH_EVERY`, until stopped. Every `SWEEP_EVERY` times it removes what lies unused in the
/// bucket of a cluster.
pub(crate) async fn watch(store: Arc<ContextStore>, stop: CancellationToken) {
    for number in 1_u64.. {
        tokio::select! {
            () = tokio::time::sleep(WATCH_EVERY) => {}
            () = stop.cancelled() => return,
        }
        let store = store.clone();
        let look = move || {
            store.run_watches();
            match number.is_multiple_of(SWEEP_EVERY) {
                true => store.sweep_pieces(),
                false => Ok(0),
            }
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok(0)) => {}
            Ok(Ok(pieces)) => tracing::info!(pieces, "removed pieces of files that no file uses from the bucket"),
            Ok(Err(error)) => tracing::warn!(error = error.message, "the bucket could not be swept"),
            Err(error) => tracing::error!(%error, "looking at watched sources ended unexpectedly"),
        }
    }
}

/// The HTTP interface as the gateway mounts it.
pub(crate) struct ContextEndpoint(HttpDoor);

impl ContextEndpoint {
    pub(crate) fn new(store: Arc<ContextStore>) -> Arc<Self> {
        Arc::new(Self(HttpDoor::new(store)))
    }
}

impl Endpoint for ContextEndpoint {
    fn rule(&self, path: &str) -> Rule {
        match path.strip_prefix(PREFIX) {
            Some("/health" | "/ready") => Rule::open(),
            _ => Rule::credential(MAX_BODY_BYTES, BODY_WITHIN).or_api_key(),
        }
    }

    fn lane(&self, _: &http::Request<Bytes>) -> Lane {
        Lane::Ordinary
    }

    fn refuse(&self, status: http::StatusCode) -> Option<http::Response<MountBody>> {
        (status == http::StatusCode::UNAUTHORIZED).then(|| {
            let error = ApiError::new(Code::Unauthenticated, "Missing or invalid API key");
            refusal(&error).map(MountBody::Whole)
        })
    }

    fn handle(
        &self,
        workspace: WorkspaceId,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'_, http::Response<MountBody>> {
        Box::pin(async move { self.0.handle(account_of(&workspace), request).await.map(MountBody::Whole) })
    }
}
