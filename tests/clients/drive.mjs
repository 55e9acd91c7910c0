// Drives a running Toolyard with OpenClaw's own client, and checks what it sends with OpenClaw's own schemas.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { GatewayClient } from "@openclaw/gateway-client";
import * as protocol from "@openclaw/gateway-protocol";
import { Compile } from "typebox/schema";

const url = process.env.TOOLYARD_URL;
const token = process.env.TOOLYARD_TOKEN;
const { definitions } = JSON.parse(readFileSync("node_modules/@openclaw/gateway-protocol/protocol.schema.json", "utf8"));

function fits(name, value) {
  const schema = Compile({ ...definitions[name], definitions });
  const [ok, errors] = schema.Errors(value);
  assert.ok(ok, `${name}: ${JSON.stringify(errors?.slice(0, 3))} in ${JSON.stringify(value).slice(0, 400)}`);
}

async function connect(options) {
  const events = [];
  const connected = Promise.withResolvers();
  const client = new GatewayClient({
    url,
    token,
    minProtocol: 4,
    maxProtocol: 4,
    onHelloOk: (hello) => connected.resolve(hello),
    onConnectError: (error) => connected.reject(error),
    onEvent: (event) => events.push(event),
    ...options,
  });
  client.start();
  const hello = await connected.promise;
  return { client, hello, events };
}

async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it should have been refused");
}

