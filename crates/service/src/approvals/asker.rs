//! Who put a question, and who may answer it.
//!
//! An administrator may answer any. Anybody else with `operator.approvals` may answer what its own device asked about
//! (through another connection: nobody answers for the call it waits for), and what names its device as a reviewer.
//! A question that no connection put, such as a plan's, is for whoever could not have put it.

use super::question::Asked;
use crate::{Hub, hub::Connection};
use serde_json::Value;
use toolyard_engine::approvals::{ApprovalRequest, REQUESTER};

/// Where a question comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asker {
    /// The connection, where there is one.
    pub(crate) connection: Option<String>,
    device: Option<String>,
    /// Devices that may answer beside the usual.
    reviewers: Vec<String>,
    /// A client's own question, on behalf of something else, and not one about a call it waits for.
    is_own: bool,
}

impl Asker {
    /// Of a question that was put.
    pub(crate) fn of(request: &ApprovalRequest) -> Self {
        let noted = request.extra.get(REQUESTER).and_then(Value::as_str);
        let (connection, device) = match noted.and_then(|text| text.split_once(' ')) {
            Some((connection, device)) => (Some(connection), Some(device)),
            None => (noted, None),
        };
        let asked = Asked::of(request);
        Self {
            connection: connection.map(str::to_owned),
            device: device.map(str::to_owned),
            is_own: asked.is_some(),
            reviewers: asked.and_then(|asked| asked.approval_reviewer_device_ids).unwrap_or_default(),
        }
    }

    /// Of a question about a call that a connection is about to make.
    pub(crate) fn about_a_call(connection: Option<&Connection>) -> Self {
        Self {
            connection: connection.map(|c| c.id.clone()),
            device: connection.and_then(|c| c.device.clone()),
            ..Self::default()
        }
    }

    /// How a connection is noted beside its question, to be read again by [`Asker::of`].
    pub(crate) fn note(connection: &Connection) -> String {
        match &connection.device {
            Some(device) => format!("{} {device}", connection.id),
            None => connection.id.clone(),
        }
    }

    /// Whether a connection may see the question and answer it.
    pub(crate) fn may_be_answered_by(&self, connection: &Connection) -> bool {
        if connection.has("operator.admin") {
            return true;
        }
        if !connection.has("operator.approvals") {
            return false;
        }
        // A person at a console is nobody's agent: whoever asked, a person may answer.
        if connection.standing().is_person {
            return true;
        }
        let device = connection.device.as_ref();
        if device.is_some_and(|device| self.reviewers.contains(device)) {
            return true;
        }
        let same_connection = self.connection.as_ref() == Some(&connection.id);
        match (&self.device, &self.connection) {
            (Some(asking), _) => device == Some(asking) && (self.is_own || !same_connection),
            (None, Some(_)) => self.is_own && same_connection,
            (None, None) => self.reviewers.is_empty() && !connection.has("operator.write"),
        }
    }

    /// Whether somebody is connected who shows questions of a kind and may answer this one.
    pub(crate) fn is_heard(&self, hub: &Hub, kind: &str) -> bool {
        hub.any(|c| {
            let is_another = self.is_own || self.connection.as_ref() != Some(&c.id);
            is_another && c.shows_approvals(kind) && self.may_be_answered_by(c)
        })
    }
}
