// A store with 100,000 runs and a run of 30,000 calls, made by the program itself: the runs are calls over MCP, the long run
// is a plan with a loop. It is made once a version of the program and kept (~/.cache/toolyard/console-store), because a debug
// build takes about two minutes for it.
import { execFile, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

const run = promisify(execFile);
const TOOLYARD = process.env.TOOLYARD;
const CHECKOUT = process.env.CHECKOUT;
/** Changed when what is made changes. */
const EDITION = 1;
export const RUNS = Number(process.env.RUNS ?? 100_000);
export const CALLS = Number(process.env.CALLS ?? 30_000);
/** The loop is longer than the policy allows by default. */
export const LIMITS = `[policy.limits]\nmaxIterations = ${CALLS}\n`;
/** Requests under way at once. */
const AT_ONCE = 256;

/** One of the calls that the list consists of: mostly quick ones, some that read, some that fail. */
function call(number) {
  if (number % 50 === 0) return { name: 'vault_readFile', arguments: { path: `Missing/${number}.md` } };
  if (number % 9 === 0) return { name: 'vault_readFile', arguments: { path: 'Welcome.md' } };
  return { name: 'util_slugifyTitle', arguments: { title: `Run ${number} of a long list` } };
}

/** Lists the tools as an MCP client does, through the running Toolyard. */
export async function listTools(yard) {
  const client = spawn(TOOLYARD, ['--home', yard.home, 'mcp'], { stdio: ['pipe', 'pipe', 'ignore'] });
  const send = (message) => client.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  const listed = new Promise((resolve) => {
    createInterface({ input: client.stdout }).on('line', (line) => {
      const { id, result } = JSON.parse(line);
      if (id === 0) {
        send({ method: 'notifications/initialized' });
        send({ id: 1, method: 'tools/list' });
      } else if (id === 1) resolve(result.tools);
    });
  });
  send({ id: 0, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'lister', version: '1' } } });
  const tools = await listed;
  client.stdin.end();
  return tools;
}

/** Makes the calls over standard input and output, as an MCP client does. */
async function calls(home, vault, wanted) {
  const server = spawn(TOOLYARD, ['--home', home, '--vault', vault, 'mcp'], { stdio: ['pipe', 'pipe', 'ignore'] });
  const send = (message) => server.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  const ended = new Promise((resolve) => server.once('exit', resolve));
  let next = 1;
  let answered = 0;
  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.once('exit', (code) => reject(new Error(`toolyard mcp ended with ${code} after ${answered} calls`)));
    createInterface({ input: server.stdout }).on('line', (line) => {
      const { id } = JSON.parse(line);
      if (id === undefined) return;
      if (id === 0) send({ method: 'notifications/initialized' });
      else answered += 1;
      if (answered === wanted) return resolve();
      for (const upTo = Math.min(wanted, answered + AT_ONCE); next <= upTo; next += 1) send({ id: next, method: 'tools/call', params: call(next) });
    });
    send({ id: 0, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'night-gardener', version: '1' } } });
  });
  server.stdin.end();
  await ended;
}

async function make(place) {
  const folder = mkdtempSync(join(tmpdir(), 'toolyard-store-'));
  const [home, vault] = [join(folder, 'home'), join(folder, 'vault')];
  mkdirSync(home);
  cpSync(join(CHECKOUT, 'examples/vault'), vault, { recursive: true });
  writeFileSync(join(home, 'config.toml'), LIMITS);
  const begun = Date.now();
  const list = Array.from({ length: CALLS - 1 }, (_, at) => `- Line ${at + 1}`).join('\n');
  const plan = {
    version: '1.0', goal: 'A long run', riskLevel: 'read-only',
    steps: [
      { id: 'lines', tool: 'util.parseMarkdownBullets', args: { text: list } },
      { id: 'slugs', tool: 'util.slugifyTitle', args: { title: '{line.text}' }, foreach: { from: '$steps.lines.items', itemName: 'line', concurrency: 8 } },
    ],
  };
  writeFileSync(join(folder, 'plan.json'), JSON.stringify(plan));
  const { stdout } = await run(TOOLYARD, ['--home', home, '--vault', vault, '--json', 'plan', 'run', join(folder, 'plan.json')], { maxBuffer: 256 << 20 });
  await calls(home, vault, RUNS - 1);
  writeFileSync(join(home, 'long-run.json'), JSON.stringify({ runId: JSON.parse(stdout).runId }));
  console.error(`made a store with ${RUNS} runs in ${Math.round((Date.now() - begun) / 1000)} s`);
  mkdirSync(join(place, '..'), { recursive: true });
  rmSync(place, { recursive: true, force: true });
  cpSync(home, place, { recursive: true });
  rmSync(folder, { recursive: true, force: true });
}

let made = null;

/** The folder of such a home; Yard.make copies it. */
export function longStore() {
  made ??= (async () => {
    const { stdout } = await run(TOOLYARD, ['--version']);
    const place = join(process.env.TOOLYARD_CONSOLE_STORE_DIR ?? join(homedir(), '.cache/toolyard/console-store'), `${EDITION}-${RUNS}-${CALLS}-${stdout.trim().replaceAll(/[^\w.-]+/g, '-')}`);
    if (!existsSync(join(place, 'long-run.json'))) await make(place);
    return place;
  })();
  return made;
}

/** The id of the long run in a home made from it. */
export const longRunIn = (yard) => JSON.parse(readFileSync(join(yard.home, 'long-run.json'), 'utf8')).runId;
