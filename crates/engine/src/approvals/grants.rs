//! Grants: lasting permissions that a person gave with an answer. A grant has a scope and may have an end; it can be
//! listed and revoked.

use super::{ApprovalRequest, Approvals};
use crate::{
    Caller, Door,
    authority::{self, Approver},
    store::StoreError,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_protocol::{ErrorCode, Failure, RunId, WorkspaceId, canonical};

/// Grants, keyed by workspace, agent, tool and id.
const SPACE: &str = "grant";
/// Grants of earlier versions: one for an agent and a tool, keyed by both. The value is the giver's name.
const OLD_SPACE: &str = "grants";
/// How earlier versions named the user of a client. They accepted lasting permissions from clients, which do not count.
const OLD_CLIENT_USER: &str = " (asked by the MCP client)";
/// The ids of grants of earlier versions begin with this.
const OLD_ID: &str = "old-";
/// Grants that one agent may hold for one tool. A lookup reads all of them.
const MAX_FOR_TOOL: usize = 1000;

/// Which calls a grant covers, beyond its agent and its tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum GrantScope {
    /// Calls with these arguments, or, for a question that no tool call waits on, this question again.
    Arguments {
        /// The hash of the arguments; of the question's own ones where it is absent.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        args_hash: String,
    },
    /// Calls in one run.
    Run {
        /// The run; the question's own one where it is absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
    },
    /// Calls whose paths all lie below a folder.
    Folder {
        /// The folder, relative to the vault.
        path: String,
    },
    /// All calls of the tool.
    #[default]
    Tool,
}

impl GrantScope {
    /// Whether the scope is the whole tool.
    pub fn is_tool(&self) -> bool {
        *self == Self::Tool
    }

    /// The scope with what the question adds to it. A scope that would not cover the question's own call is refused.
    pub(super) fn of_question(&self, request: &ApprovalRequest) -> Result<Self, Failure> {
        let refused = |why: &str| {
            Err(Failure::new(ErrorCode::ValidationError, format!("this question takes no grant of that scope: {why}"))
                .suggest("Choose one of the scopes that the question offers, or allow it once.")
                .retryable(false))
        };
        if request.call_id.is_none() {
            // No tool call waits for this question, so the grant covers this question alone, whatever scope was chosen.
            return Ok(Self::Arguments { args_hash: request.args_hash.clone() });
        }
        match self {
            Self::Arguments { .. } => Ok(Self::Arguments { args_hash: request.args_hash.clone() }),
            Self::Tool => Ok(Self::Tool),
            Self::Run { .. } => match request.run_id {
                Some(run_id) => Ok(Self::Run { run_id: Some(run_id) }),
                None => refused("it belongs to no run"),
            },
            Self::Folder { path } => {
                let path = path.trim_matches('/').to_owned();
                match is_below(&path, &request.paths) {
                    true => Ok(Self::Folder { path }),
                    false => refused("its paths do not all lie in that folder"),
                }
            }
        }
    }

    fn covers(&self, request: &ApprovalRequest) -> bool {
        match self {
            Self::Tool => request.call_id.is_some(),
            Self::Arguments { args_hash } => *args_hash == request.args_hash,
            Self::Run { run_id } => run_id.is_some() && *run_id == request.run_id,
            Self::Folder { path } => request.call_id.is_some() && is_below(path, &request.paths),
        }
    }
}

/// Whether there are paths and all of them lie below a folder. A path with `..` is in no folder.
fn is_below(folder: &str, paths: &[String]) -> bool {
    let is_plain = |path: &str| !path.split(['/', '\\']).any(|segment| matches!(segment, ".." | "."));
    let is_inside = |path: &String| {
        let rest = path.trim_start_matches('/').strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        is_plain(path) && rest.is_some_and(|rest| !rest.is_empty())
    };
    !folder.is_empty() && is_plain(folder) && !paths.is_empty() && paths.iter().all(is_inside)
}

/// A lasting permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// Its id.
    pub id: String,
    /// The agent that may make the calls.
    pub agent: String,
    /// The tool that may be called.
    pub tool: String,
    /// Which calls of the tool.
    pub scope: GrantScope,
    /// Who gave it.
    pub given_by: String,
    /// The door by which it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// When it was given; unknown for grants of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_at: Option<Timestamp>,
    /// When it ends; never where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The question that it was the answer to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// The workspace in which it holds.
    #[serde(default, skip_serializing_if = "WorkspaceId::is_default")]
    pub workspace: WorkspaceId,
}

impl Grant {
    fn key(&self) -> String {
        format!("{}{}", prefix(&self.workspace, &self.agent, &self.tool), self.id)
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// A grant of an earlier version. The store knows when it ends and does not report it.
    fn old(key: &str, value: &[u8]) -> Option<Self> {
        let (agent, subject) = key.split_once('\n')?;
        let given_by = String::from_utf8_lossy(value).into_owned();
        if given_by.ends_with(OLD_CLIENT_USER) {
            return None;
        }
        let (tool, scope) = match subject.split_once('\n') {
            Some((kind, hash)) => (kind.to_owned(), GrantScope::Arguments { args_hash: hash.to_owned() }),
            None => (subject.to_owned(), GrantScope::Tool),
        };
        Some(Self {
            id: format!("{OLD_ID}{}", &canonical::sha256_hex(key.as_bytes())[..16]),
            agent: agent.to_owned(),
            tool,
            scope,
            given_by,
            door: None,
            given_at: None,
            until: None,
            approval_id: None,
            workspace: WorkspaceId::default(),
        })
    }
}

fn prefix(workspace: &WorkspaceId, agent: &str, tool: &str) -> String {
    workspace.key(&format!("{agent}\n{tool}\n")).into_owned()
}

/// The key under which earlier versions kept what covers a question.
fn old_key(request: &ApprovalRequest) -> String {
    match request.call_id {
        Some(_) => format!("{}\n{}", request.agent, request.tool),
        None => format!("{}\n{}\n{}", request.agent, request.kind, request.args_hash),
    }
}

/// Who gives a grant, and when.
pub(super) struct Grantor<'a> {
    pub(super) name: &'a str,
    pub(super) door: Option<Door>,
    pub(super) at: Timestamp,
}

