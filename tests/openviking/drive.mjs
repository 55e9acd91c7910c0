// Plays OpenClaw for the OpenViking plugin: hands it an `api`, takes what it registers, and uses all of it. What the plugin
// sends goes to a running Toolyard; every answer's status is looked at.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const { TOOLYARD_URL: base, TOOLYARD_TOKEN: apiKey, PLUGIN, WORK } = process.env;
const requests = [];
const send = globalThis.fetch;
globalThis.fetch = async (url, options = {}) => {
  const answer = await send(url, options);
  requests.push({
    what: `${options.method ?? "GET"} ${String(url).replace(base, "").split("?")[0]}`,
    url: String(url), status: answer.status, body: typeof options.body === "string" ? options.body : "",
    text: await answer.clone().text(),
  });
  return answer;
};
process.on("unhandledRejection", (why) => { console.error("FAILED  a rejection nobody handled:", why); process.exit(1); });

const plugin = (await import(PLUGIN)).default;

/** A host with what the plugin registered in it. */
function host(config) {
  const made = { tools: {}, hooks: {}, commands: {}, engines: {}, routes: [], services: [], methods: {}, warnings: [] };
  const quiet = () => {};
  plugin.register({
    id: "openviking", runtime: { version: "2026.9.1" },
    logger: { debug: quiet, info: quiet, warn: (m) => made.warnings.push(m), error: (m) => made.warnings.push(m) },
    pluginConfig: { mode: "remote", baseUrl: base, apiKey, ...config },
    registerTool: (tool, options) => { made.tools[options?.name ?? tool.name] = tool; },
    registerContextEngine: (id, factory) => { made.engines[id] = factory; },
    registerCommand: (command) => { made.commands[command.name] = command; },
    registerHttpRoute: (route) => made.routes.push(route),
    registerGatewayMethod: (name, handler) => { made.methods[name] = handler; },
    registerService: (service) => made.services.push(service),
    registerCli: quiet,
    on: (name, handler) => { made.hooks[name] = handler; },
  });
  return made;
}

const session = { sessionKey: "agent:main:main", sessionId: "8c1f0b52-0000-4000-8000-000000000001", agentId: "main" };
let done = 0;
async function check(what, body) {
  const from = requests.length;
  try {
    await body();
    const bad = requests.slice(from).filter((r) => r.status >= 400 && !r.expected);
    assert.deepEqual(bad.map((r) => `${r.what} ${r.status} ${r.text.slice(0, 300)}`), [], "requests that were refused");
    done += 1;
    console.log(`ok      ${what}`);
  } catch (error) {
    console.error(`FAILED  ${what}: ${error.stack ?? error}`);
    for (const r of requests.slice(from)) console.error(`        ${r.what} ${r.status} ${r.body.slice(0, 300)} -> ${r.text.slice(0, 300)}`);
    process.exit(1);
  }
}
const expect = (status) => { for (const r of requests) if (r.status === status) r.expected = true; };

const claw = host({ enableAddResourceTool: true, traceRecall: true, contextManagementMode: "openviking" });
async function call(name, args, context = session) {
  const tool = typeof claw.tools[name] === "function" ? claw.tools[name](context) : claw.tools[name];
  const answer = await tool.execute(`call-${name}`, args);
  return { text: answer.content.map((part) => part.text).join("\n"), details: answer.details };
}
const say = (role, text) => ({ role, content: text, timestamp: Date.now() });

await check("it registers fifteen tools, five commands, four hooks, an engine", async () => {
  assert.equal(Object.keys(claw.tools).length, 15);
  assert.deepEqual(Object.keys(claw.commands).sort(), ["add-resource", "add-skill", "ov-query-config", "ov-recall-trace", "ov-search"]);
  assert.deepEqual(Object.keys(claw.hooks).sort(), ["after_compaction", "before_reset", "session_end", "session_start"]);
  assert.deepEqual(Object.keys(claw.engines), ["openviking"]);
});
await check("its service starts and finds a healthy server", async () => {
  await claw.services[0].start();
  assert.equal(requests.at(-1).what, "GET /health");
});

const docs = join(WORK, "docs");
mkdirSync(join(docs, "sub"), { recursive: true });
writeFileSync(join(docs, "limits.md"), "# Limits\n\nThe rate limit is forty requests a minute.\n");
writeFileSync(join(docs, "sub", "backups.md"), "# Backups\n\nBackups are kept for ninety days.\n");
mkdirSync(join(WORK, "skill"));
writeFileSync(join(WORK, "skill", "SKILL.md"), "---\nname: brew-tea\ndescription: How to brew tea\ntags: [kitchen]\n---\n\n# Tea\n\nBoil water.\n");

