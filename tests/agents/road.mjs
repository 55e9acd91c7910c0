// What every coding agent with Toolyard's hooks must show: a denied call does not run, a call that is asked about waits and
// runs once, undo restores every byte, with Toolyard killed nothing runs, and `connect` and `connect --undo` leave the
// agent's files byte for byte. A suite of one agent says how it is started and what its tools are called.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';

const PATIENCE_MS = 120_000;
const LOOK_EVERY_MS = 100;

// A folder for everything, a project in it, and functions to run programs there.
export const rig = (toolyard, name) => {
  const work = mkdtempSync(join(tmpdir(), `toolyard-${name}-`));
  const place = (folder) => {
    const path = join(work, folder);
    mkdirSync(path, { recursive: true });
    return path;
  };
  const home = place('toolyard');
  const project = place('project');
  const env = {
    PATH: process.env.PATH,
    HOME: place('home'),
    TMPDIR: place('tmp'),
    // Nothing leaves this machine: what is not loopback goes to a port where nobody listens.
    HTTP_PROXY: 'http://127.0.0.1:9',
    HTTPS_PROXY: 'http://127.0.0.1:9',
    NO_PROXY: '127.0.0.1,localhost',
  };
  const state = { failed: 0 };
  const check = (what, holds, shown) => {
    console.log(`${holds ? 'ok     ' : 'FAILED '} ${what}`);
    if (holds) return;
    state.failed += 1;
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
      child.on('error', reject);
      child.on('exit', (code) => {
        clearTimeout(late);
        resolve({ code, out, err });
      });
    });
  const yard = (...args) => run(toolyard, ['--home', home, ...args, '--json']);
  const json = async (...args) => {
    const ran = await yard(...args);
    try {
      return JSON.parse(ran.out);
    } catch {
      throw new Error(`toolyard ${args.join(' ')} printed no JSON: ${JSON.stringify(ran)}`);
    }
  };
  const started = (args) =>
    new Promise((resolve, reject) => {
      const child = spawn(toolyard, ['--home', home, ...args, '--json'], { env, stdio: ['ignore', 'pipe', 'ignore'] });
      createInterface({ input: child.stdout }).once('line', () => resolve(child));
      child.on('error', reject);
      child.on('exit', (code) => reject(new Error(`toolyard ${args[0]} ended with ${code}`)));
    });
  const up = (preset) => {
    writeFileSync(join(home, 'config.toml'), `[hooks]\npreset = "${preset}"\n`);
    return started(['up', '--port', '0']);
  };
  const newest = async () => (await json('runs', 'list', '--limit', '1')).runs[0];
  const undo = async () => yard('plan', 'undo', (await newest()).runId, '--yes');
  return { work, place, home, project, env, state, check, run, yard, json, up, newest, undo, toolyard };
};

const killed = (child) => new Promise((resolve) => child.once('exit', resolve).kill('SIGKILL'));

// The first question that is open, once there is one.
const question = async (rig) => {
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end; ) {
    const { approvals } = await rig.json('approvals', 'list');
    if (approvals.length > 0) return approvals[0];
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
  throw new Error('no question came');
};

// Runs a turn that Toolyard asks about, answers it with a command, and gives what the turn said.
export const asked = async (rig, turn, word) => {
  // While somebody watches, agents are told that somebody can answer.
  const watcher = spawn(rig.toolyard, ['--home', rig.home, 'approvals', 'watch', '--json'], { env: rig.env, stdio: 'ignore' });
  try {
    const turning = turn();
    const { id } = await question(rig);
    const answered = await rig.yard('approvals', word, id);
    return { answered, ...(await turning) };
  } finally {
    watcher.kill('SIGTERM');
  }
};

const files = (paths) => Object.fromEntries(paths.map((path) => [path, existsSync(path) ? readFileSync(path, 'utf8') : null]));
const same = (before, after) => JSON.stringify(before) === JSON.stringify(after);

