//! The list of all built-in methods. Those of the WebSocket door come first, in the order of `hello-ok`; plugins,
//! upstream servers and the context store add theirs when the program starts.

use crate::{
    Methods, approvals, bridge, console, follow, health, local, nodes, offers, operate, plans, policy, proof,
    run_digest, run_pages, runs, sessions, subscriptions, tools, workspaces,
};

/// Every built-in method.
pub(crate) fn built_in() -> Methods {
    of_machine(of_gateway(Methods::default()))
}

/// The methods of the WebSocket door, in the order of `hello-ok`.
fn of_gateway(methods: Methods) -> Methods {
    methods
        .by_hub::<health::Health>()
        .by_hub::<health::Status>()
        .by_hub::<health::SystemPresence>()
        .by_hub::<tools::ToolsCatalog>()
        .by_hub::<tools::ToolsEffective>()
        .by_hub::<tools::ToolsInvoke>()
        .by_hub::<tools::ToolsCancel>()
        .by_hub::<offers::ToolsOffer>()
        .by_hub::<offers::ToolsResult>()
        .by_hub::<sessions::SessionsCreate>()
        .by_hub::<sessions::SessionsList>()
        .by_hub::<sessions::SessionsGet>()
        .by_hub::<sessions::SessionsPatch>()
        .by_hub::<sessions::SessionsDelete>()
        .by_hub::<approvals::PluginApprovalRequest>()
        .by_hub::<approvals::PluginApprovalWait>()
        .by_hub::<approvals::PluginApprovalList>()
        .by_hub::<approvals::PluginApprovalResolve>()
        .by_hub::<approvals::ExecApprovalRequest>()
        .by_hub::<approvals::ExecApprovalWait>()
        .by_hub::<approvals::ExecApprovalList>()
        .by_hub::<approvals::ExecApprovalGet>()
        .by_hub::<approvals::ExecApprovalResolve>()
        .by_hub::<approvals::ApprovalGet>()
        .by_hub::<approvals::ApprovalResolve>()
        .by_hub::<approvals::ApprovalHistory>()
        .by_hub::<operate::ConfigGet>()
        .by_service::<operate::LogsTail>()
        .by_hub::<nodes::NodeList>()
        .by_hub::<nodes::NodeDescribe>()
        .by_hub::<nodes::NodeInvokeResult>()
        .by_hub::<operate::DevicePairList>()
        .by_hub::<operate::DevicePairApprove>()
        .by_hub::<operate::DevicePairReject>()
        .by_hub::<operate::DevicePairRemove>()
        .by_hub::<operate::DeviceTokenRotate>()
        .by_hub::<operate::DeviceTokenRevoke>()
        .by_service::<plans::PlansCheck>()
        .by_service::<plans::PlansDryRun>()
        .by_service::<plans::PlansRun>()
        .by_service::<runs::PlansCancel>()
        .by_service::<plans::PlansReplay>()
        .by_service::<plans::PlansFork>()
        .by_service::<plans::PlansUndo>()
        .by_service::<runs::RunsList>()
        .by_service::<runs::RunsGet>()
        .by_service::<subscriptions::RunsEvents>()
        .by_service::<runs::RunsVerify>()
        .by_service::<runs::RunsResume>()
        .by_service::<runs::RunsCancel>()
        .by_hub::<subscriptions::RunsSubscribe>()
        .by_hub::<subscriptions::RunsUnsubscribe>()
        .by_hub::<bridge::BridgeOpen>()
        .by_hub::<bridge::BridgeClose>()
        .by_hub::<bridge::BridgeInbound>()
        .by_hub::<bridge::BridgeOutbound>()
        .by_hub::<bridge::BridgeStatus>()
        .by_hub::<bridge::BridgePermissionReply>()
}

/// The methods of the local socket and the console, and later additions.
fn of_machine(methods: Methods) -> Methods {
    methods
        .by_service::<approvals::people::ApprovalsList>()
        .by_service::<approvals::people::ApprovalsShow>()
        .by_service::<approvals::people::ApprovalsAnswer>()
        .by_service::<approvals::people::GrantsList>()
        .by_service::<approvals::people::GrantsRevoke>()
        .by_service::<proof::RunsHead>()
        .by_service::<proof::RunsProve>()
        .by_service::<proof::KeysList>()
        .by_service::<local::YardStatus>()
        .by_service::<local::ToolsList>()
        .by_service::<local::ToolsDescribe>()
        .by_service::<local::ToolsCall>()
        .by_service::<runs::RunsExport>()
        .by_service::<runs::RunsTranscript>()
        .by_service::<proof::RunsTiles>()
        .by_service::<proof::KeysChain>()
        .by_service::<proof::KeysRotate>()
        .by_service::<follow::RunsFollow>()
        .by_service::<local::DevicesList>()
        .by_service::<local::DevicesApprove>()
        .by_service::<local::DevicesReject>()
        .by_service::<local::DevicesRevoke>()
        .by_service::<console::ConsoleCode>()
        .by_hub::<console::ConsoleSubscribe>()
        .by_service::<console::DownloadsTicket>()
        .by_service::<run_pages::RunsCalls>()
        .by_service::<run_pages::RunsCall>()
        .by_service::<run_digest::RunsDigest>()
        .by_service::<run_pages::RunsRecord>()
        .by_hub::<subscriptions::LogsSubscribe>()
        .by_service::<policy::PolicyExplain>()
        .by_service::<workspaces::WorkspacesList>()
        .by_service::<workspaces::WorkspacesAdd>()
        .by_service::<workspaces::WorkspacesRemove>()
        .by_service::<workspaces::WorkspacesRotate>()
}

/// Every event that a connected client can be sent without asking.
pub const EVENTS: &[&str] = &[
    "connect.challenge",
    "tick",
    "health",
    "presence",
    "shutdown",
    "exec.approval.requested",
    "exec.approval.resolved",
    "plugin.approval.requested",
    "plugin.approval.resolved",
    "device.pair.requested",
    "device.pair.resolved",
    "node.invoke.request",
    "tools.call",
    "run.started",
    "run.confirmationRequested",
    "run.confirmed",
    "run.cancelled",
    "run.finished",
    "step.scheduled",
    "step.started",
    "step.progress",
    "step.finished",
    "step.failed",
    "bridge.connection",
    "bridge.dropped",
    "bridge.outbound",
    "bridge.permission.requested",
    "bridge.permission.resolved",
    "feed",
    "logs",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MethodDoors, Role};
    use toolyard_engine::authority::{Effect, Power};

    #[test]
    fn no_declaration_contradicts_itself() {
        for entry in built_in().iter() {
            let (name, terms, demand) = (entry.name, &entry.terms, &entry.terms.demand);
            assert!(demand.effect == Effect::None || demand.scope.is_some() || terms.role == Role::Node, "{name}");
            if demand.effect == Effect::Unrecorded {
                assert_eq!(terms.reach, MethodDoors::Local, "{name}: what leaves no record stays on this machine");
            }
            if demand.uses.contains(&Power::Grant) || demand.uses.contains(&Power::HostPaths) {
                assert!(demand.person && terms.reach == MethodDoors::Local, "{name}");
            }
            assert!(entry.about.ends_with('.'), "{name}: the reference needs a sentence");
        }
    }
}
