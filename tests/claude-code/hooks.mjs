// Toolyard's hooks in a real Claude Code: what is denied does not run, what ran is taken back byte for byte, and without a
// Toolyard nothing runs. Usage: hooks.mjs <toolyard> <claude>
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { serve } from './messages.mjs';

const [toolyard, claude] = process.argv.slice(2);
const PATIENCE_MS = 120_000;
const work = mkdtempSync(join(tmpdir(), 'toolyard-hooks-'));
const place = (name) => {
  const path = join(work, name);
  mkdirSync(path, { recursive: true });
  return path;
};
const home = place('toolyard');
const project = place('project');
const settings = join(place('config'), 'settings.json');
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
  // Nothing leaves this machine: what is not loopback goes to a port where nobody listens.
  HTTP_PROXY: 'http://127.0.0.1:9',
  HTTPS_PROXY: 'http://127.0.0.1:9',
  NO_PROXY: '127.0.0.1,localhost',
};

let failed = 0;
const check = (what, holds, shown) => {
  console.log(`${holds ? 'ok     ' : 'FAILED '} ${what}`);
  if (holds) return;
  failed += 1;
  console.log(typeof shown === 'string' ? shown : JSON.stringify(shown, null, 1));
};

// The server of the scripted model runs in this process, so turns must not block it.
const run = (program, args) =>
  new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd: project, env, stdio: ['ignore', 'pipe', 'pipe'] });
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
const yard = (...args) => run(toolyard, ['--home', home, ...args, '--json']);
const turn = (name, input) => run(claude, ['-p', `CALL ${JSON.stringify({ name, input })}`, '--model', 'claude-sonnet-4-5', '--allowedTools', 'Bash', 'Write', 'Edit', 'Read']);
const up = async (preset) => {
  writeFileSync(join(home, 'config.toml'), `[hooks]\npreset = "${preset}"\n`);
  const child = spawn(toolyard, ['--home', home, 'up', '--port', '0', '--json'], { env, stdio: ['ignore', 'pipe', 'ignore'] });
  await new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).once('line', resolve);
    child.on('exit', (code) => reject(new Error(`toolyard up ended with ${code}`)));
  });
  return child;
};
const killed = (child) => new Promise((resolve) => child.once('exit', resolve).kill('SIGKILL'));
const newest = async () => JSON.parse((await yard('runs', 'list', '--limit', '1')).out).runs[0];
const undo = async () => yard('plan', 'undo', (await newest()).runId, '--yes');

const before = '{\n  "cleanupPeriodDays": 9\n}\n';
writeFileSync(settings, before);
const note = join(project, 'note.txt');
const deep = join(project, 'deep/file.bin');
mkdirSync(join(project, 'deep'));
const bytes = Buffer.from([0, 13, 10, 255, 254, 65]);
const reset = () => {
  mkdirSync(join(project, 'deep'), { recursive: true });
  writeFileSync(note, 'one\r\n');
  writeFileSync(deep, bytes);
};
reset();
spawnSync('git', ['init', '-q'], { cwd: project });
let server;
try {
  const installed = await yard('hooks', 'install', 'claude');
  check('the hooks are installed', JSON.parse(installed.out).installed === true, installed);

  const alone = await turn('Bash', { command: 'touch ran-alone' });
  check('without a Toolyard nothing runs', !existsSync(join(project, 'ran-alone')) && alone.out.includes('ERROR'), alone);

  server = await up('careful');
  const refused = await turn('Bash', { command: 'rm -r deep' });
  check('careful: a denied command does not run', existsSync(deep) && refused.out.includes('Toolyard'), refused);
  const touched = await turn('Bash', { command: 'touch touched' });
  check('careful: a harmless command runs', existsSync(join(project, 'touched')), touched);
  await killed(server);

  server = await up('observe');
  const written = await turn('Write', { file_path: join(project, 'new.txt'), content: 'new' });
  check('observe: a file is written', existsSync(join(project, 'new.txt')), written);
  const run1 = await newest();
  check('it is on record, and closed', run1.title.startsWith('claude Write: ') && run1.status === 'finished', run1);
  const undone1 = await undo();
  check('undo removes the new file', undone1.code === 0 && !existsSync(join(project, 'new.txt')), undone1);
  const removed = await turn('Bash', { command: 'rm -r deep; echo two > note.txt' });
  check('observe: a command removes and changes', !existsSync(deep) && readFileSync(note, 'utf8') === 'two\n', removed);
  const undone2 = await undo();
  const same = existsSync(deep) && readFileSync(deep).equals(bytes) && readFileSync(note, 'utf8') === 'one\r\n';
  check('undo restores every byte', undone2.code === 0 && same, undone2);
  await killed(server);
  server = undefined;
  const dead = await turn('Bash', { command: 'touch ran-dead' });
  check('with Toolyard killed nothing runs', !existsSync(join(project, 'ran-dead')), dead);

  await yard('hooks', 'uninstall', 'claude');
  check('uninstalling leaves the settings byte for byte', readFileSync(settings, 'utf8') === before, readFileSync(settings, 'utf8'));
} catch (problem) {
  check('nothing went wrong on the way', false, String(problem.stack ?? problem));
} finally {
  server?.kill('SIGTERM');
  api.close();
  await new Promise((resolve) => setTimeout(resolve, 500));
  rmSync(work, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