// `connect` and `connect --undo`, twice each, with the files of the agent as they are found.
const connects = async (rig, agent) => {
  const paths = [...agent.files, ...(agent.connected ?? []), join(rig.home, 'config.toml')];
  const before = files(paths);
  for (const round of ['first', 'second']) {
    const connected = await rig.yard('connect', agent.client, '--approvals', 'toolyard', '--no-wait');
    const held = files(paths);
    const again = await rig.yard('connect', agent.client, '--approvals', 'toolyard', '--no-wait');
    {
      const firstChanged = connected.code === 0 && JSON.parse(connected.out).changed === true && !same(before, held);
      const secondChanged = again.code !== 0 || JSON.parse(again.out).changed !== false || !same(held, files(paths));
      rig.check(`${round} connect: it is entered once, and a repetition changes nothing`, firstChanged && !secondChanged, { connected, again });
    }
    if (agent.lists) {
      const listed = await agent.lists();
      rig.check(`${round} connect: ${agent.client} itself lists Toolyard's server`, listed.holds, listed);
    }
    const undone = await rig.yard('connect', agent.client, '--undo');
    const twice = await rig.yard('connect', agent.client, '--undo');
    rig.check(`${round} undo: the files are as they were, byte for byte`, undone.code === 0 && twice.code === 0 && same(before, files(paths)), { undone, twice, before, after: files(paths) });
  }
};

// The whole list. `agent` has: client, files (its settings), connected (more files that `connect` changes), install (more
// options of `hooks install`), lists (whether the agent knows our server), and turns `write(path, content)`,
// `edit(path, old, now)` and `shell(command)`.
export const prove = async (rig, agent) => {
  const { project, check, up, newest, undo } = rig;
  const note = join(project, 'note.txt');
  const deep = join(project, 'deep/file.bin');
  const bytes = Buffer.from([0, 13, 10, 255, 254, 65]);
  const text = 'one\nand two\n';
  mkdirSync(dirname(deep));
  writeFileSync(note, text);
  writeFileSync(deep, bytes);
  spawnSync('git', ['init', '-q'], { cwd: project });
  const intact = () => existsSync(deep) && readFileSync(deep).equals(bytes) && readFileSync(note, 'utf8') === text;
  let server;
  try {
    await connects(rig, agent);
    const before = files(agent.files);
    const installed = await rig.yard('hooks', 'install', agent.client, ...agent.install);
    check('the hooks are installed', installed.code === 0 && JSON.parse(installed.out).installed === true, installed);

    const alone = await agent.shell('touch ran-alone');
    check('without a Toolyard nothing runs', !existsSync(join(project, 'ran-alone')), alone);

    server = await up('careful');
    const unanswered = await agent.shell('rm -r deep');
    check('careful: without anybody to ask, rm -r does not run', intact() && /Toolyard/.test(unanswered.out), unanswered);
    const touched = await agent.shell('touch touched');
    check('careful: a harmless command runs', existsSync(join(project, 'touched')), touched);
    const denied = await asked(rig, () => agent.shell('rm -r deep'), 'deny');
    check('careful: a denied call does not run', intact() && denied.answered.code === 0, denied);
    const allowed = await asked(rig, () => agent.shell('rm -r deep; echo ran >> times'), 'allow');
    const times = existsSync(join(project, 'times')) ? readFileSync(join(project, 'times'), 'utf8') : '';
    check('careful: a call that is asked about waits, and runs once when it is allowed', !existsSync(deep) && times === 'ran\n', { allowed, times });
    const restored = await undo();
    check('undo restores what rm -r removed, byte for byte', restored.code === 0 && intact() && !existsSync(join(project, 'times')), restored);
    await killed(server);

    server = await up('locked');
    const locked = await agent.shell('rm -r deep');
    check('locked: rm -r is refused by the policy', intact(), locked);
    await killed(server);

    server = await up('observe');
    const written = await agent.write('new.txt', 'new');
    check('observe: a file is written', existsSync(join(project, 'new.txt')), written);
    const first = await newest();
    check('it is on record with its tool, and closed', first.title.startsWith(`${agent.client} `) && first.status === 'finished', first);
    const undone = await undo();
    check('undo removes the new file', undone.code === 0 && !existsSync(join(project, 'new.txt')), undone);
    const edited = await agent.edit('note.txt', 'one', 'three');
    check('observe: a file is edited', readFileSync(note, 'utf8') === 'three\nand two\n', edited);
    const back = await undo();
    check('undo restores the edited file, byte for byte', back.code === 0 && intact(), back);
    const removed = await agent.shell('rm -r deep; echo two > note.txt');
    check('observe: a command removes and changes', !existsSync(deep) && readFileSync(note, 'utf8') === 'two\n', removed);
    const all = await undo();
    check('undo restores every byte', all.code === 0 && intact(), all);
    await killed(server);
    server = undefined;
    const dead = [await agent.shell('touch ran-dead'), await agent.write('ran-dead.txt', 'x'), await agent.shell('rm -r deep')];
    check('with Toolyard killed nothing runs', intact() && !existsSync(join(project, 'ran-dead')) && !existsSync(join(project, 'ran-dead.txt')), dead);

    await rig.yard('hooks', 'uninstall', agent.client);
    check('uninstalling leaves the settings byte for byte', same(before, files(agent.files)), files(agent.files));
  } catch (problem) {
    check('nothing went wrong on the way', false, String(problem.stack ?? problem));
  } finally {
    server?.kill('SIGTERM');
  }
};