/// The grant that an answer gives.
pub(super) fn given(
    id: String,
    request: &ApprovalRequest,
    scope: GrantScope,
    until: Option<Timestamp>,
    by: &Grantor<'_>,
) -> Grant {
    Grant {
        id,
        agent: request.agent.clone(),
        tool: request.tool.clone(),
        scope,
        given_by: by.name.to_owned(),
        door: by.door.map(|door| door.as_str().to_owned()),
        given_at: Some(by.at),
        until,
        approval_id: Some(request.id.clone()),
        workspace: request.workspace(),
    }
}

impl Approvals {
    /// The grant that covers a question, if there is one.
    pub fn grant_for(&self, request: &ApprovalRequest) -> Result<Option<Grant>, StoreError> {
        let (now, workspace) = (self.clock.now(), request.workspace());
        let start = prefix(&workspace, &request.agent, &request.tool);
        let page = self.store.list_page(SPACE, &start, None, MAX_FOR_TOOL)?;
        let mut grants = page.iter().filter_map(|(_, bytes)| serde_json::from_slice::<Grant>(bytes).ok());
        // The parts of the key may contain its separator, so they are read from the grant itself.
        let is_covering = |grant: &Grant| {
            let is_theirs = grant.agent == request.agent && grant.tool == request.tool;
            is_theirs && grant.workspace == workspace && !grant.is_over(now) && grant.scope.covers(request)
        };
        if let Some(grant) = grants.find(is_covering) {
            return Ok(Some(grant));
        }
        if !workspace.is_default() {
            return Ok(None);
        }
        let key = old_key(request);
        Ok(self.store.get(OLD_SPACE, &key)?.and_then(|value| Grant::old(&key, &value)))
    }

    /// Every grant of a caller's workspace that has not ended, oldest first.
    pub fn grants(&self, caller: &Caller) -> Result<Vec<Grant>, StoreError> {
        let now = self.clock.now();
        let old = self.store.list(OLD_SPACE)?;
        let mut all: Vec<Grant> = old.iter().filter_map(|(key, value)| Grant::old(key, value)).collect();
        let new = self.store.list(SPACE)?;
        all.extend(new.iter().filter_map(|(_, bytes)| serde_json::from_slice::<Grant>(bytes).ok()));
        all.retain(|grant| authority::sees(caller, &grant.workspace) && !grant.is_over(now));
        all.sort_by(|a, b| a.given_at.cmp(&b.given_at).then_with(|| a.id.cmp(&b.id)));
        Ok(all)
    }

    /// Takes a grant back. Only somebody who may give grants may do so.
    pub async fn revoke_grant(&self, id: &str, by: &Caller) -> Result<Grant, Failure> {
        Approver::of(by)?;
        let unknown = || {
            Failure::new(ErrorCode::NotFound, format!("there is no grant {id:?}"))
                .suggest("List the grants with `toolyard grants list`.")
        };
        let grant = self.grants(by)?.into_iter().find(|grant| grant.id == id).ok_or_else(unknown)?;
        let position = if grant.id.starts_with(OLD_ID) {
            let old = self.store.list(OLD_SPACE)?;
            let is_it = |(key, value): &&(String, Vec<u8>)| Grant::old(key, value).is_some_and(|old| old.id == id);
            let (key, _) = old.iter().find(is_it).ok_or_else(unknown)?;
            self.store.remove(OLD_SPACE, key)?
        } else {
            self.store.remove(SPACE, &grant.key())?
        };
        self.store.durable(position).await?;
        Ok(grant)
    }

    /// Keeps a grant; it is durable when this returns.
    pub(super) async fn keep_grant(&self, grant: &Grant) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(grant).map_err(|e| StoreError::failed(e.to_string()))?;
        let position = self.store.put(SPACE, &grant.key(), bytes, grant.until)?;
        self.store.durable(position).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_holds_what_lies_below_it_and_nothing_that_climbs() {
        let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        for (folder, inside) in [("a", &["a/b.md", "a/c/d.md"][..]), ("a/b", &["a/b/c.md"]), ("a", &["/a/b.md"])] {
            assert!(is_below(folder, &paths(inside)), "{folder} {inside:?}");
        }
        for (folder, outside) in [
            ("a", &["ab/c.md"][..]),
            ("a", &["a/b.md", "c.md"]),
            ("a", &["a/../c.md"]),
            ("a", &["a"]),
            ("a", &[]),
            ("", &["a.md"]),
            ("a/..", &["a/../b.md"]),
        ] {
            assert!(!is_below(folder, &paths(outside)), "{folder} {outside:?}");
        }
    }
}
