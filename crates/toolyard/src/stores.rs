//! Opens the store that the configuration names: on this machine's disk, or in a PostgreSQL that several nodes share.

use crate::{
    config::{Config, Resolved},
    home::Home,
    shared_config,
};
use std::{path::PathBuf, sync::Arc, time::Duration};
use toolyard_bucket::{Bucket, BucketError};
use toolyard_context::store::shared::PieceStore;
use toolyard_engine::{
    BoxFuture, SealedStore, Store,
    chain::Signer,
    ledger::announces,
    store::{Owner, StoreError},
};
use toolyard_postgres::{ClusterKeys, LargeBlobs, PostgresOptions, PostgresStore};
use toolyard_protocol::{ErrorCode, Failure, canonical};
use toolyard_store::{SqliteStore, StoreOptions};

/// The variable that names the database, before the configuration.
pub(crate) const URL_VARIABLE: &str = "TOOLYARD_STORE_URL";
/// Longest name of a node.
const MAX_NODE_NAME: usize = 64;
/// How often `up` looks whether its node was fenced.
const FENCE_LOOK: Duration = Duration::from_millis(250);

/// A store that was opened, and the key that signs its record.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) signer: Signer,
    /// The store on this machine's disk, if that is where state is kept.
    pub(crate) on_disk: Option<Arc<SqliteStore>>,
    /// The store in a database, if that is where state is kept.
    pub(crate) shared: Option<Arc<PostgresStore>>,
    /// The same store with its facts sealed, if several nodes share it: for what is read before there is an engine.
    pub(crate) facts: Option<Arc<SealedStore>>,
}

fn broken(error: anyhow::Error) -> Failure {
    Failure::new(ErrorCode::StoreUnavailable, format!("{error:#}"))
}

/// Opens the store of a home. May block.
pub(crate) fn open(resolved: &Resolved) -> Result<Opened, Failure> {
    let home = &resolved.home;
    home.create().map_err(broken)?;
    if resolved.config.store.bucket.is_some() && url(resolved).is_none() {
        return Err(Failure::new(ErrorCode::ConfigInvalid, "store.bucket needs store.url")
            .suggest("Without store.url blobs are kept on this machine's disk."));
    }
    if let Some(url) = url(resolved) {
        let store = Arc::new(open_shared(resolved, &url, false)?);
        let keys = cluster_keys(&store, home)?;
        let signer = home.cluster_signer(&keys).map_err(broken)?;
        let sealing = Arc::new(home.cluster_signer(&keys).map_err(broken)?);
        let facts = Some(Arc::new(SealedStore::new(store.clone(), sealing)));
        return Ok(Opened { store: store.clone(), signer, on_disk: None, shared: Some(store), facts });
    }
    if let Some(to) = moved(home)? {
        return Err(Failure::new(ErrorCode::StoreUnavailable, format!("the state of this home was moved to {to}"))
            .suggest("Set store.url, or move it back with `toolyard migrate --to sqlite`."));
    }
    let store = SqliteStore::open(&home.state(), StoreOptions::default())?;
    home.settle_next_key(|next| Ok(announces(&store, &next.verifier())?)).map_err(broken)?;
    let store = Arc::new(store);
    Ok(Opened {
        store: store.clone(),
        signer: home.signer().map_err(broken)?,
        on_disk: Some(store),
        shared: None,
        facts: None,
    })
}

/// Opens the store, and takes over the configuration that the nodes of its cluster share. May block.
pub(crate) fn open_agreed(resolved: &mut Resolved) -> Result<Opened, Failure> {
    if let Some(opened) = resolved.opened.take() {
        return Ok(opened);
    }
    let opened = open(resolved)?;
    if let Some(facts) = &opened.facts {
        shared_config::agree(resolved, facts.clone())?;
    }
    Ok(opened)
}

/// The database that several nodes share, if there is one.
pub(crate) fn url(resolved: &Resolved) -> Option<String> {
    let given = std::env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty());
    given.or_else(|| resolved.config.store.url.clone())
}

/// Opens a shared store as this home's node.
pub(crate) fn open_shared(resolved: &Resolved, url: &str, is_moved: bool) -> Result<PostgresStore, Failure> {
    toolyard_engine::redact::redactor().learn(url);
    let config = &resolved.config.store;
    let secret = match &config.secret_file {
        Some(file) => Some(Home::secret_file(&crate::config::expand(file)).map_err(broken)?),
        None => None,
    };
    let options = PostgresOptions {
        url: url.to_owned(),
        node: node_name(resolved)?,
        home: resolved.home.node_id().map_err(broken)?,
        serves: resolved.serves,
        allow_async_replication: config.allow_async_replication,
        secret,
        is_moved,
        large_blobs: bucket(resolved)?,
    };
    PostgresStore::open(options).map_err(|error| {
        let at = toolyard_postgres::describe_url(url);
        Failure::new(ErrorCode::StoreUnavailable, format!("the database {at} cannot be used: {error}"))
            .suggest("`toolyard doctor` checks the database; store.url or TOOLYARD_STORE_URL names it.")
    })
}

/// Large blobs in the bucket that the configuration names.
struct InBucket(Bucket);

fn kept(error: BucketError) -> StoreError {
    StoreError::failed(error.to_string())
}

impl LargeBlobs for InBucket {
    fn put(&self, sha256: &str, bytes: Arc<[u8]>) -> BoxFuture<'static, Result<(), StoreError>> {
        let answer = self.0.put(sha256, &bytes);
        Box::pin(async move { answer.await.map_err(kept) })
    }

    fn get(&self, sha256: &str) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        let answer = self.0.get(sha256);
        Box::pin(async move { answer.await.map_err(kept) })
    }

    fn remove(&self, sha256: &str) -> BoxFuture<'static, Result<(), StoreError>> {
        let answer = self.0.remove(sha256);
        Box::pin(async move { answer.await.map(drop).map_err(kept) })
    }
}