// One question a call: a call of one of Toolyard's own tools is asked about once, by its hook or by the MCP door, and runs.
// `agent.own(path, content)` is a turn that makes a note.
export const ownTools = async (rig, agent) => {
  let server;
  try {
    await rig.yard('connect', agent.client, '--no-wait');
    await rig.yard('hooks', 'install', agent.client, ...agent.install);
    server = await rig.up('careful');
    const nobody = await agent.own('nobody.md', 'never');
    rig.check('without anybody to ask it says so', !existsSync(join(rig.home, 'vault/nobody.md')) && /nobody|approv/i.test(nobody.out), nobody);
    const made = await asked(rig, () => agent.own('asked.md', 'once'), 'allow');
    const note = join(rig.home, 'vault/asked.md');
    {
      const { approvals } = await rig.json('approvals', 'list');
      const written = existsSync(note) && readFileSync(note, 'utf8') === 'once';
      rig.check('a call of our own tool is asked about once and runs', made.answered.code === 0 && written && approvals.length === 0, { made, approvals });
    }
    const denied = await asked(rig, () => agent.own('denied.md', 'never'), 'deny');
    rig.check('a denied call of our own tool does not run', !existsSync(join(rig.home, 'vault/denied.md')), denied);
    await rig.yard('connect', agent.client, '--undo');
  } catch (problem) {
    rig.check('nothing went wrong with our own tools', false, String(problem.stack ?? problem));
  } finally {
    if (server) await killed(server);
  }
};

// The agent's own validators accept the plugin package: `steps(folder)` gives commands and what their output must hold.
export const packages = async (rig, agent) => {
  try {
    const { folder } = await rig.json('connect', agent.client, '--plugin');
    for (const [what, program, args, holds] of agent.steps(folder)) {
      const ran = await rig.run(program, args);
      rig.check(`${agent.client} ${what}`, ran.code === 0 && holds.test(ran.out + ran.err), ran);
    }
    const gone = await rig.json('connect', agent.client, '--plugin', '--undo');
    rig.check('the package is removed', gone.changed === true && !existsSync(folder), gone);
  } catch (problem) {
    rig.check('nothing went wrong with the package', false, String(problem.stack ?? problem));
  }
};

// Removes the folder and ends with a code that says how it went.
export const end = async (rig, api) => {
  api.close();
  await new Promise((resolve) => setTimeout(resolve, 500));
  if (process.env.KEEP_WORK !== '1') rmSync(rig.work, { recursive: true, force: true });
  process.exit(rig.state.failed ? 1 : 0);
};
