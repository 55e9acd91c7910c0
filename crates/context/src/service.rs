//! [`ContextStore`]: all accounts, and the background work.

use crate::{
    config::ContextConfig,
    error::{ApiError, Code, Result},
    find::{query_config::QueryConfigs, trace::Traces},
    sessions::{
        archive::{self, Retain},
        model::Model,
        tasks::{TaskResult, Tasks},
        writer::Writer,
    },
    store::{
        account::{Account, lock},
        fs::cut,
        host_paths::HostRoots,
        shared::{SharedAccounts, SharedParts},
        uri::Identity,
    },
    wire::tools::Session,
};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
};

/// Maximum number of open accounts.
const MAX_ACCOUNTS: usize = 256;

/// The context store.
pub struct ContextStore {
    root: PathBuf,
    pub(crate) config: ContextConfig,
    accounts: Mutex<HashMap<String, Arc<Account>>>,
    pub(crate) tasks: Tasks,
    pub(crate) traces: Traces,
    pub(crate) queries: QueryConfigs,
    pub(crate) writer: Writer,
    pub(crate) importer: crate::store::watches::Importer,
    host_roots: OnceLock<HostRoots>,
    /// The folder in which the gateway stores received files.
    media: OnceLock<PathBuf>,
    /// What other nodes share; `None` on a single machine.
    shared: Option<SharedAccounts>,
    /// Held while the store is open, because two processes would overwrite each other's changes.
    _lock: std::fs::File,
}

impl ContextStore {
    /// Opens the store in a folder and completes the unfinished work of a killed process.
    pub fn open(root: PathBuf, config: ContextConfig) -> Result<Arc<Self>> {
        let store = Self::in_folder(root, config, None)?;
        for found in crate::store::disk::list(&store.root)? {
            // Every account has this folder. Opening each account completes its unfinished work and starts checking its
            // watched sources.
            if found.is_folder && store.root.join(&found.name).join("_system/pending").is_dir() {
                store.open_account(&found.name)?;
            }
        }
        Ok(store)
    }

    /// Opens the store of a cluster. The folder is this node's copy of what lies in the shared store, and is filled from
    /// there: it must not be the folder of a single machine.
    pub fn open_shared(root: PathBuf, config: ContextConfig, shared: SharedParts) -> Result<Arc<Self>> {
        Self::in_folder(root, config, Some(SharedAccounts::new(shared)))
    }