async function eventually(find) {
  for (let i = 0; i < 100; i += 1) {
    const found = find();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("it did not happen");
}

async function eventuallyList(client, method) {
  for (let i = 0; i < 100; i += 1) {
    const list = await client.request(method, {});
    if (list.length > 0) return list;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${method} stayed empty`);
}

const cases = {
  async "connect and hello-ok"() {
    const { client, hello } = await connect({ scopes: ["operator.read"] });
    assert.equal(hello.protocol, 4);
    // Their own server sends auth.method and cpuBreakdown too, which their published schema does not know;
    // runtimeVersion is in the health of seed 003.
    const { method, ...auth } = hello.auth;
    assert.equal(method, "token");
    const { runtimeVersion, eventLoop: { cpuBreakdown, ...eventLoop }, ...health } = hello.snapshot.health;
    assert.ok(runtimeVersion && cpuBreakdown);
    fits("HelloOk", { ...hello, auth, snapshot: { ...hello.snapshot, health: { ...health, eventLoop } } });
    client.stop();
  },
  async "a wrong token"() {
    const error = await refusal(connect({ token: "wrong" }));
    assert.match(String(error.message), /token mismatch/);
  },
  async "health, status, presence"() {
    const { client } = await connect({ scopes: ["operator.read"] });
    const health = await client.request("health", {});
    assert.equal(health.ok, true);
    const probed = await client.request("health", { probe: true });
    assert.ok(probed.ts >= health.ts);
    assert.equal((await client.request("status", {})).heartbeat.defaultAgentId, "main");
    assert.deepEqual((await client.request("node.list", {})).nodes, []);
    for (const entry of await client.request("system-presence", {})) fits("PresenceEntry", entry);
    fits("LogsTailResult", await client.request("logs.tail", {}));
    client.stop();
  },
  async "tools.catalog and tools.effective"() {
    const { client } = await connect({ scopes: ["operator.read", "operator.write"] });
    fits("ToolsCatalogResult", await client.request("tools.catalog", {}));
    fits("SessionsCreateResult", await client.request("sessions.create", { key: "agent:main:main" }));
    const listed = await client.request("sessions.list", { sortBy: "lastInteractionAt", includeGlobal: true });
    assert.equal(listed.sessions[0].key, "agent:main:main");
    const effective = await client.request("tools.effective", { sessionKey: "main" });
    fits("ToolsEffectiveResult", effective);
    assert.ok(effective.groups[0].tools.some((tool) => tool.id === "vault.readFile"));
    client.stop();
  },
  async "tools.invoke: good, unknown, bad arguments"() {
    const { client } = await connect({ scopes: ["operator.read", "operator.write"] });
    const good = await client.request("tools.invoke", { name: "vault.readFile", args: { path: "Hello.md" } });
    fits("ToolsInvokeResult", good);
    assert.equal(good.output.details.content, "# Hello\n");
    const unknown = await client.request("tools.invoke", { name: "not_a_tool" });
    fits("ToolsInvokeResult", unknown);
    assert.equal(unknown.error.code, "not_found");
    const bad = await client.request("tools.invoke", { name: "vault.readFile", args: { limit: 2 } });
    fits("ToolsInvokeResult", bad);
    assert.equal(bad.error.code, "validation_error");
    client.stop();
  },
  async "a node answers the tools that need an editor"() {
    const { client } = await connect({ scopes: ["operator.read", "operator.write"] });
    const ask = () => client.request("tools.invoke", { name: "editor.getSelection" });
    assert.equal((await ask()).error.code, "precondition_failed");
    const range = { from: { line: 2, ch: 0 }, to: { line: 2, ch: 5 } };
    const selection = { text: "hello", isEmpty: false, range, filePath: "Hello.md", mode: "source" };
    const node = await connect({
      role: "node",
      mode: "node",
      scopes: [],
      commands: ["editor.getSelection"],
      onEvent: ({ event, payload }) => {
        if (event !== "node.invoke.request") return;
        fits("NodeInvokeRequestEvent", payload);
        assert.equal(payload.command, "editor.getSelection");
        const result = { id: payload.id, nodeId: payload.nodeId, ok: true, payloadJSON: JSON.stringify(selection) };
        fits("NodeInvokeResultParams", result);
        void node.client.request("node.invoke.result", result);
      },
    });
    const answered = await ask();
    fits("ToolsInvokeResult", answered);
    assert.deepEqual(answered.output.details, selection);
    selection.mode = "upside down";
    assert.equal((await ask()).ok, false, "what does not fit the tool's schema is no answer");
    node.client.stop();
    client.stop();
  },
  async "missing scopes and unknown methods"() {
    const { client } = await connect({ scopes: ["operator.read"] });
    assert.match((await refusal(client.request("tools.invoke", { name: "x" }))).message, /missing scope: operator.write/);
    assert.match((await refusal(client.request("does.not.exist", {}))).message, /unknown method: does.not.exist/);
    client.stop();
  },
  async "approvals: reported, refused without a route, allowed by another client"() {
    const invoker = await connect({ scopes: ["operator.read", "operator.write"] });
    const call = { name: "vault.createFile", args: { path: "New.md", content: "x" } };
    const reported = await invoker.client.request("tools.invoke", call);
    assert.equal(reported.error.code, "requires_approval");
    const alone = await invoker.client.request("tools.invoke", { ...call, confirm: true });
    assert.equal(alone.requiresApproval, true);
    const reviewer = await connect({ scopes: ["operator.admin", "operator.approvals"], caps: ["approvals"] });
    const waiting = invoker.client.request("tools.invoke", { ...call, confirm: true });
    const asked = await eventually(() => reviewer.events.find((e) => e.event === "plugin.approval.requested"));
    const { id } = asked.payload;
    const got = await reviewer.client.request("approval.get", { id });
    assert.ok(protocol.validateApprovalGetResult(got), JSON.stringify(protocol.validateApprovalGetResult.errors));
    const done = await reviewer.client.request("approval.resolve", { id, kind: "plugin", decision: "allow-once" });
    assert.ok(protocol.validateApprovalResolveResult(done), JSON.stringify(done));
    const made = await waiting;
    fits("ToolsInvokeResult", made);
    assert.equal(made.ok, true);
    const once = { title: "Sure?", description: "Once only", allowedDecisions: ["allow-once"] };
    const answered = invoker.client.request("plugin.approval.request", once).catch((error) => error);
    assert.match(String((await answered).message), /missing scope: operator.approvals/);
    const narrow = reviewer.client.request("exec.approval.request", { command: "ls", unavailableDecisions: ["allow-always"] });
    const [{ id: question, request }] = await eventuallyList(reviewer.client, "exec.approval.list");
    assert.deepEqual(request.allowedDecisions, ["allow-once", "deny"]);
    await reviewer.client.request("exec.approval.resolve", { id: question, decision: "deny" });
    assert.equal((await narrow).decision, "deny");
    const history = await reviewer.client.request("approval.history", {});
    assert.ok(protocol.validateApprovalHistoryResult(history), JSON.stringify(history).slice(0, 500));
    invoker.client.stop();
    reviewer.client.stop();
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log(`ok    ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${name}\n      ${error?.stack ?? error}`);
  }
}
process.exit(failed ? 1 : 0);
