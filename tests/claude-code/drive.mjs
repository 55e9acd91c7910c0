// Drives a real Claude Code against a real Toolyard, on loopback and without a login: the Messages API is messages.mjs.
// Usage: drive.mjs <toolyard> <claude>
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { serve } from './messages.mjs';

const [toolyard, claude] = process.argv.slice(2);
const TOKEN = 'claude-code-token-0123456789';
const PATIENCE_MS = 120_000;
const work = mkdtempSync(join(tmpdir(), 'toolyard-claude-'));
const place = (name) => {
  const path = join(work, name);
  mkdirSync(path, { recursive: true });
  return path;
};
const home = place('toolyard');
const vault = place('vault');
const project = place('project');
writeFileSync(join(vault, 'note.md'), '# A note\n\nThe kettle is blue.\n');
const api = await serve();
const env = {
  PATH: process.env.PATH,
  HOME: place('home'),
  TMPDIR: place('tmp'),
  CLAUDE_CONFIG_DIR: place('config'),
  ANTHROPIC_BASE_URL: api.url,
  ANTHROPIC_API_KEY: 'not-a-real-key',
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  DISABLE_AUTOUPDATER: '1',
  DISABLE_TELEMETRY: '1',
  DISABLE_ERROR_REPORTING: '1',
  DISABLE_COST_WARNINGS: '1',
  ENABLE_TOOL_SEARCH: 'false', // every tool is in its first request
  // Nothing leaves this machine: what is not loopback goes to a port where nobody listens.
  HTTP_PROXY: 'http://127.0.0.1:9',
  HTTPS_PROXY: 'http://127.0.0.1:9',
  NO_PROXY: '127.0.0.1,localhost',
};

const children = new Set();
const start = (program, args, options = {}) => {
  const child = spawn(program, args, { cwd: project, env, stdio: ['ignore', 'pipe', 'pipe'], ...options });
  children.add(child);
  child.on('exit', () => children.delete(child));
  return child;
};

// Runs to its end: everything it said.
const run = (program, args) =>
  new Promise((resolve, reject) => {
    const child = start(program, args);
    let out = '';
    let err = '';
    child.stdout.on('data', (part) => (out += part));
    child.stderr.on('data', (part) => (err += part));
    const late = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`${program} ${args[0]} took too long\n${out}\n${err}`));
    }, PATIENCE_MS);
    child.on('exit', (code) => {
      clearTimeout(late);
      resolve({ code, out, err });
    });
  });

let failed = 0;
const check = (what, holds, shown) => {
  console.log(`${holds ? 'ok     ' : 'FAILED '} ${what}`);
  if (holds) return;
  failed += 1;
  console.log(typeof shown === 'string' ? shown : JSON.stringify(shown, null, 1));
};

const parsed = (text) =>
  text.split('\n').flatMap((line) => {
    try {
      return [JSON.parse(line)];
    } catch {
      return [];
    }
  });

// What a turn in print mode said of itself: servers, and its result.
const told = ({ out, err, code }) => {
  const events = parsed(out);
  const init = events.find((event) => event.type === 'system' && event.subtype === 'init');
  return { code, servers: init?.mcp_servers ?? [], tools: init?.tools ?? [], result: events.find((event) => event.type === 'result')?.result ?? '', out, err };
};
const connected = (turn) => turn.servers.some((server) => server.name === 'toolyard' && server.status === 'connected');
const print = (wanted) => ['-p', `CALL ${JSON.stringify(wanted)}`, '--output-format', 'stream-json', '--verbose', '--model', 'claude-sonnet-4-5'];

const up = start(toolyard, ['--home', home, '--vault', vault, 'up', '--port', '0', '--token', TOKEN, '--json']);
const ready = await new Promise((resolve, reject) => {
  createInterface({ input: up.stdout }).once('line', (line) => resolve(JSON.parse(line)));
  up.on('exit', (code) => reject(new Error(`toolyard up ended with ${code}`)));
});
up.stderr.resume();
const target = ['--url', ready.url, '--token', TOKEN];
const ask = async (...args) => JSON.parse((await run(toolyard, ['--home', home, ...args, ...target, '--json'])).out);

