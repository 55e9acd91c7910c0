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
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? '';
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const home = mkdtempSync(join(tmpdir(), 'toolyard-conformance-'));
// What an operator would write down about a client that they registered, or that a document of theirs describes.
const oauth = { clientId: context.client_id, issuer: context.issuer };
if (context.client_secret) oauth.clientSecretEnv = 'CONFORMANCE_SECRET';
if (scenario === 'auth/basic-cimd') oauth.clientMetadataUrl = 'https://conformance-test.local/client-metadata.json';
if (scenario === 'auth/client-credentials-basic') oauth.grant = 'client_credentials';
const lines = Object.entries(oauth).filter(([, value]) => value).map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`);
writeFileSync(
  join(home, 'config.toml'),
  `[policy]\nallow = ["group:mcp"]\n[policy.approval]\nmode = "yolo"\n[mcp.servers.suite]\nurl = ${JSON.stringify(url)}\nprefix = ""\npin = "off"\nprotocol = ${JSON.stringify(protocol)}\n${lines.length ? '[mcp.servers.suite.oauth]\n' : ''}${lines.join('')}`,
);
const env = { ...process.env, CONFORMANCE_SECRET: context.client_secret ?? '' };

// A person who logs in: `toolyard mcp login` prints an address, and a browser goes where it leads. The suite's
// authorisation server agrees to everything.
const login = () =>
  new Promise((resolve) => {
    const command = spawn(toolyard, ['--home', home, 'mcp', 'login', 'suite', '--json', '--wait', '20'], { stdio: ['ignore', 'pipe', 'inherit'], env });
    createInterface({ input: command.stdout }).on('line', (line) => {
      console.log('login:', line.slice(0, 600));
      const { url } = JSON.parse(line);
      if (url) fetch(url).then((page) => console.log('browser:', page.status), (error) => console.log('browser:', String(error)));
    });
    command.on('exit', (code) => resolve(code === 0));
  });
const isAboutAuthorisation = scenario.startsWith('auth/');
if (isAboutAuthorisation && !(await login())) {
  // Right where the suite plays a server that must not be trusted, wrong elsewhere: the suite knows.
  rmSync(home, { recursive: true, force: true });
  process.exit(1);
}
const child = spawn(toolyard, ['--home', home, 'mcp'], { stdio: ['pipe', 'pipe', 'inherit'], env });
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

await request('initialize', {
  protocolVersion: '2025-11-25',
  capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} },
  clientInfo: { name: 'conformance-driver', version: '1.0.0' },
});
send({ method: 'notifications/initialized' });
// The suite runs its scenarios side by side, which a busy machine takes a while for.
const deadline = Date.now() + 60000;
let tools = [];
for (let round = 1; tools.length === 0 && Date.now() < deadline; round += 1) {
  const told = new Promise((resolve) => {
    changed = resolve;
    setTimeout(resolve, 500);
  });
  const listed = await request('tools/list');
  tools = listed.result.tools;
  if (tools.length === 0) await told;
  // A person who sees no tools looks why, and logs in again where that is it.
  if (tools.length === 0 && isAboutAuthorisation && round % 8 === 0 && !(await login())) break;
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
  // Another token may be needed: the person is told what to run, runs it, and it is tried again.
  for (let tries = 0; tries < 3 && /toolyard mcp login/.test(JSON.stringify(answer)); tries += 1) {
    console.log(call.name, JSON.stringify(answer.result ?? answer.error).slice(0, 400));
    if (!(await login())) break;
    answer = await request('tools/call', call);
  }
  console.log(call.name, JSON.stringify(answer.result ?? answer.error).slice(0, 400));
}
child.stdin.end();
await new Promise((resolve) => child.on('exit', resolve));
rmSync(home, { recursive: true, force: true });
