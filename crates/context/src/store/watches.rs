//! Watches: sources that are imported again periodically.

use crate::{
    config::ContextConfig,
    error::{ApiError, Code, Result},
    service::ContextStore,
    store::{
        account::{Account, lock},
        disk::{self, Durability},
        fs,
        resources::{Imported, NewResource},
        uri::{Identity, StorePath},
    },
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

/// Maximum number of watches per account.
const MAX_WATCHES: usize = 200;

/// A source that is imported periodically.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Watch {
    /// The id of the watch.
    pub task_id: String,
    path: String,
    /// The resource that it updates.
    pub to_uri: String,
    user: String,
    /// The interval, in minutes.
    pub interval_minutes: f64,
    host_paths: bool,
    last_run: String,
    last_status: String,
    #[serde(default = "yes")]
    is_active: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    include: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ignore_dirs: Vec<String>,
}

fn yes() -> bool {
    true
}

/// Import settings, and the lock over the watches.
pub(crate) struct Importer {
    pub(crate) allowed_hosts: Vec<String>,
    watches: Mutex<()>,
}

impl Importer {
    pub(crate) fn new(config: &ContextConfig) -> Self {
        Self { allowed_hosts: config.allow_private_hosts.clone(), watches: Mutex::default() }
    }

    fn file(account: &Account) -> PathBuf {
        account.folder.join("resources/.watch_tasks.json")
    }

    fn load(account: &Account) -> Result<Vec<Watch>> {
        match disk::read_if_there(&Self::file(account))? {
            Some(text) => Ok(serde_json::from_str(&text)?),
            None => Ok(Vec::new()),
        }
    }

    fn change<T>(&self, account: &Account, change: impl FnOnce(&mut Vec<Watch>) -> Result<T>) -> Result<T> {
        let _held = lock(&self.watches);
        let mut all = Self::load(account)?;
        let changed = change(&mut all)?;
        disk::write(&Self::file(account), &serde_json::to_vec_pretty(&all)?, Durability::Durable)?;
        Ok(changed)
    }

    pub(crate) fn watches(&self, account: &Account) -> Result<Vec<Watch>> {
        Self::load(account)
    }

    /// The watch with this id, or the one that updates this URI.
    pub(crate) fn watch(&self, account: &Account, id: &str) -> Result<Watch> {
        let found = Self::load(account)?.into_iter().find(|watch| watch.is(id));
        found.ok_or_else(|| no_watch(id))
    }

    /// Changes the interval of a watch, or pauses or resumes it.
    pub(crate) fn rewatch(
        &self,
        account: &Account,
        id: &str,
        minutes: Option<f64>,
        active: Option<bool>,
    ) -> Result<Watch> {
        self.change(account, |all| {
            let watch = all.iter_mut().find(|watch| watch.is(id)).ok_or_else(|| no_watch(id))?;
            watch.interval_minutes = minutes.map_or(watch.interval_minutes, |minutes| minutes.max(1.0));
            watch.is_active = active.unwrap_or(watch.is_active);
            Ok(watch.clone())
        })
    }

    pub(crate) fn unwatch(&self, account: &Account, id: &str) -> Result<()> {
        self.change(account, |all| {
            let before = all.len();
            all.retain(|watch| !watch.is(id));
            if all.len() == before { Err(no_watch(id)) } else { Ok(()) }
        })
    }
}

impl Watch {
    fn is(&self, id: &str) -> bool {
        self.task_id == id || self.to_uri == id
    }
}

fn no_watch(id: &str) -> ApiError {
    ApiError::none_such(format!("Watch {} not found", fs::cut(id, 80)))
}

impl ContextStore {
    pub(crate) fn keep_watch(
        &self,
        account: &Account,
        who: &Identity,
        new: &NewResource,
        path: &str,
        root: &StorePath,
        minutes: f64,
    ) -> Result<Watch> {
        let watch = Watch {
            task_id: uuid::Uuid::new_v4().to_string(),
            path: path.to_owned(),
            to_uri: root.to_string(),
            user: who.user.clone(),
            interval_minutes: minutes.max(1.0),
            host_paths: new.host_paths,
            last_run: Timestamp::now().to_string(),
            last_status: "ok".to_owned(),
            is_active: !new.watch_paused,
            include: new.include.clone(),
            exclude: new.exclude.clone(),
            ignore_dirs: new.ignore_dirs.clone(),
        };
        self.importer.change(account, |all| {
            all.retain(|known| known.to_uri != watch.to_uri);
            if all.len() >= MAX_WATCHES {
                return Err(ApiError::new(Code::ResourceExhausted, format!("there are {MAX_WATCHES} watches already")));
            }
            all.push(watch.clone());
            Ok(watch)
        })
    }

    /// Imports a watched source again now.
    pub fn trigger(self: &Arc<Self>, account: &Account, id: &str) -> Result<Imported> {
        let watch = self.importer.watch(account, id)?;
        self.look_again(account, &watch)
    }

    /// Imports every watched source that is due. The server calls this periodically.
    pub fn run_watches(self: &Arc<Self>) {
        for account in self.open_accounts() {
            let looked = self.request(&account.name, || {
                self.run_watches_of(&account);
                Ok::<_, ApiError>(())
            });
            if let Err(error) = looked {
                tracing::warn!(account = account.name, error = error.message, "watched sources cannot be looked at");
            }
        }
    }

    fn run_watches_of(self: &Arc<Self>, account: &Account) {
        let watches = Importer::load(account).unwrap_or_else(|error| {
            tracing::warn!(account = account.name, error = error.message, "the watched sources cannot be read");
            Vec::new()
        });
        for watch in watches {
            let last = watch.last_run.parse::<Timestamp>().unwrap_or_default();
            let due = (Timestamp::now().as_second() - last.as_second()) as f64 >= watch.interval_minutes * 60.0;
            if due
                && watch.is_active
                && let Err(error) = self.look_again(account, &watch)
            {
                tracing::warn!(uri = %watch.to_uri, error = %error.message, "a watched resource could not be imported again");
            }
        }
    }

    fn look_again(self: &Arc<Self>, account: &Account, watch: &Watch) -> Result<Imported> {
        let who = Identity::new(&account.name, &watch.user, None)?;
        let new = NewResource {
            path: Some(watch.path.clone()),
            to: Some(watch.to_uri.clone()),
            describe: true,
            plain_file: true,
            host_paths: watch.host_paths,
            // The options of the first import apply to every later one.
            include: watch.include.clone(),
            exclude: watch.exclude.clone(),
            ignore_dirs: watch.ignore_dirs.clone(),
            ..NewResource::default()
        };
        let done = self.import(account, &who, &new);
        self.importer.change(account, |all| {
            for known in all.iter_mut().filter(|known| known.task_id == watch.task_id) {
                known.last_run = Timestamp::now().to_string();
                known.last_status = done.as_ref().map_or_else(|e| e.message.clone(), |_| "ok".to_owned());
            }
            Ok(())
        })?;
        done
    }
}
