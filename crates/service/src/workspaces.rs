//! Workspaces: what several people who share an installation keep apart, and the tokens that name a workspace.
//!
//! A token is shown once, when it is made; the store keeps its SHA-256. The gateway's own token names the default
//! workspace. A removed workspace keeps its name for ever: what is recorded and remembered under the name must not come
//! to a later workspace of the same name.

use crate::{
    Call, Handle, MethodError, NoParams, Service, Terms,
    devices::{Devices, fill_random},
    hub::lock,
    methods,
    service::blocking,
    sessions,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq;
use toolyard_engine::{
    Clock, Store,
    authority::{Effect, Scope},
    store::{StoreError, Swap},
};
use toolyard_protocol::{ErrorCode, Failure, WorkspaceId, canonical};

const SPACE: &str = "workspaces";
/// Workspaces of one installation, removed ones included.
const MAX_WORKSPACES: usize = 100;
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// How old the list may be that a token is compared with. Another node may have changed it.
const LIST_LIFE: Duration = Duration::from_secs(1);

/// For the person at this machine.
const MANAGE: Terms = Terms::new(Some(Scope::Admin), Effect::State).local().person();

methods! {
    /// Lists the workspaces.
    WorkspacesList = "workspaces.list", MANAGE, NoParams => WorkspaceList;
    /// Makes a workspace and its token, which is shown once.
    WorkspacesAdd = "workspaces.add", MANAGE, AddParams => NewToken;
    /// Removes a workspace: its token, devices and connections end at once. What it recorded is kept.
    WorkspacesRemove = "workspaces.remove", MANAGE, NameParams => RemovedWorkspace;
    /// Makes a new token for a workspace, which is shown once; the old one ends at once.
    WorkspacesRotate = "workspaces.rotate", MANAGE, NameParams => NewToken;
}

/// The scopes that a credential can have in a workspace. The installation as a whole belongs to the default workspace, so
/// that `operator.admin` means everything else in another one.
pub fn held_scopes(workspace: &WorkspaceId, scopes: Vec<String>) -> Vec<String> {
    if workspace.is_default() || !scopes.iter().any(|scope| scope == Scope::Admin.as_str()) {
        return scopes;
    }
    let below = Scope::ALL.into_iter().filter(|scope| *scope != Scope::Admin).map(|scope| scope.as_str().to_owned());
    let mut held: Vec<String> = scopes.into_iter().filter(|scope| scope != Scope::Admin.as_str()).collect();
    for scope in below {
        if !held.contains(&scope) {
            held.push(scope);
        }
    }
    held
}

/// A workspace, as it is stored under its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Workspace {
    name: WorkspaceId,
    token_sha256: String,
    /// Incremented when the token is replaced.
    generation: u64,
    /// Whether it may use the tools of the notes' vault.
    vault: bool,
    created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removed_at: Option<Timestamp>,
}

/// A token that names a workspace: which one, and which of its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenOwner {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// The number of the token; a connection made with an earlier one is closed.
    pub generation: u64,
}

/// The workspaces of an installation.
pub struct Workspaces {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    list: Mutex<Option<(Instant, Arc<Vec<Workspace>>)>>,
}

