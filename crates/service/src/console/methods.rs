//! The methods of the console itself: a code for the next browser, the feed, and tickets for downloads.

use super::{DownloadForm, Rights};
use crate::{
    Call, Handle, Hub, MethodError, RpcError, Service, Terms, console::feed::Position, methods, params::Count,
    service::blocking,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::authority::Power;
use toolyard_protocol::{ErrorCode, Failure, RunId};

methods! {
    /// Makes a one-use code and the address with which one browser is paired.
    ConsoleCode = "console.code", Terms::pair().local().person().uses(&[Power::Pair, Power::Grant]), ConsoleCodeParams => NewCode;
    /// Sends changes of runs, questions and devices in order, from now on or from the position where a connection was
    /// lost.
    ConsoleSubscribe = "console.subscribe", Terms::read(), FeedParams => Subscribed;
    /// Makes a link with which one browser can download a run's file once, within a minute.
    DownloadsTicket = "downloads.ticket", Terms::read(), TicketParams => Ticket;
}

/// What the browser may do, and how it gets the code.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConsoleCodeParams {
    /// What the browser may do.
    pub rights: Rights,
    /// Whether the code is shown as a picture, for a phone; it can then be used for five minutes instead of two.
    pub phone: bool,
}

/// An address with which one browser is paired.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewCode {
    /// The address; the code is behind the `#`, which browsers do not send.
    pub url: String,
    /// Until when it can be used.
    pub expires_at: Timestamp,
}

impl Handle<ConsoleCode> for Service {
    async fn handle(&self, call: &Call<'_>, params: ConsoleCodeParams) -> Result<NewCode, MethodError> {
        let Some(address) = self.console().address() else {
            return Err(Failure::new(ErrorCode::Unavailable, "no Toolyard serves the console for this home")
                .suggest("Start it with `toolyard up`, then run `toolyard console` again.")
                .into());
        };
        let code = self.console().make_code(params.rights, params.phone, &call.caller).await?;
        Ok(NewCode { url: format!("{address}/pair#{}", code.code), expires_at: code.expires_at })
    }
}

/// Where a connection was lost.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FeedParams {
    /// The last item that was seen.
    after: Option<FeedPosition>,
}

/// A place in the feed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct FeedPosition {
    /// The process that numbered the items.
    boot_id: String,
    /// The item's number.
    seq: Count,
}

/// A subscription to the feed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subscribed {
    /// The process that numbers the items.
    boot_id: String,
    /// The number of the newest item.
    seq: u64,
    /// Whether everything since the named item is sent. If not, what is shown must be fetched again.
    resumed: bool,
}

impl Handle<ConsoleSubscribe> for Hub {
    async fn handle(&self, call: &Call<'_>, params: FeedParams) -> Result<Subscribed, MethodError> {
        let boot_id = self.inner.instance_id.clone();
        let after = params.after.filter(|after| after.boot_id == boot_id).map(|after| after.seq.0);
        let Position { seq, resumed } = self.subscribe_to_feed(call.connection()?, after);
        Ok(Subscribed { boot_id, seq, resumed })
    }
}

/// What is downloaded.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TicketParams {
    run_id: RunId,
    form: DownloadForm,
}

/// A link that works once.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// Its path.
    path: String,
    /// The name of the file.
    name: String,
    /// Until when it works.
    expires_at: Timestamp,
}

/// The name of the file that a download makes.
pub(super) fn file_name(run_id: RunId, form: DownloadForm) -> String {
    format!("run-{run_id}-{}.json", form.as_str())
}

impl Handle<DownloadsTicket> for Service {
    async fn handle(&self, call: &Call<'_>, params: TicketParams) -> Result<Ticket, MethodError> {
        let (store, run_id) = (self.engine().store().clone(), params.run_id);
        let known = blocking(move || Ok::<_, MethodError>(store.run(run_id)?.is_some())).await?;
        if !known {
            return Err(Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")).into());
        }
        let connection = call.connection()?;
        let Some(device) = connection.device.clone().filter(|_| connection.is_console()) else {
            return Err(RpcError::invalid("only a paired browser downloads by ticket").into());
        };
        let (ticket, expires_at) = self.console().make_ticket(run_id, params.form, &device)?;
        Ok(Ticket { path: format!("/download/{ticket}"), name: file_name(run_id, params.form), expires_at })
    }
}
