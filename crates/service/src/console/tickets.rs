//! Tickets for downloads: a link that works once, for one browser, for a minute. A browser cannot send a signed nonce
//! with a download, so the socket that did gets a ticket.

use super::{Console, hash_of, methods::file_name, new_secret};
use crate::{
    Method, Service,
    hub::lock,
    proof::RunsProve,
    runs::{RunsExport, RunsTranscript},
};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use toolyard_engine::{Caller, store::StoreError};
use toolyard_protocol::{Failure, RunId};

/// Random bytes of a ticket.
const TICKET_BYTES: usize = 16;
/// How long a ticket can be used.
const TICKET_LIFE: SignedDuration = SignedDuration::from_secs(60);
/// Tickets that are kept at once; beyond it, the oldest is forgotten.
const MAX_TICKETS: usize = 256;

/// What is downloaded of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DownloadForm {
    /// Manifest, calls, results and events.
    Export,
    /// Calls and results as messages.
    Transcript,
    /// The proof that the run is in the ledger.
    Receipt,
}

impl DownloadForm {
    /// The word in file names.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Transcript => "transcript",
            Self::Receipt => "receipt",
        }
    }
}

/// The download that a ticket gives access to.
#[derive(Debug, Clone)]
pub struct Download {
    /// The run.
    pub run_id: RunId,
    /// What of it.
    pub form: DownloadForm,
    /// The device that asked for it.
    pub device: String,
    expires_at: Timestamp,
}

impl Service {
    /// The name and the content of a downloaded file.
    pub async fn download(&self, caller: Arc<Caller>, download: &Download) -> Result<(String, Box<RawValue>), Failure> {
        let method = match download.form {
            DownloadForm::Export => RunsExport::NAME,
            DownloadForm::Transcript => RunsTranscript::NAME,
            DownloadForm::Receipt => RunsProve::NAME,
        };
        let run = download.run_id.to_string();
        let params = match download.form {
            DownloadForm::Receipt => json!({ "id": run }),
            DownloadForm::Export | DownloadForm::Transcript => json!({ "runId": run }),
        };
        let content = self.call(caller, method, params, None).await?;
        Ok((file_name(download.run_id, download.form), content))
    }
}

/// Tickets that were not used.
#[derive(Default)]
pub(super) struct Tickets(Mutex<HashMap<String, Download>>);

impl Console {
    /// Makes a ticket for a device.
    pub(crate) fn make_ticket(
        &self,
        run_id: RunId,
        form: DownloadForm,
        device: &str,
    ) -> Result<(String, Timestamp), StoreError> {
        let ticket = new_secret::<TICKET_BYTES>()?;
        let now = self.now();
        let expires_at = now.saturating_add(TICKET_LIFE).map_err(|e| StoreError::failed(e.to_string()))?;
        let mut tickets = lock(&self.tickets.0);
        tickets.retain(|_, download| download.expires_at > now);
        if tickets.len() >= MAX_TICKETS
            && let Some(oldest) = tickets.iter().min_by_key(|(_, d)| d.expires_at).map(|(key, _)| key.clone())
        {
            tickets.remove(&oldest);
        }
        tickets.insert(hash_of(&ticket), Download { run_id, form, device: device.to_owned(), expires_at });
        Ok((ticket, expires_at))
    }

    /// Takes a ticket: the download, if it is this device's, in time, and for the first time.
    pub fn take_ticket(&self, ticket: &str, device: &str) -> Option<Download> {
        let (key, now) = (hash_of(ticket), self.now());
        let mut tickets = lock(&self.tickets.0);
        // A ticket that another browser shows stays its owner's.
        if tickets.get(&key)?.device != device {
            return None;
        }
        tickets.remove(&key).filter(|download| download.expires_at > now)
    }
}
