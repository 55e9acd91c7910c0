//! [`VaultPreview`]: the provider for dry runs. It runs the same tools on an overlay; its effects are predictions.

use crate::{
    change::{WritePlan, add_mtime},
    clients::EditorClients,
    confine::{FilteredView, Filters},
    overlay::Overlay,
    provider::{ask_client, blocking, look_up, predicted, stop_of},
    tools::{PlanContext, Run},
    view::{Purpose, View},
};
use std::sync::Arc;
use toolyard_engine::{
    BoxFuture, CallContext, Failed, Intent, IntentTarget, Output, Prepared, PreviewProvider, Provider,
};
use toolyard_protocol::{Effects, ErrorCode, Failure, ToolCall};

pub(crate) struct VaultPreview {
    overlay: Arc<Overlay>,
    clients: Arc<dyn EditorClients>,
    /// One write at a time: a plan must be applied to the overlay it was made on.
    writing: Arc<tokio::sync::Mutex<()>>,
    filters: Filters,
}

impl VaultPreview {
    pub(crate) fn new(overlay: Overlay, clients: Arc<dyn EditorClients>) -> Self {
        Self { overlay: Arc::new(overlay), clients, writing: Arc::default(), filters: Filters::default() }
    }

    async fn plan(
        &self,
        context: &CallContext,
        call: &ToolCall,
        apply: bool,
    ) -> Result<Option<(Output, Intent)>, Failed> {
        let (tool, args, dry_run) = look_up(call)?;
        let Run::Write { plan, .. } = &tool.run else { return Ok(None) };
        let (plan, overlay, blobs, stop) = (*plan, self.overlay.clone(), context.blobs.clone(), stop_of(context, call));
        let turn = self.writing.clone().lock_owned().await;
        let paths = self.filters.of(&call.policy.sandbox);
        let done = blocking(move || {
            let planned = plan(&PlanContext { view: &*overlay, stop: &stop, blobs: &*blobs, paths: &paths }, args)?;
            let intent = intent_of(&planned);
            let WritePlan { changes, mut data, stat, message } = planned;
            if dry_run {
                return Ok((predicted(data, &message), intent));
            }
            let mut effects = Effects::default();
            changes.iter().for_each(|change| change.report(&mut effects));
            if apply {
                overlay.apply(changes)?;
                if let Some(stat) = stat.and_then(|path| overlay.stat(&path, Purpose::Write).ok().flatten()) {
                    add_mtime(&mut data, stat.mtime_ms);
                }
            }
            drop(turn);
            Ok((Output { data, effects, user_message: Some(message), ..Output::default() }, intent))
        });
        Ok(Some(done.await?))
    }
}

/// How much would be written and deleted, for the policy's limits.
fn intent_of(planned: &WritePlan) -> Intent {
    use crate::{
        change::{Change, MoveRole},
        etag::etag,
    };
    let mut intent = Intent::default();
    let mut target = |path: &crate::VaultPath, before: Option<String>, after: Option<String>| {
        intent.targets.push(IntentTarget { path: path.to_string(), before, after, before_blob: None });
    };
    let (mut bytes_written, mut deletes) = (0, 0);
    for change in &planned.changes {
        match change {
            Change::MakeFolder(_) => {}
            Change::Put { path, before, content, .. } => {
                target(path, before.as_deref().map(etag), Some(etag(content)));
                bytes_written += content.len() as u64;
            }
            Change::Move { from, to, role, etag, count, .. } => {
                target(from, etag.clone(), None);
                match role {
                    MoveRole::Trash => deletes += count,
                    MoveRole::Rename | MoveRole::Restore => target(to, None, etag.clone()),
                }
            }
            Change::Remove { path, etag, count, .. } => {
                target(path, etag.clone(), None);
                deletes += count;
            }
        }
    }
    Intent { bytes_written, deletes, ..intent }
}

impl Provider for VaultPreview {
    fn prepare<'a>(&'a self, context: &'a CallContext, call: &'a ToolCall) -> BoxFuture<'a, Result<Prepared, Failed>> {
        Box::pin(async move {
            let intent = self.plan(context, call, false).await?.map(|(_, intent)| intent);
            Ok(Prepared { intent, ..Prepared::default() })
        })
    }

    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            if let Some((output, _)) = self.plan(context, call, true).await? {
                return Ok(output);
            }
            let (tool, args, _) = look_up(call)?;
            let (overlay, stop) = (self.overlay.clone(), stop_of(context, call));
            let paths = self.filters.of(&call.policy.sandbox);
            match &tool.run {
                Run::Read(read) => {
                    let read = *read;
                    Ok(blocking(move || read(&FilteredView::new(&*overlay, &paths), args, &stop)).await?)
                }
                Run::Client { check, writes: false } => {
                    let (check, own) = (*check, args.clone());
                    blocking(move || check(&*overlay, own)).await?;
                    ask_client(&*self.clients, context, call, tool, &args, false).await
                }
                _ => Err(Failure::new(
                    ErrorCode::PreconditionFailed,
                    format!("what {} does cannot be predicted", call.tool),
                )
                .suggest("Leave the step out of the dry run, or run the plan for real after review.")
                .into()),
            }
        })
    }
}

impl PreviewProvider for VaultPreview {
    fn diff(&self) -> String {
        self.overlay.diff()
    }
}
