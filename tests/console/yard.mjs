// A Toolyard of its own for a test: a home, a vault and a free port on loopback; and its command line.
import { execFile, spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const TOOLYARD = process.env.TOOLYARD;
const CHECKOUT = process.env.CHECKOUT;
/** A debug build on a loaded machine starts slowly. */
const START_MS = 120_000;

/** Values that begin with `hex:` are bytes, here and in the answer. */
const SQL = `
import json, sqlite3, sys
path, statement, values = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
bound = [bytes.fromhex(v[4:]) if isinstance(v, str) and v.startswith("hex:") else v for v in values]
with sqlite3.connect(path) as database:
    rows = database.execute(statement, bound).fetchall()
print(json.dumps([["hex:" + c.hex() if isinstance(c, bytes) else c for c in row] for row in rows]))
`;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `find` gives something. */
export async function eventually(find, what, ms = 30_000, everyMs = 50) {
  const until = Date.now() + ms;
  let last;
  while (Date.now() < until) {
    try {
      const found = await find();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    await sleep(everyMs);
  }
  throw new Error(`${what} did not happen${last ? `: ${last.message}` : ''}`);
}

/** A door between a browser and a Toolyard that can be shut: connections break, and new ones are refused. */
export class Door {
  #server = null;
  #open = new Set();

  constructor(yard, port) {
    this.yard = yard;
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
  }

  static async before(yard) {
    const door = new Door(yard, await freePort());
    await door.open();
    return door;
  }

  open() {
    this.#server = createServer((near) => {
      const far = connect(this.yard.port, '127.0.0.1');
      for (const [from, to] of [[near, far], [far, near]]) {
        this.#open.add(from);
        from.pipe(to);
        // One side that ends or breaks ends the other: what is sent over a broken connection is lost.
        from.on('error', () => to.destroy());
        from.on('close', () => {
          this.#open.delete(from);
          to.destroy();
        });
      }
    });
    return new Promise((resolve) => this.#server.listen(this.port, '127.0.0.1', resolve));
  }

  async shut() {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const each of this.#open) each.destroy();
    await closed;
  }

  /** A one-use link to pair a browser through this door. */
  async link(...options) {
    return (await this.yard.link(...options)).replace(this.yard.url, this.url);
  }
}

export async function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export class Yard {
  constructor(folder, port) {
    this.folder = folder;
    this.home = join(folder, 'home');
    this.vault = join(folder, 'vault');
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
    this.process = null;
    this.log = '';
  }

  /**
   * Makes a home with the sample vault. `config` is its configuration, or a function that makes it for this yard. `home` is
   * a folder whose content the home begins with.
   */
  static async make(config = '', home = null) {
    const folder = mkdtempSync(join(tmpdir(), 'toolyard-console-'));
    const yard = new Yard(folder, await freePort());
    mkdirSync(yard.home, { recursive: true });
    if (home) cpSync(await home(), yard.home, { recursive: true });
    cpSync(join(CHECKOUT, 'examples/vault'), yard.vault, { recursive: true });
    writeFileSync(join(yard.home, 'config.toml'), typeof config === 'function' ? config(yard) : config);
    await yard.start();
    return yard;
  }

  /** Starts Toolyard. Without `json` it says what a person at a terminal reads. */
  async start({ json = true } = {}) {
    this.process = spawn(TOOLYARD, ['--home', this.home, '--vault', this.vault, 'up', '--port', String(this.port), ...(json ? ['--json'] : [])], { stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '';
    this.process.stdout.on('data', (data) => (out += data));
    this.process.stderr.on('data', (data) => (this.log += data));
    const mine = this.process;
    await eventually(() => {
      if (mine.exitCode !== null) throw new Error(`Toolyard ended: ${this.log.slice(-2000)}`);
      return json ? out.includes('"url"') : this.log.includes('Toolyard is up');
    }, 'the start of Toolyard', START_MS);
  }

  /** Ends the process: politely, or with kill -9. */
  async stop(signal = 'SIGTERM') {
    const mine = this.process;
    this.process = null;
    if (!mine || mine.exitCode !== null) return;
    const ended = new Promise((resolve) => mine.once('exit', resolve));
    mine.kill(signal);
    await ended;
  }

  async remove() {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Runs a command against this home and gives its JSON. */
  async cli(...args) {
    const { stdout } = await run(TOOLYARD, ['--home', this.home, '--json', ...args], { maxBuffer: 64 << 20 });
    return stdout.trim() === '' ? null : JSON.parse(stdout);
  }

  /** A one-use link to pair a browser. */
  async link(...options) {
    const { url } = await this.cli('console', '--print', ...options);
    return url;
  }

  /** Calls a method of the gateway as an agent would; never waits for a person longer than the process lives. */
  agent(method, params) {
    const done = run(TOOLYARD, ['--home', this.home, '--json', 'gateway', 'call', method, '--params', JSON.stringify(params)], { maxBuffer: 64 << 20 }).then(
      ({ stdout }) => JSON.parse(stdout),
      (error) => ({ failed: true, message: error.message, stdout: error.stdout }),
    );
    return done;
  }

  /** A call of a tool as an agent that waits for the person's answer. */
  call(name, args, more = {}) {
    return this.agent('tools.invoke', { name, args, sessionKey: 'agent:main:main', confirm: true, ...more });
  }

  /** Runs a statement on the database of the store, as somebody does who has the disk; Toolyard must be stopped. */
  async sql(statement, ...values) {
    const { stdout } = await run('python3', ['-c', SQL, join(this.home, 'state/toolyard.db'), statement, JSON.stringify(values)], { maxBuffer: 64 << 20 });
    return JSON.parse(stdout);
  }

  read(path) {
    return readFileSync(join(this.vault, path), 'utf8');
  }

  write(path, text) {
    writeFileSync(join(this.vault, path), text);
  }
}