await check("add_resource uploads a folder, and a file that keeps its name", async () => {
  const folder = await call("add_resource", { source: docs, wait: true });
  assert.equal(folder.text, "Imported OpenViking resource. viking://resources/docs");
  const file = await call("add_resource", { source: join(docs, "limits.md"), to: "viking://resources/rules", reason: "rules of the house", wait: true });
  assert.equal(file.details.root_uri, "viking://resources/rules");
  const listed = await call("ov_list", { uri: "viking://resources/rules", simple: true });
  assert.match(listed.text, /viking:\/\/resources\/rules\/limits\.md/);
});
await check("add_skill takes a folder and a text", async () => {
  assert.match((await call("add_skill", { source: join(WORK, "skill"), wait: true })).text, /Imported OpenViking skill \(brew-tea\)/);
  const told = await call("add_skill", { data: "---\nname: grind\ndescription: How to grind coffee\n---\n\n# Grind\n\nFinely.\n" });
  assert.equal(told.details.uri, "viking://user/default/skills/grind");
});
await check("ov_search, ov_list, ov_read find and read them", async () => {
  const found = await call("ov_search", { query: "how many requests a minute are allowed" });
  assert.ok(found.details.resources.some((r) => r.uri.endsWith("/limits.md")), found.text);
  const listed = await call("ov_list", { uri: "viking://resources/docs", recursive: true });
  assert.match(listed.text, /\[file\] viking:\/\/resources\/docs\/sub\/backups\/backups\.md/);
  assert.match((await call("ov_read", { uri: "viking://resources/docs/limits/limits.md" })).text, /forty requests/);
});
await check("ov_multi_read reads what is there and says what is not", async () => {
  const read = await call("ov_multi_read", { uris: ["viking://resources/rules/limits.md", "viking://resources/none.md"] });
  expect(404);
  assert.deepEqual([read.details.count, read.details.success_count], [2, 1]);
});