    fn in_folder(root: PathBuf, config: ContextConfig, shared: Option<SharedAccounts>) -> Result<Arc<Self>> {
        std::fs::create_dir_all(&root)?;
        let lock = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(root.join(".lock"))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| ApiError::new(Code::Unavailable, format!("{} is used by another Toolyard", root.display())))?;
        let traces = Traces::open(&config, root.parent().unwrap_or(&root));
        let queries = QueryConfigs::open(config.runtime_query_config_path.clone());
        let model = config.llm.as_ref().and_then(|llm| {
            Model::new(llm).inspect_err(|why| tracing::warn!(%why, "no language model; rules extract summaries")).ok()
        });
        Ok(Arc::new(Self {
            importer: crate::store::watches::Importer::new(&config),
            host_roots: OnceLock::new(),
            media: OnceLock::new(),
            root,
            config,
            accounts: Mutex::default(),
            tasks: Tasks::default(),
            traces,
            queries,
            writer: Writer { model },
            shared,
            _lock: lock,
        }))
    }

    /// Removes pieces of files from the bucket of a cluster that no file uses any more. Answers how many. Blocks.
    pub fn sweep_pieces(&self) -> Result<u64> {
        let Some(shared) = &self.shared else { return Ok(0) };
        let accounts: Vec<Arc<Account>> = lock(&self.accounts).values().cloned().collect();
        accounts.iter().try_fold(0, |removed, account| Ok(removed + shared.sweep(account)?))
    }

    /// Sets folders from which agents may not import, even inside a folder that the configuration grants. Only the
    /// first call has an effect. The store's own folder is always protected.
    pub fn protect(&self, folders: &[PathBuf]) {
        let mut protected = folders.to_vec();
        protected.push(self.root.clone());
        self.host_roots.get_or_init(|| HostRoots::new(&self.config.import_roots, &protected));
    }

    /// Sets the folder in which the gateway stores received files. Only the first call has an effect.
    pub fn keep_media(&self, folder: PathBuf) {
        self.media.get_or_init(|| folder);
    }

    /// A file that the gateway received, by the name after `media://inbound/`.
    pub(crate) fn inbound(&self, name: &str) -> Result<PathBuf> {
        let missing = || ApiError::new(Code::NotFound, format!("there is no file media://inbound/{}", cut(name, 200)));
        let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        let path = self.media.get().filter(|_| plain).map(|folder| folder.join("inbound").join(name));
        // A symbolic link could point anywhere.
        path.filter(|path| path.symlink_metadata().is_ok_and(|found| found.is_file())).ok_or_else(missing)
    }

    /// The folders from which agents may import.
    pub(crate) fn host_roots(&self) -> &HostRoots {
        self.host_roots.get_or_init(|| HostRoots::new(&self.config.import_roots, std::slice::from_ref(&self.root)))
    }

    /// The configuration.
    pub fn config(&self) -> &ContextConfig {
        &self.config
    }

    fn open_account(&self, name: &str) -> Result<Arc<Account>> {
        let mut accounts = lock(&self.accounts);
        if let Some(account) = accounts.get(name) {
            return Ok(account.clone());
        }
        if accounts.len() >= MAX_ACCOUNTS {
            return Err(ApiError::new(Code::ResourceExhausted, format!("there are {MAX_ACCOUNTS} accounts already")));
        }
        let account = Arc::new(Account::open(&self.root, name)?);
        if self.shared.is_some() {
            accounts.insert(name.to_owned(), account.clone());
            return Ok(account);
        }
        // Pending memories are written before any request can forget one, so that a forgotten memory never comes back.
        for pending in archive::unfinished(&account)? {
            self.tasks.begin_as(
                &pending.task,
                "session_commit",
                pending.session(),
                &format!("{name}/{}", pending.user()),
            );
            let ended = archive::finish(&account, &pending, &Writer::default());
            self.tasks.end(&pending.task, ended);
        }
        accounts.insert(name.to_owned(), account.clone());
        Ok(account)
    }

    /// Runs a request on an account. In a cluster it begins with what other nodes have changed, and has ended when its own
    /// changes are durable for all; on a single machine it simply runs.
    pub fn request<T, E: From<ApiError>>(&self, account: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        match &self.shared {
            Some(shared) => shared.request(&self.open_account(account)?, work),
            None => work(),
        }
    }

    /// Runs a request on the account on whose behalf tools act; see [`ContextStore::request`].
    pub fn own_request<T, E: From<ApiError>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.request(&self.config.account_id, work)
    }

    /// Runs a request on the account of a session's workspace; see [`ContextStore::request`].
    pub fn request_in<T, E: From<ApiError>>(
        &self,
        session: &Session,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.request(session.account.as_deref().unwrap_or(&self.config.account_id), work)
    }

    /// The identity on whose behalf tools act in a session.
    pub(crate) fn identity_in(&self, session: &Session, peer: Option<String>) -> Identity {
        let account = session.account.clone().unwrap_or_else(|| self.config.account_id.clone());
        Identity { account, ..self.identity(peer) }
    }

    /// The caller's account; creates the caller's folders if necessary.
    pub fn account(&self, who: &Identity) -> Result<Arc<Account>> {
        let account = self.open_account(&who.account)?;
        account.meet(who)?;
        Ok(account)
    }

    /// The open accounts.
    pub(crate) fn open_accounts(&self) -> Vec<Arc<Account>> {
        lock(&self.accounts).values().cloned().collect()
    }

    /// The identity on whose behalf tools act.
    pub fn identity(&self, peer: Option<String>) -> Identity {
        Identity { account: self.config.account_id.clone(), user: self.config.user_id.clone(), peer }
    }

    /// Archives a session and starts to summarise it. With `wait`, the summary is complete when this returns.
    pub fn commit(self: &Arc<Self>, who: &Identity, session: &str, retain: Retain, wait: bool) -> Result<Commit> {
        let account = self.account(who)?;
        let owner = format!("{}/{}", who.account, who.user);
        let task = self.tasks.begin("session_commit", session, &owner);
        let committed = archive::commit(&account, who, session, retain, &task);
        let committed = committed.inspect_err(|error| self.tasks.end(&task, TaskResult::failed(error)))?;
        let commit = Commit {
            session: session.to_owned(),
            archive: committed.archive_uri.map(|uri| NewArchive { uri, task: task.clone() }),
            active_tokens: committed.active_tokens,
        };
        let Some(pending) = committed.pending else {
            self.tasks.end(&task, TaskResult::default());
            return Ok(commit);
        };
        let this = self.clone();
        let finish = move || this.tasks.end(&pending.task, archive::finish(&account, &pending, &this.writer));
        match tokio::runtime::Handle::try_current() {
            // What runs after a request's end would not be shared with other nodes.
            Ok(runtime) if !wait && self.shared.is_none() => drop(runtime.spawn_blocking(finish)),
            _ => finish(),
        }
        Ok(commit)
    }
}

/// The immediate result of a commit.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The session id.
    pub session: String,
    /// The new archive; `None` when there were no messages to archive.
    pub archive: Option<NewArchive>,
    /// Tokens of the messages that stay live.
    pub active_tokens: u64,
}

/// A new archive.
#[derive(Debug, Clone)]
pub struct NewArchive {
    /// The URI of its folder.
    pub uri: String,
    /// The task that summarises it.
    pub task: String,
}
