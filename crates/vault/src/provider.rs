//! [`VaultProvider`]: the vault tools as an engine provider. All file work runs on blocking threads.

use crate::{
    clients::EditorClients,
    commit::{self, StagedFiles},
    confine::FilteredView,
    error::VaultResult,
    locks::{LockGuard, LockScope},
    overlay::Overlay,
    preview::VaultPreview,
    reconcile::reconcile,
    tools::{self, PlanContext, Run, Tool},
    undo,
    vault::Vault,
    view::StopCondition,
};
use serde_json::{Map, Value};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use toolyard_engine::{
    BoxFuture, CallContext, Failed, Intent, InverseCall, Output, Prepared, PreviewProvider, Provider, Reconciled,
};
use toolyard_protocol::{DEFAULT_TIMEOUT_MS, ErrorCode, Failure, ToolCall, ToolResult};

/// Runs every tool of [`crate::definitions`].
pub struct VaultProvider {
    vault: Arc<Vault>,
    clients: Arc<dyn EditorClients>,
}

/// What `prepare` leaves for `execute`. The staged files go before the locks do.
struct PreparedWrite {
    staged: StagedFiles,
    locks: LockGuard,
}

impl VaultProvider {
    /// On this vault, with these editors.
    pub fn new(vault: Arc<Vault>, clients: Arc<dyn EditorClients>) -> Self {
        Self { vault, clients }
    }

    async fn stage(&self, context: &CallContext, call: &ToolCall) -> Result<Prepared, Failed> {
        let (tool, args, dry_run) = look_up(call)?;
        let Run::Write { scope, plan } = &tool.run else { return Ok(Prepared::default()) };
        if dry_run {
            return Ok(Prepared::default());
        }
        let locks = self.vault.locks.acquire(&scope(args.clone())?, &context.cancel).await?;
        let (vault, blobs, stop) = (self.vault.clone(), context.blobs.clone(), stop_of(context, call));
        let tag = format!("{}-{}", call.call_id, call.attempt);
        let (plan, paths) = (*plan, self.vault.filters.of(&call.policy.sandbox));
        let (staged, intent, blobs) = blocking(move || {
            let planned = plan(&PlanContext { view: &*vault, stop: &stop, blobs: &*blobs, paths: &paths }, args)?;
            stop.check()?;
            let (staged, intent, blobs) = commit::stage(&vault, planned, &tag)?;
            Ok((PreparedWrite { staged, locks }, intent, blobs))
        })
        .await?;
        Ok(Prepared { intent: Some(intent), blobs, state: Some(Box::new(staged)) })
    }

    async fn run(&self, context: &CallContext, call: &ToolCall, prepared: Prepared) -> Result<Output, Failed> {
        let (tool, args, dry_run) = look_up(call)?;
        let (vault, stop) = (self.vault.clone(), stop_of(context, call));
        let paths = vault.filters.of(&call.policy.sandbox);
        match &tool.run {
            Run::Read(read) => {
                let read = *read;
                Ok(blocking(move || read(&FilteredView::new(&*vault, &paths), args, &stop)).await?)
            }
            Run::Write { plan, .. } if dry_run => {
                let (plan, blobs) = (*plan, context.blobs.clone());
                Ok(blocking(move || {
                    let planned =
                        plan(&PlanContext { view: &*vault, stop: &stop, blobs: &*blobs, paths: &paths }, args)?;
                    Ok(predicted(planned.data, &planned.message))
                })
                .await?)
            }
            Run::Write { .. } => {
                // An engine that skipped `prepare` still gets the whole protocol, only without a durable intent.
                let state = match prepared.state {
                    Some(state) => Some(state),
                    None => self.stage(context, call).await?.state,
                };
                let Some(write) = state.and_then(|state| state.downcast::<PreparedWrite>().ok()) else {
                    return Err(Failed::new(ErrorCode::InternalError, "this call was prepared by another provider"));
                };
                stop.check()?;
                let done = tokio::task::spawn_blocking(move || {
                    let PreparedWrite { staged, locks } = *write;
                    let done = staged.run();
                    drop(locks);
                    done
                });
                done.await.map_err(panicked)?
            }
            Run::Client { check, writes } => {
                let (check, own) = (*check, args.clone());
                blocking(move || check(&*vault, own)).await?;
                ask_client(&*self.clients, context, call, tool, &args, *writes).await
            }
        }
    }
}