// The question that is open in a session, once there is one.
const question = async (session) => {
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end; ) {
    const open = (await ask('bridge', 'status', '--session', session)).sessions?.[0]?.questions ?? [];
    if (open.length > 0) return open[0];
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error('no permission question came');
};

// A turn of a Claude Code that is joined to a session of Toolyard.
const joined = (session, wanted, ...more) =>
  run(toolyard, ['--home', home, 'claude', 'start', '--session', session, '--claude', claude, '--channel', 'none', '--allow-sender', 'u1', ...target, '--', ...print(wanted), ...more]);

try {
  const server = { type: 'stdio', command: toolyard, args: ['--home', home, '--vault', vault, 'mcp'] };
  await run(claude, ['mcp', 'add-json', 'toolyard', JSON.stringify(server)]);
  const list = await run(claude, ['mcp', 'list']);
  check('claude mcp list shows Toolyard as connected', /toolyard:.*Connected/.test(list.out), list);

  const config = join(work, 'mcp.json');
  writeFileSync(config, JSON.stringify({ mcpServers: { toolyard: server } }));
  const read = { name: 'mcp__toolyard__vault_readFile', input: { path: 'note.md' } };
  const direct = told(await run(claude, [...print(read), '--mcp-config', config, '--strict-mcp-config', '--allowedTools', read.name]));
  check('a turn over MCP reads a note', connected(direct) && direct.code === 0 && direct.result.includes('The kettle is blue.'), direct);

  const bridged = told(await joined('read', read, '--allowedTools', read.name));
  check('a turn over the bridge is connected', connected(bridged) && bridged.tools.includes('mcp__toolyard__reply'), bridged);
  check('it reads a note with our tool', bridged.code === 0 && bridged.result.includes('The kettle is blue.'), bridged);
  const runs = await run(toolyard, ['--home', home, 'runs', 'list', '--json']);
  check('both calls are on record, by their sessions', runs.out.includes('"session":"mcp:') && runs.out.includes('"session":"agent:main:read"'), runs);

  const reply = { name: 'mcp__toolyard__reply', input: { chat_id: '7', text: 'the kettle is blue' } };
  let seen;
  api.gate = new Promise((resolve) => (seen = resolve));
  const replying = joined('reply', reply, '--allowedTools', reply.name);
  let said = { messages: [] };
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end && !said.messages?.length; ) {
    said = await ask('bridge', 'outbound', '--session', 'reply');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  seen();
  const replied = told(await replying);
  check('what Claude says with reply reaches people', said.messages?.[0]?.text === 'the kettle is blue' && replied.code === 0, { said, replied });

  const touch = (file) => ({ name: 'Write', input: { file_path: join(project, file), content: 'written' } });
  const allowed = joined('allow', touch('allowed.txt'));
  const first = await question('allow');
  check('a permission question comes to us', first.tool === 'Write' && first.args.file_path.endsWith('allowed.txt'), first);
  const yes = await ask('bridge', 'reply', '--session', 'allow', first.request_id, 'allow');
  const permitted = told(await allowed);
  const written = join(project, 'allowed.txt');
  check('a yes by RPC lets it', yes.ok === true && existsSync(written) && readFileSync(written, 'utf8') === 'written', permitted);

  const denied = joined('deny', touch('denied.txt'));
  const second = await question('deny');
  const words = (text, user) => ask('bridge', 'inbound', '--session', 'deny', text, '--meta', JSON.stringify({ chat_id: '7', user_id: user }));
  const stranger = await words(`yes ${second.request_id}`, 'u2');
  check('a yes of a stranger does not count', stranger.ok === false && stranger.outcome === 'verdict', stranger);
  const no = await words(`no ${second.request_id}`, 'u1');
  const refused = told(await denied);
  check('a no in words forbids it', no.behavior === 'deny' && !existsSync(join(project, 'denied.txt')) && refused.result.includes('ERROR'), { no, refused });
} catch (problem) {
  check('nothing went wrong on the way', false, String(problem.stack ?? problem));
} finally {
  for (const child of children) child.kill('SIGTERM');
  api.close();
  await new Promise((resolve) => setTimeout(resolve, 500));
  rmSync(work, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
