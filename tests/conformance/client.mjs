// Toolyard as a client, for the conformance suite: makes the suite's server an upstream server of a new Toolyard, and
// then uses its tools through `toolyard mcp`, as any MCP client would.
// Usage: client.mjs <toolyard> <server url>; the scenario comes in MCP_CONFORMANCE_SCENARIO.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const [toolyard, url] = process.argv.slice(2);
const wanted = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? '';
const protocol = ['2026-07-28', '2025-11-25', '2025-06-18'].includes(wanted) ? wanted : 'auto';
const home = mkdtempSync(join(tmpdir(), 'toolyard-conformance-'));
writeFileSync(
  join(home, 'config.toml'),
  `[policy]\nallow = ["group:mcp"]\n[policy.approval]\nmode = "yolo"\n[mcp.servers.suite]\nurl = ${JSON.stringify(url)}\nprefix = ""\npin = "off"\nprotocol = ${JSON.stringify(protocol)}\n`,
);
const child = spawn(toolyard, ['--home', home, 'mcp'], { stdio: ['pipe', 'pipe', 'inherit'] });
const waiting = new Map();
let changed = () => {};
let next = 0;

const send = (message) => child.stdin.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n');
const request = (method, params = {}) =>
  new Promise((resolve) => {
    waiting.set(++next, resolve);
    send({ id: next, method, params });
  });

// A person who takes every default.
const fill = (schema) =>
  Object.fromEntries(Object.entries(schema?.properties ?? {}).filter(([, field]) => field.default !== undefined).map(([name, field]) => [name, field.default]));
const answers = {
  'elicitation/create': (params) => ({ action: 'accept', content: fill(params.requestedSchema) }),
  'sampling/createMessage': () => ({ role: 'assistant', content: { type: 'text', text: 'yes' }, model: 'none', stopReason: 'endTurn' }),
  'roots/list': () => ({ roots: [] }),
};

createInterface({ input: child.stdout }).on('line', (line) => {
  const message = JSON.parse(line);
  if (message.method === 'notifications/tools/list_changed') return changed();
  if (message.method && message.id !== undefined) return send({ id: message.id, result: answers[message.method]?.(message.params) ?? {} });
  waiting.get(message.id)?.(message);
});

// A value that fits a schema.
const example = (schema) => {
  if (schema?.default !== undefined) return schema.default;
  if (schema?.enum) return schema.enum[0];
  if (schema?.const !== undefined) return schema.const;
  switch (schema?.type) {
    case 'integer':
    case 'number':
      return schema.minimum ?? 5;
    case 'boolean':
      return true;
    case 'array':
      return [];
    case 'object':
      return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, field]) => [name, example(field)]));
    default:
      return 'text';
  }
};

const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
await request('initialize', {
  protocolVersion: '2025-11-25',
  capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} },
  clientInfo: { name: 'conformance-driver', version: '1.0.0' },
});
send({ method: 'notifications/initialized' });
// The suite runs its scenarios side by side, which a busy machine takes a while for. Those about authorisation are known
// to fail (expected-failures.yaml), and nobody waits for them.
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? '';
const deadline = Date.now() + (scenario.startsWith('auth/') ? 10000 : 60000);
let tools = [];
while (tools.length === 0 && Date.now() < deadline) {
  const told = new Promise((resolve) => {
    changed = resolve;
    setTimeout(resolve, 500);
  });
  const listed = await request('tools/list');
  tools = listed.result.tools;
  if (tools.length === 0) await told;
}
console.log('tools:', tools.map((tool) => tool.name).join(', '));
let calls = context.toolCalls ?? tools.map((tool) => ({ name: tool.name, arguments: example({ type: 'object', ...tool.inputSchema }) }));
const focal = tools.find((tool) => tool.name === 'json_schema_2020_12_tool');
for (const call of calls) {
  // One scenario wants to see a schema as its client saw it.
  if (focal && call.arguments?.schema) call.arguments.schema = focal.inputSchema;
  let answer = await request('tools/call', call);
  if (answer.result?.isError && Object.values(call.arguments ?? {}).includes(null)) {
    // Toolyard checks arguments before it sends them, and null is not a string: leave it out, as a model would.
    const args = Object.fromEntries(Object.entries(call.arguments).filter(([, value]) => value !== null));
    answer = await request('tools/call', { ...call, arguments: args });
  }
  console.log(call.name, JSON.stringify(answer.result ?? answer.error).slice(0, 400));
}
child.stdin.end();
await new Promise((resolve) => child.on('exit', resolve));
rmSync(home, { recursive: true, force: true });