/// The tool, its own arguments, and whether nothing is to be changed.
pub(crate) fn look_up(call: &ToolCall) -> VaultResult<(&'static Tool, Map<String, Value>, bool)> {
    let tool = tools::find(call.tool.as_str())?;
    let (args, dry_run) = tools::split_meta(&call.args, tool.can_dry_run())?;
    Ok((tool, args, dry_run))
}

pub(crate) fn stop_of(context: &CallContext, call: &ToolCall) -> StopCondition {
    let deadline = call.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
    StopCondition { cancel: context.cancel.clone(), deadline }
}

/// What a dry run of a single call answers.
pub(crate) fn predicted(data: Map<String, Value>, message: &str) -> Output {
    Output {
        data,
        user_message: Some(format!("Dry run, nothing was changed. Otherwise: {message}")),
        ..Output::default()
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> VaultResult<T> + Send + 'static,
) -> VaultResult<T> {
    tokio::task::spawn_blocking(work).await.map_err(panicked)?
}

fn panicked(error: tokio::task::JoinError) -> Failure {
    Failure::new(ErrorCode::InternalError, "the vault tool stopped unexpectedly").caused_by(&error)
}

pub(crate) async fn ask_client(
    clients: &dyn EditorClients,
    context: &CallContext,
    call: &ToolCall,
    tool: &Tool,
    args: &Map<String, Value>,
    writes: bool,
) -> Result<Output, Failed> {
    let timeout = Duration::from_millis(call.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS));
    let data = clients.request(&context.caller, tool.name, args, timeout).await?;
    let mut output = Output::data(data);
    // A response in which the editor says that it did nothing counts as a failure, even if the response has the form of
    // a success.
    let done_field = match tool.name {
        "commands.run" => Some("executed"),
        "workspace.openFile" => Some("opened"),
        _ => None,
    };
    if let Some(field) = done_field.filter(|field| output.data.get(*field).and_then(Value::as_bool) == Some(false)) {
        let why = output.data.get("errorMessage").and_then(Value::as_str).unwrap_or("the editor did not do it");
        return Err(Failure::new(ErrorCode::PreconditionFailed, format!("{}: {why}", tool.name))
            .detail(field, false)
            .into());
    }
    if writes {
        output.effects.observe(match tool.name {
            "commands.run" => "run-command",
            "workspace.openFile" => "open-file",
            _ => "modify-editor",
        });
    }
    Ok(output)
}

impl Provider for VaultProvider {
    fn prepare<'a>(&'a self, context: &'a CallContext, call: &'a ToolCall) -> BoxFuture<'a, Result<Prepared, Failed>> {
        Box::pin(self.stage(context, call))
    }

    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        prepared: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(self.run(context, call, prepared))
    }

    fn reconcile<'a>(
        &'a self,
        context: &'a CallContext,
        _call: &'a ToolCall,
        intent: &'a Intent,
    ) -> BoxFuture<'a, Result<Reconciled, Failed>> {
        Box::pin(async move {
            let locks = self.vault.locks.acquire(&LockScope::Vault, &context.cancel).await?;
            let (vault, intent) = (self.vault.clone(), intent.clone());
            let done = tokio::task::spawn_blocking(move || {
                let done = reconcile(&vault, &intent);
                drop(locks);
                done
            });
            done.await.map_err(panicked)?
        })
    }

    fn preview(&self) -> Option<Arc<dyn PreviewProvider>> {
        Some(Arc::new(VaultPreview::new(Overlay::new(self.vault.clone()), self.clients.clone())))
    }

    fn inverse(
        &self,
        call: &ToolCall,
        result: &ToolResult,
        intent: Option<&Intent>,
    ) -> Result<Vec<InverseCall>, Failure> {
        undo::inverse(call, result, intent)
    }
}