impl Workspaces {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, list: Mutex::default() }
    }

    /// All workspaces but the default one, at most [`LIST_LIFE`] old. May block.
    fn all(&self) -> Result<Arc<Vec<Workspace>>, StoreError> {
        if let Some((at, list)) = &*lock(&self.list)
            && at.elapsed() < LIST_LIFE
        {
            return Ok(list.clone());
        }
        self.read()
    }

    fn read(&self) -> Result<Arc<Vec<Workspace>>, StoreError> {
        let facts = self.store.list(SPACE)?;
        let list: Vec<Workspace> = facts.iter().filter_map(|(_, bytes)| serde_json::from_slice(bytes).ok()).collect();
        let list = Arc::new(list);
        *lock(&self.list) = Some((Instant::now(), list.clone()));
        Ok(list)
    }

    /// The workspace whose token this is. May block.
    pub fn with_token(&self, shown: &str) -> Result<Option<TokenOwner>, StoreError> {
        let (all, shown) = (self.all()?, canonical::sha256_hex(shown.as_bytes()));
        // Every token is compared, in a time that does not tell which one was nearly right.
        let mut found = None;
        for workspace in all.iter().filter(|workspace| workspace.removed_at.is_none()) {
            if bool::from(workspace.token_sha256.as_bytes().ct_eq(shown.as_bytes())) {
                found = Some(TokenOwner { workspace: workspace.name.clone(), generation: workspace.generation });
            }
        }
        Ok(found)
    }

    /// Whether a credential of a workspace is still valid. A device needs no token of the workspace any more. May block.
    pub(crate) fn admits(&self, workspace: &WorkspaceId, generation: Option<u64>) -> Result<bool, StoreError> {
        if workspace.is_default() {
            return Ok(true);
        }
        let all = self.all()?;
        let known = all.iter().find(|known| known.name == *workspace && known.removed_at.is_none());
        Ok(known.is_some_and(|known| generation.is_none_or(|generation| generation == known.generation)))
    }

    /// A workspace that the person at this machine names. A removed one can still be looked at. May block.
    pub fn named(&self, name: &str) -> Result<WorkspaceId, Failure> {
        let workspace = read_name(name)?;
        match workspace.is_default() || self.read()?.iter().any(|known| known.name == workspace) {
            true => Ok(workspace),
            false => Err(unknown(&workspace)),
        }
    }

    /// Whether a workspace may use the notes' vault. It may not where that cannot be read. May block.
    pub fn sees_vault(&self, workspace: &WorkspaceId) -> bool {
        let has_it = |all: Arc<Vec<Workspace>>| all.iter().any(|known| known.name == *workspace && known.vault);
        workspace.is_default() || self.all().is_ok_and(has_it)
    }

    fn add(&self, name: &str, vault: bool) -> Result<NewToken, Failure> {
        let workspace = read_name(name)?;
        if workspace.is_default() {
            return Err(Failure::new(ErrorCode::Conflict, "the default workspace is always there").retryable(false));
        }
        if self.read()?.len() >= MAX_WORKSPACES {
            let message = format!("there are {MAX_WORKSPACES} workspaces, removed ones included");
            return Err(Failure::new(ErrorCode::LimitExceeded, message).retryable(false));
        }
        let (token, token_sha256) = new_token()?;
        let made = Workspace {
            name: workspace.clone(),
            token_sha256,
            generation: 1,
            vault,
            created_at: self.clock.now(),
            removed_at: None,
        };
        match self.swap(&workspace, None, &made)? {
            true => {
                sessions::ensure_main(&self.store, &workspace)?;
                Ok(NewToken { name: workspace, token })
            }
            false => Err(Failure::new(ErrorCode::Conflict, format!("the name {workspace} is taken"))
                .suggest("Choose another name; the name of a removed workspace cannot be used again.")
                .retryable(false)),
        }
    }

    fn rotate(&self, name: &str) -> Result<NewToken, Failure> {
        let (token, token_sha256) = new_token()?;
        let changed =
            self.change(name, |known| Workspace { token_sha256, generation: known.generation + 1, ..known })?;
        Ok(NewToken { name: changed.name, token })
    }

    fn remove(&self, name: &str) -> Result<WorkspaceId, Failure> {
        let now = self.clock.now();
        let changed = self.change(name, |known| Workspace {
            token_sha256: String::new(),
            generation: known.generation + 1,
            removed_at: Some(now),
            ..known
        })?;
        Ok(changed.name)
    }

    /// Changes a workspace that is there.
    fn change(&self, name: &str, change: impl FnOnce(Workspace) -> Workspace) -> Result<Workspace, Failure> {
        let workspace = read_name(name)?;
        let found = self.store.get(SPACE, workspace.as_str())?;
        let known = found.as_deref().and_then(|bytes| serde_json::from_slice::<Workspace>(bytes).ok());
        let known = known.filter(|known| known.removed_at.is_none()).ok_or_else(|| unknown(&workspace))?;
        let changed = change(known);
        match self.swap(&workspace, found.as_deref(), &changed)? {
            true => Ok(changed),
            false => Err(Failure::new(ErrorCode::Conflict, "the workspace was changed at the same time")),
        }
    }

    /// Stores a workspace if it is what was read. False if it is not any more.
    fn swap(&self, name: &WorkspaceId, expected: Option<&[u8]>, wanted: &Workspace) -> Result<bool, StoreError> {
        let bytes = serde_json::to_vec(wanted).map_err(|error| StoreError::failed(error.to_string()))?;
        let swap = self.store.compare_and_set(SPACE, name.as_str(), expected, Some((bytes, None)))?;
        self.read()?;
        Ok(swap == Swap::Done)
    }
}

fn read_name(name: &str) -> Result<WorkspaceId, Failure> {
    WorkspaceId::parse(name).map_err(|error| {
        Failure::new(ErrorCode::ValidationError, error.to_string())
            .suggest("A name has 1 to 32 lower-case letters, digits or hyphens, and begins with a letter or digit.")
            .retryable(false)
    })
}

fn unknown(workspace: &WorkspaceId) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("there is no workspace {workspace}"))
        .suggest("List them with `toolyard workspaces list`.")
        .retryable(false)
}

/// A token, and the hash that is kept of it.
fn new_token() -> Result<(String, String), StoreError> {
    let mut bytes = [0u8; TOKEN_BYTES];
    fill_random(&mut bytes)?;
    let token = BASE64URL.encode(bytes);
    let hash = canonical::sha256_hex(token.as_bytes());
    Ok((token, hash))
}

/// The name of a new workspace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddParams {
    /// 1 to 32 lower-case letters, digits or hyphens.
    pub name: String,
    /// Whether it may use the tools of the notes' vault, which belongs to the default workspace.
    #[serde(default)]
    pub vault: bool,
}

/// A workspace by name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NameParams {
    /// The workspace.
    pub name: String,
}