/// The bucket, if one is configured. A bucket that cannot be used is reported at the start.
fn bucket(resolved: &Resolved) -> Result<Option<Arc<dyn LargeBlobs>>, Failure> {
    let Some(place) = &resolved.config.store.bucket else { return Ok(None) };
    let invalid = |error: BucketError| Failure::new(ErrorCode::ConfigInvalid, error.to_string());
    let bucket = Bucket::open(place).map_err(invalid)?;
    bucket.wait(bucket.check()).map_err(invalid)?;
    Ok(Some(Arc::new(InBucket(bucket))))
}

/// Whole pieces of the context store's files in the bucket, apart for each account.
struct PiecesInBucket(Bucket);

impl PiecesInBucket {
    fn of(&self, account: &str) -> Bucket {
        self.0.below(&format!("context/{}", &canonical::sha256_hex(account.as_bytes())[..32]))
    }
}

impl PieceStore for PiecesInBucket {
    fn put(&self, account: &str, pieces: Vec<(String, Vec<u8>)>) -> Result<(), String> {
        let bucket = self.of(account);
        bucket.wait(bucket.put_all(pieces)).map_err(|error| error.to_string())
    }

    fn get(&self, account: &str, sha256: &str) -> Result<Option<Vec<u8>>, String> {
        let bucket = self.of(account);
        bucket.wait(bucket.get(sha256)).map_err(|error| error.to_string())
    }

    fn hashes(&self, account: &str, after: &str, limit: usize) -> Result<Vec<String>, String> {
        let bucket = self.of(account);
        bucket.wait(bucket.hashes(after, limit)).map_err(|error| error.to_string())
    }

    fn remove(&self, account: &str, sha256: &str) -> Result<bool, String> {
        let bucket = self.of(account);
        bucket.wait(bucket.remove(sha256)).map_err(|error| error.to_string())
    }
}

/// The bucket that holds pieces of the context store's files instead of the database, if one is configured.
pub(crate) fn pieces(config: &Config) -> Result<Option<Arc<dyn PieceStore>>, Failure> {
    let Some(place) = &config.store.bucket else { return Ok(None) };
    let bucket = Bucket::open(place).map_err(|error| Failure::new(ErrorCode::ConfigInvalid, error.to_string()))?;
    Ok(Some(Arc::new(PiecesInBucket(bucket))))
}

/// The keys of the cluster; the first node's home gives its own.
pub(crate) fn cluster_keys(store: &PostgresStore, home: &Home) -> Result<ClusterKeys, Failure> {
    let make = || home.own_keys().map_err(|error| StoreError::failed(format!("{error:#}")));
    Ok(store.keys(make)?)
}

/// The configured name, else the machine's with a hash of the home.
pub(crate) fn node_name(resolved: &Resolved) -> Result<String, Failure> {
    let name = match &resolved.config.node.name {
        Some(name) => name.clone(),
        None => {
            let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let hash = canonical::sha256_hex(resolved.home.path().as_os_str().as_encoded_bytes());
            let machine: String = machine.chars().take(MAX_NODE_NAME - 9).collect();
            format!("{machine}-{}", &hash[..8])
        }
    };
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_NODE_NAME || !name.chars().all(is_fine) {
        return Err(Failure::new(
            ErrorCode::ConfigInvalid,
            format!("node.name {name:?} is not 1 to {MAX_NODE_NAME} letters, digits, '-', '_' and '.'"),
        ));
    }
    Ok(name)
}

/// The configured address at which other nodes reach this one.
pub(crate) fn node_address(resolved: &Resolved) -> Result<Option<String>, Failure> {
    let Some(address) = &resolved.config.node.address else { return Ok(None) };
    let bare = address.trim_end_matches('/');
    let authority = bare.strip_prefix("http://").or_else(|| bare.strip_prefix("https://"));
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    match authority.filter(|authority| !authority.is_empty() && authority.chars().all(is_fine)) {
        Some(_) => Ok(Some(bare.to_owned())),
        None => Err(Failure::new(
            ErrorCode::ConfigInvalid,
            format!("node.address {address:?} is not http://HOST:PORT or https://HOST:PORT"),
        )),
    }
}

/// The file that says where the state of a home was moved to.
fn moved_file(home: &Home) -> PathBuf {
    home.state().join("moved")
}

/// Where the state of a home was moved to.
pub(crate) fn moved(home: &Home) -> Result<Option<String>, Failure> {
    match std::fs::read_to_string(moved_file(home)) {
        Ok(to) => Ok(Some(to.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(ErrorCode::StoreUnavailable, format!("state/moved cannot be read: {error}"))),
    }
}

/// Notes where the state of a home was moved to, or takes that back.
pub(crate) fn set_moved(home: &Home, to: Option<&str>) -> Result<(), Failure> {
    let file = moved_file(home);
    let done = match to {
        Some(to) => std::fs::write(&file, format!("{to}\n")),
        None => crate::home::remove_if_there(&file),
    };
    done.map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("cannot change {}: {e}", file.display())))
}

/// Ends when this node was fenced. Never ends on a store that is not shared.
pub(crate) async fn fenced(store: Arc<dyn Store>) -> Owner {
    if !store.is_shared() {
        std::future::pending::<()>().await;
    }
    loop {
        if let Err(StoreError::Fenced(owner)) = store.writable() {
            return owner;
        }
        tokio::time::sleep(FENCE_LOOK).await;
    }
}
