//! [`ContextStore`]: all accounts, and what goes on beside requests.

use crate::{
    config::ContextConfig,
    error::{ApiError, Code, Result},
    find::{query_config::QueryConfigs, trace::Traces},
    sessions::{
        archive::{self, Retain},
        model::Model,
        tasks::{Ended, Tasks},
        writer::Writer,
    },
    store::{
        account::{Account, lock},
        fs::cut,
        host_paths::HostRoots,
        uri::Identity,
    },
};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
};

/// Accounts that are open at once.
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
    /// Where the gateway keeps files that it received.
    media: OnceLock<PathBuf>,
    /// Held for as long as the store is open: two processes would undo each other's work.
    _lock: std::fs::File,
}

impl ContextStore {
    /// Opens the store at a folder, and finishes what a killed process left unfinished.
    pub fn open(root: PathBuf, config: ContextConfig) -> Result<Arc<Self>> {
        std::fs::create_dir_all(&root)?;
        let lock = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(root.join(".lock"))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| ApiError::new(Code::Unavailable, format!("{} is used by another Toolyard", root.display())))?;
        let traces = Traces::open(&config, root.parent().unwrap_or(&root));
        let queries = QueryConfigs::open(config.runtime_query_config_path.clone());
        let model = config.llm.as_ref().and_then(|llm| {
            Model::new(llm).inspect_err(|why| tracing::warn!(%why, "no language model: digests are extracted")).ok()
        });
        let store = Arc::new(Self {
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
            _lock: lock,
        });
        for found in crate::store::disk::list(&store.root)? {
            // Every account has that folder, so each is finished here, and its watched sources are looked at from now on.
            if found.is_folder && store.root.join(&found.name).join("_system/pending").is_dir() {
                store.open_account(&found.name)?;
            }
        }
        Ok(store)
    }

    /// Names folders that agents may not import from even where the configuration grants a folder around them. The
    /// first call counts; without one nothing is granted but what lies outside of the store.
    pub fn protect(&self, folders: &[PathBuf]) {
        let mut protected = folders.to_vec();
        protected.push(self.root.clone());
        self.host_roots.get_or_init(|| HostRoots::new(&self.config.import_roots, &protected));
    }

    /// Names the folder in which the gateway keeps files that it received. The first call counts.
    pub fn keep_media(&self, folder: PathBuf) {
        self.media.get_or_init(|| folder);
    }

    /// A file that the gateway received, by the name that follows `media://inbound/`.
    pub(crate) fn inbound(&self, name: &str) -> Result<PathBuf> {
        let missing = || ApiError::new(Code::NotFound, format!("there is no file media://inbound/{}", cut(name, 200)));
        let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        let path = self.media.get().filter(|_| plain).map(|folder| folder.join("inbound").join(name));
        // A link could lead anywhere.
        path.filter(|path| path.symlink_metadata().is_ok_and(|found| found.is_file())).ok_or_else(missing)
    }

    /// The folders that agents may import from.
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
        // Before anybody can forget a memory, those that were promised are written; so none comes back afterwards.
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

    /// The caller's account, with the caller's folders in it.
    pub fn account(&self, who: &Identity) -> Result<Arc<Account>> {
        let account = self.open_account(&who.account)?;
        account.meet(who)?;
        Ok(account)
    }

    /// The accounts that are open.
    pub(crate) fn open_accounts(&self) -> Vec<Arc<Account>> {
        lock(&self.accounts).values().cloned().collect()
    }

    /// Who tools act for.
    pub fn identity(&self, peer: Option<String>) -> Identity {
        Identity { account: self.config.account_id.clone(), user: self.config.user_id.clone(), peer }
    }

    /// Archives a session, and begins to summarise it. With `wait`, that is done before this returns.
    pub fn commit(self: &Arc<Self>, who: &Identity, session: &str, retain: Retain, wait: bool) -> Result<Commit> {
        let account = self.account(who)?;
        let owner = format!("{}/{}", who.account, who.user);
        let task = self.tasks.begin("session_commit", session, &owner);
        let committed = archive::commit(&account, who, session, retain, &task);
        let committed = committed.inspect_err(|error| self.tasks.end(&task, Ended::failed(error)))?;
        let commit = Commit {
            session: session.to_owned(),
            archive: committed.archive_uri.map(|uri| NewArchive { uri, task: task.clone() }),
            active_tokens: committed.active_tokens,
        };
        let Some(pending) = committed.pending else {
            self.tasks.end(&task, Ended::default());
            return Ok(commit);
        };
        let this = self.clone();
        let finish = move || this.tasks.end(&pending.task, archive::finish(&account, &pending, &this.writer));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !wait => drop(runtime.spawn_blocking(finish)),
            _ => finish(),
        }
        Ok(commit)
    }
}

/// What a commit did at once.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The session.
    pub session: String,
    /// The archive; unset where there were no messages to archive.
    pub archive: Option<NewArchive>,
    /// Tokens of the messages that stayed live.
    pub active_tokens: u64,
}

/// An archive that was made.
#[derive(Debug, Clone)]
pub struct NewArchive {
    /// Its folder.
    pub uri: String,
    /// The task that summarises it.
    pub task: String,
}