/// The token of a workspace. It is not stored and cannot be shown again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewToken {
    /// The workspace.
    pub name: WorkspaceId,
    /// The token.
    pub token: String,
}

/// A workspace that was removed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedWorkspace {
    /// The workspace.
    pub name: WorkspaceId,
    /// Always true.
    pub removed: bool,
}

/// Workspaces, the default one first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceList {
    /// The workspaces.
    pub workspaces: Vec<ShownWorkspace>,
}

/// A workspace in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownWorkspace {
    /// Its name.
    pub name: WorkspaceId,
    /// Whether it may use the notes' vault.
    pub vault: bool,
    /// When it was made; absent for the default workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// When it was removed, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Timestamp>,
}

impl Service {
    /// The workspaces, on a thread that may wait for the store.
    async fn with_workspaces<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Workspaces) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, MethodError> {
        let workspaces = self.workspaces().clone();
        blocking(move || Ok(work(&workspaces)?)).await
    }
}

impl Handle<WorkspacesList> for Service {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<WorkspaceList, MethodError> {
        let all = self.with_workspaces(|workspaces| Ok(workspaces.read()?)).await?;
        let first = ShownWorkspace { name: WorkspaceId::default(), vault: true, created_at: None, removed_at: None };
        let others = all.iter().map(|known| ShownWorkspace {
            name: known.name.clone(),
            vault: known.vault,
            created_at: Some(known.created_at),
            removed_at: known.removed_at,
        });
        Ok(WorkspaceList { workspaces: std::iter::once(first).chain(others).collect() })
    }
}

impl Handle<WorkspacesAdd> for Service {
    async fn handle(&self, _: &Call<'_>, params: AddParams) -> Result<NewToken, MethodError> {
        self.with_workspaces(move |workspaces| workspaces.add(&params.name, params.vault)).await
    }
}

impl Handle<WorkspacesRotate> for Service {
    async fn handle(&self, _: &Call<'_>, params: NameParams) -> Result<NewToken, MethodError> {
        self.with_workspaces(move |workspaces| workspaces.rotate(&params.name)).await
    }
}

impl Handle<WorkspacesRemove> for Service {
    async fn handle(&self, _: &Call<'_>, params: NameParams) -> Result<RemovedWorkspace, MethodError> {
        let name = self.with_workspaces(move |workspaces| workspaces.remove(&params.name)).await?;
        Devices::remove_workspace(self.devices(), &name).await?;
        Ok(RemovedWorkspace { name, removed: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_engine::{memory_store::MemoryStore, system_clock};

    fn workspaces() -> Workspaces {
        Workspaces::new(Arc::new(MemoryStore::new()), system_clock())
    }

    #[test]
    fn a_token_names_its_workspace_until_it_is_rotated_or_the_workspace_removed() {
        let all = workspaces();
        let made = all.add("bob", false).unwrap();
        let stored = all.store.get(SPACE, "bob").unwrap().unwrap();
        assert!(!String::from_utf8(stored).unwrap().contains(&made.token), "only a hash is kept");
        let first = all.with_token(&made.token).unwrap().unwrap();
        assert_eq!((first.workspace.as_str(), first.generation), ("bob", 1));
        assert!(all.admits(&made.name, Some(1)).unwrap());
        let next = all.rotate("bob").unwrap();
        assert_eq!(all.with_token(&made.token).unwrap(), None);
        assert_eq!(all.with_token(&next.token).unwrap().unwrap().generation, 2);
        assert!(!all.admits(&made.name, Some(1)).unwrap() && all.admits(&made.name, None).unwrap());
        all.remove("bob").unwrap();
        assert_eq!(all.with_token(&next.token).unwrap(), None);
        assert!(!all.admits(&made.name, None).unwrap());
        assert_eq!(all.add("bob", false).unwrap_err().code, ErrorCode::Conflict, "a name is used once");
        assert_eq!(all.rotate("bob").unwrap_err().code, ErrorCode::NotFound);
        assert!(all.named("bob").is_ok(), "the person may look at what it left");
        assert_eq!(all.named("eve").unwrap_err().code, ErrorCode::NotFound);
    }

    #[test]
    fn the_vault_is_the_default_workspaces_unless_another_one_is_given_it() {
        let all = workspaces();
        let (bob, eve) = (all.add("bob", false).unwrap().name, all.add("eve", true).unwrap().name);
        assert!(all.sees_vault(&WorkspaceId::default()) && !all.sees_vault(&bob) && all.sees_vault(&eve));
        assert_eq!(all.add("default", true).unwrap_err().code, ErrorCode::Conflict);
        assert_eq!(all.add("No", true).unwrap_err().code, ErrorCode::ValidationError);
    }

    #[test]
    fn no_credential_of_a_workspace_is_an_administrators() {
        let admin = vec!["operator.admin".to_owned()];
        assert_eq!(held_scopes(&WorkspaceId::default(), admin.clone()), admin);
        let held = held_scopes(&WorkspaceId::parse("bob").unwrap(), admin);
        assert_eq!(held, ["operator.read", "operator.write", "operator.approvals", "operator.pairing"]);
    }
}