await check("memory_store, memory_recall: what was stored is recalled, and nothing that only describes a folder", async () => {
  const stored = await call("memory_store", { text: "I prefer green tea over coffee." });
  assert.deepEqual([stored.details.action, stored.details.status, stored.details.memoriesCount], ["stored", "completed", 1]);
  const recalled = await call("memory_recall", { query: "which tea do I prefer?" });
  assert.equal(recalled.details.count, 1, recalled.text);
  assert.match(recalled.text, /I prefer green tea over coffee\./);
  assert.match(recalled.details.memories[0].uri, /^viking:\/\/user\/default\/memories\/preferences\/.*\.md$/);
});
await check("memory_forget deletes what is quoted, and it does not come back", async () => {
  const forgotten = await call("memory_forget", { query: "I prefer green tea over coffee." });
  assert.equal(forgotten.details.action, "deleted", forgotten.text);
  assert.equal((await call("memory_recall", { query: "which tea do I prefer?" })).details.count, 0);
  assert.equal((await call("memory_forget", { uri: "viking://resources/docs" })).details.action, "rejected");
});
await check("ov_recall_trace and the commands answer", async () => {
  assert.ok((await call("ov_recall_trace", { turn: "all" })).details.count >= 2);
  const run = async (name, args) => (await claw.commands[name].handler({ ...session, args, commandBody: args })).text;
  assert.match(await run("ov-search", '"rate limit" --limit 2'), /limits\.md/);
  assert.match(await run("add-resource", `${join(docs, "sub", "backups.md")} --to viking://resources/kept`), /viking:\/\/resources\/kept/);
  assert.match(await run("add-skill", join(WORK, "skill")), /brew-tea/);
  assert.match(await run("ov-recall-trace", "--turn all"), /## Trace 1/);
  assert.match(await run("ov-query-config", "get"), /recallLimit/);
});

const engine = claw.engines.openviking({ config: {} });
const log = Array.from({ length: 3000 }, (_, n) => `line ${n} of the build says code ${n % 7}`).join("\n");
const turn = [
  say("user", "My name is Ada and I live in Lisbon."),
  { role: "assistant", content: [{ type: "text", text: "Hello Ada, let me look." }, { type: "toolCall", id: "t1", name: "exec", arguments: { cmd: "make" } }], timestamp: Date.now() },
  { role: "toolResult", toolCallId: "t1", toolName: "exec", content: [{ type: "text", text: log }], isError: false, timestamp: Date.now() },
  { role: "assistant", content: [{ type: "text", text: "The build passes." }], timestamp: Date.now() },
];
await check("a turn is captured, with its tool call", async () => {
  await claw.hooks.session_start({}, session);
  await engine.afterTurn({ ...session, sessionFile: "/dev/null", messages: turn, prePromptMessageCount: 0, tokenBudget: 100_000 });
  const state = JSON.parse(requests.at(-1).text).result;
  assert.equal(state.message_count, 4);
});
await check("a large tool result is kept apart and read back by the reference that is shown", async () => {
  const listed = await call("openviking_tool_result_list", {});
  assert.equal(listed.details.count, 1);
  const ref = /^ref: (.*)$/m.exec(listed.text)[1];
  const read = await call("openviking_tool_result_read", { tool_output_ref: ref, offset: 0, limit: 20 });
  assert.equal(read.text, log.slice(0, 20), JSON.stringify(read));
  const found = await call("openviking_tool_result_search", { tool_output_ref: ref, query: "line 2999", limit: 5 });
  assert.equal(found.details.match_count, 1);
});
await check("context is assembled from the server, and the stub's reference can be read", async () => {
  const made = await engine.assemble({ ...session, messages: turn, prompt: "what did the build say?", tokenBudget: 100_000 });
  expect(404); // there is no profile yet
  const text = JSON.stringify(made.messages);
  const ref = /ref: (viking:[^\\"]*)/.exec(text)[1];
  assert.match((await call("openviking_tool_result_read", { tool_output_ref: ref, limit: 10 })).text, /^line 0/);
  assert.ok(text.includes("toolResult") && text.includes("toolCall"));
});
await check("compaction archives the session and gives its summary", async () => {
  const compacted = await engine.compact({ ...session, sessionFile: "/dev/null", tokenBudget: 100_000, force: true });
  assert.deepEqual([compacted.ok, compacted.compacted], [true, true], JSON.stringify(compacted));
  assert.match(compacted.result.summary, /Ada/);
});
await check("what is known comes before the next prompt: summary, profile and memories", async () => {
  const asked = say("user", "In which city does Ada live?");
  const made = await engine.assemble({ ...session, messages: [asked], prompt: asked.content, tokenBudget: 100_000 });
  const text = JSON.stringify(made);
  assert.match(text, /Session History Summary/);
  assert.match(text, /Lisbon/);
  const search = requests.filter((r) => r.what === "POST /api/v1/search/search").at(-1);
  assert.match(JSON.parse(search.text).result.rendered, /Lisbon/, search.text);
  const profile = requests.filter((r) => r.url.includes("profile.md")).at(-1);
  assert.equal(profile.status, 200);
});
await check("the archive is searched and expanded", async () => {
  assert.match((await call("ov_archive_search", { query: "lisbon" })).text, /archive_001/);
  const expanded = await call("ov_archive_expand", { archiveId: "archive_001" });
  assert.equal(expanded.details.messageCount, 4, expanded.text);
});
await check("a reset archives what is there and begins an empty context", async () => {
  await engine.afterTurn({ ...session, sessionFile: "/dev/null", messages: [say("user", "And now for the weather."), { ...say("assistant", ""), content: [{ type: "text", text: "Sunny." }] }], prePromptMessageCount: 0, tokenBudget: 100_000 });
  await claw.hooks.before_reset({}, session);
  const asked = say("user", "What were we talking about?");
  const made = await engine.assemble({ ...session, messages: [asked], prompt: asked.content, tokenBudget: 100_000 });
  assert.doesNotMatch(JSON.stringify(made.messages), /Session History Summary/);
  assert.match((await call("ov_archive_expand", { archiveId: "archive_002" })).text, /weather/);
});
await check("a full session is committed after a turn, by messages and by a budget of turns", async () => {
  for (const [at, mode] of ["message_count", "turn_budget"].entries()) {
    const other = host({ contextManagementMode: "openviking", commitTokenThresholdRatio: 0, commitKeepRecentCount: 2, ...(mode === "turn_budget" ? { commitRetentionMode: mode } : {}) });
    const own = { ...session, sessionKey: `agent:main:full${at}`, sessionId: `8c1f0b52-0000-4000-8000-00000000010${at}` };
    const many = Array.from({ length: 10 }, (_, n) => [say("user", `Question ${n} about the harvest.`), { ...say("assistant", ""), content: [{ type: "text", text: `Answer ${n}.` }] }]).flat();
    await other.engines.openviking({ config: {} }).afterTurn({ ...own, sessionFile: "/dev/null", messages: many, prePromptMessageCount: 0, tokenBudget: 1000 });
    const commit = requests.at(-1);
    assert.match(commit.what, /\/commit$/);
    assert.equal(JSON.parse(commit.text).result.archived, true, commit.text);
    assert.deepEqual(other.warnings, []);
    const state = await (await send(`${base}/api/v1/sessions/${own.sessionId}`, { headers: { "X-API-Key": apiKey } })).json();
    assert.equal(state.result.message_count, mode === "turn_budget" ? 6 : 2, JSON.stringify(state.result));
  }
});
await check("a session that is bypassed leaves nothing behind", async () => {
  const before = requests.length;
  const other = host({ bypassSessionPatterns: ["agent:*:cron:**"] });
  const own = { sessionKey: "agent:main:cron:nightly", sessionId: "8c1f0b52-0000-4000-8000-000000000200", agentId: "main" };
  await other.engines.openviking({ config: {} }).afterTurn({ ...own, sessionFile: "/dev/null", messages: turn, prePromptMessageCount: 0, tokenBudget: 1000 });
  assert.equal(requests.length, before);
});
await check("nothing was warned of", async () => { assert.deepEqual(claw.warnings, []); });
console.log(`the OpenViking plugin: ${done} checks passed, ${requests.length} requests`);
process.exit(0);
