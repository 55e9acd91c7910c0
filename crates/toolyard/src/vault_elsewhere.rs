//! The vault's tools at a node that has no vault. A vault is a folder of one machine. The other nodes of its cluster list its
//! tools, so that all catalogs are equal, and answer calls with `UNAVAILABLE` and the node that has the folder.

use crate::shared_config::{self, NodeSettings};
use std::sync::Arc;
use toolyard_engine::{
    BoxFuture, CallContext, Failed, Intent, InverseCall, Output, Prepared, Provider, Reconciled, Store,
    store::{NodeRow, NodeState},
};
use toolyard_protocol::{ErrorCode, Failure, ToolCall, ToolResult};
use toolyard_vault::VaultProvider;

/// How the names of the tools begin that work on the notes. The provider's other tools need no vault.
const OF_NOTES: &str = "vault.";

/// Answers calls of the vault's tools at a node without a vault.
pub(crate) struct VaultElsewhere {
    pub(crate) store: Arc<dyn Store>,
    /// Runs the tools that need no vault, such as those of editors, on an empty folder.
    pub(crate) others: VaultProvider,
}

impl VaultElsewhere {
    async fn refuse<T>(&self) -> Result<T, Failed> {
        let store = self.store.clone();
        let known = tokio::task::spawn_blocking(move || -> Result<_, Failure> {
            Ok((shared_config::of_nodes(&*store)?, store.nodes()?))
        });
        match known.await {
            Ok(Ok((in_use, nodes))) => Err(refusal(&in_use, &nodes).into()),
            Ok(Err(failure)) => Err(failure.into()),
            Err(_) => Err(Failed::new(ErrorCode::InternalError, "reading the nodes failed unexpectedly")),
        }
    }
}

/// Why the tools are unavailable here: whether a node has a vault, and whether it serves.
fn refusal(in_use: &[(String, NodeSettings)], nodes: &[NodeRow]) -> Failure {
    let unavailable = |message: String| Failure::new(ErrorCode::Unavailable, message);
    let having = in_use.iter().filter(|(_, in_use)| in_use.vault.is_some()).map(|(node, _)| node);
    let (mut dead, mut live) = (Vec::new(), Vec::new());
    for node in having {
        match nodes.iter().find(|row| row.owner.node == *node && row.state == NodeState::Live) {
            Some(NodeRow { address: Some(address), .. }) => live.push(format!("{node} ({address})")),
            Some(_) => live.push(node.clone()),
            None => dead.push(node.clone()),
        }
    }
    if !live.is_empty() {
        return unavailable(format!("this node has no vault: call the tool at node {}", live.join(" or "))).suggest(
            "Send the calls of vault tools to that node, or name its folder with vault.path here if it is shared.",
        );
    }
    if !dead.is_empty() {
        return unavailable(format!("the vault is at node {}, which is not serving", dead.join(" or ")))
            .suggest("Start that node again. Nothing was changed.")
            .retryable(true);
    }
    unavailable("no node of this cluster has a vault".to_owned())
        .suggest("Name its folder with vault.path in config.toml of the node that has it, and restart that node.")
}

fn is_of_notes(call: &ToolCall) -> bool {
    call.tool.as_str().starts_with(OF_NOTES)
}

impl Provider for VaultElsewhere {
    fn prepare<'a>(&'a self, context: &'a CallContext, call: &'a ToolCall) -> BoxFuture<'a, Result<Prepared, Failed>> {
        match is_of_notes(call) {
            true => Box::pin(self.refuse()),
            false => self.others.prepare(context, call),
        }
    }

    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        prepared: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        match is_of_notes(call) {
            true => Box::pin(self.refuse()),
            false => self.others.execute(context, call, prepared),
        }
    }

    fn reconcile<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        intent: &'a Intent,
    ) -> BoxFuture<'a, Result<Reconciled, Failed>> {
        match is_of_notes(call) {
            true => Box::pin(self.refuse()),
            false => self.others.reconcile(context, call, intent),
        }
    }

    fn inverse(
        &self,
        call: &ToolCall,
        result: &ToolResult,
        intent: Option<&Intent>,
    ) -> Result<Vec<InverseCall>, Failure> {
        match is_of_notes(call) {
            true => {
                let message = "this node has no vault: undo the run at the node that has it";
                Err(Failure::new(ErrorCode::Unavailable, message))
            }
            false => self.others.inverse(call, result, intent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_engine::store::Owner;

    fn row(name: &str, state: NodeState) -> NodeRow {
        let address = Some(format!("http://{name}:1"));
        NodeRow { owner: Owner { node: name.into(), epoch: 1 }, address, state }
    }

    #[test]
    fn the_refusal_says_who_has_the_vault_and_what_to_do() {
        let has = |vault: Option<&str>| NodeSettings { vault: vault.map(str::to_owned), ..NodeSettings::default() };
        let in_use = [("a".to_owned(), has(Some("/notes"))), ("b".to_owned(), has(None))];
        for (nodes, message) in [
            (vec![row("a", NodeState::Live), row("b", NodeState::Live)], "call the tool at node a (http://a:1)"),
            (
                vec![row("a", NodeState::Dead), row("b", NodeState::Live)],
                "the vault is at node a, which is not serving",
            ),
            (vec![row("b", NodeState::Live)], "the vault is at node a, which is not serving"),
        ] {
            let failure = refusal(&in_use, &nodes);
            assert!(failure.message.contains(message) && failure.code == ErrorCode::Unavailable, "{failure}");
            assert!(failure.suggestion.is_some());
        }
        assert!(refusal(&in_use[1..], &[]).message.contains("no node of this cluster has a vault"));
    }
}
