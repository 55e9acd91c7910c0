//! Who asked a question, and who may answer it.
//!
//! An administrator may answer every question. Another caller with `operator.approvals` may answer questions that its
//! own device asked through another connection (no connection may approve a call that it is waiting for), and questions
//! that name its device as a reviewer. A question that no connection asked, such as a plan's, may be answered by every
//! caller that could not have asked it.

use super::question::StoredQuestion;
use crate::{Hub, hub::Connection};
use serde_json::Value;
use toolyard_engine::{
    approvals::{ApprovalRequest, REQUESTER},
    authority::holds,
};
use toolyard_protocol::WorkspaceId;

/// Where a question comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asker {
    /// The connection that asked, if any.
    pub(crate) connection: Option<String>,
    device: Option<String>,
    /// Additional devices that may answer.
    reviewers: Vec<String>,
    /// Whether a client asked on behalf of something else, instead of about a call that it is waiting for.
    is_own: bool,
    /// The workspace in which the question is asked.
    workspace: WorkspaceId,
}

impl Asker {
    /// The origin of a question that was asked.
    pub(crate) fn of(request: &ApprovalRequest) -> Self {
        let noted = request.extra.get(REQUESTER).and_then(Value::as_str);
        let (connection, device) = match noted.and_then(|text| text.split_once(' ')) {
            Some((connection, device)) => (Some(connection), Some(device)),
            None => (noted, None),
        };
        let asked = StoredQuestion::of(request);
        Self {
            connection: connection.map(str::to_owned),
            device: device.map(str::to_owned),
            is_own: asked.is_some(),
            workspace: request.workspace(),
            reviewers: asked.and_then(|asked| asked.approval_reviewer_device_ids).unwrap_or_default(),
        }
    }

    /// The origin of a question about a call that a connection is about to make.
    pub(crate) fn about_a_call(workspace: &WorkspaceId, connection: Option<&Connection>) -> Self {
        Self {
            workspace: workspace.clone(),
            connection: connection.map(|c| c.id.clone()),
            device: connection.and_then(|c| c.device.clone()),
            ..Self::default()
        }
    }

    /// The text that is stored with a question to identify its connection; [`Asker::of`] reads it.
    pub(crate) fn note(connection: &Connection) -> String {
        match &connection.device {
            Some(device) => format!("{} {device}", connection.id),
            None => connection.id.clone(),
        }
    }

    /// Whether a connection may see the question and answer it.
    pub(crate) fn may_be_answered_by(&self, connection: &Connection) -> bool {
        self.may_answer(&Answerer::from(connection))
    }

    /// Whether a client of any node may see the question and answer it.
    fn may_answer(&self, client: &Answerer<'_>) -> bool {
        if self.workspace != *client.workspace {
            return false;
        }
        if holds(client.scopes, "operator.admin") {
            return true;
        }
        if !holds(client.scopes, "operator.approvals") {
            return false;
        }
        // A person at a console may answer every question, whoever asked it.
        if client.is_person {
            return true;
        }
        if client.device.is_some_and(|device| self.reviewers.iter().any(|reviewer| reviewer == device)) {
            return true;
        }
        let same_connection = self.connection.as_deref() == Some(client.connection);
        match (self.device.as_deref(), &self.connection) {
            (Some(asking), _) => client.device == Some(asking) && (self.is_own || !same_connection),
            (None, Some(_)) => self.is_own && same_connection,
            (None, None) => self.reviewers.is_empty() && !holds(client.scopes, "operator.write"),
        }
    }

    /// Whether a client is connected, to this node or another one, that shows questions of this kind and may answer this
    /// one.
    pub(crate) fn is_heard(&self, hub: &Hub, kind: &str) -> bool {
        let is_another = |client: &Answerer<'_>| self.is_own || self.connection.as_deref() != Some(client.connection);
        let hears = |client: &Answerer<'_>| is_another(client) && self.may_answer(client);
        hub.any(|c| c.shows_approvals(kind) && hears(&Answerer::from(c))) || hub.inner.remote.any_approver(kind, hears)
    }
}

/// A client that may answer questions.
pub(crate) struct Answerer<'a> {
    pub(crate) connection: &'a str,
    pub(crate) device: Option<&'a str>,
    pub(crate) scopes: &'a [String],
    pub(crate) is_person: bool,
    pub(crate) workspace: &'a WorkspaceId,
}

impl<'a> From<&'a Connection> for Answerer<'a> {
    fn from(connection: &'a Connection) -> Self {
        Self {
            connection: &connection.id,
            device: connection.device.as_deref(),
            scopes: &connection.scopes,
            is_person: connection.standing().is_person,
            workspace: &connection.workspace,
        }
    }
}
