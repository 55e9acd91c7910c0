// Pairing and who is let in.
import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { createServer, request } from 'node:http';
import { connect } from 'node:net';
import { axe, DESK, paired, PHONE, profile, TABLET } from './browser.mjs';
import { question } from './seed.mjs';
import { eventually, freePort, sleep } from './yard.mjs';

/** A plain request with headers that a browser would not let a page set. */
function http(yard, { method = 'GET', path = '/', headers = {}, body = '' }) {
  return new Promise((resolve, reject) => {
    const asked = request(`${yard.url}${path}`, { method, headers }, (response) => {
      let text = '';
      response.on('data', (part) => (text += part));
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, text }));
    });
    asked.on('error', reject);
    asked.end(body);
  });
}

/** Asks for a WebSocket; gives the status line's code, and the first frames as text where it is accepted. */
function upgrade(yard, headers) {
  return new Promise((resolve, reject) => {
    const socket = connect(yard.port, '127.0.0.1');
    let got = Buffer.alloc(0);
    socket.on('connect', () => {
      const lines = ['GET /console/socket HTTP/1.1', `Host: 127.0.0.1:${yard.port}`, 'Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13', `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`];
      for (const [name, value] of Object.entries(headers)) {
        const at = lines.findIndex((line) => line.toLowerCase().startsWith(`${name.toLowerCase()}:`));
        if (at >= 0) lines[at] = `${name}: ${value}`;
        else lines.push(`${name}: ${value}`);
      }
      socket.write(`${lines.join('\r\n')}\r\n\r\n`);
    });
    socket.on('data', (part) => {
      got = Buffer.concat([got, part]);
      const text = got.toString('latin1');
      if (text.includes('\r\n\r\n') && (!text.startsWith('HTTP/1.1 101') || /nonce/.test(text))) resolve({ status: Number(text.slice(9, 12)), text, socket });
    });
    socket.on('error', reject);
    setTimeout(() => reject(new Error('the server did not answer')), 10_000).unref();
  });
}

/** A text frame, masked as a client's must be. */
function frame(text) {
  const payload = Buffer.from(text);
  const head = payload.length < 126 ? Buffer.from([0x81, 0x80 | payload.length]) : Buffer.from([0x81, 0x80 | 126, payload.length >> 8, payload.length & 255]);
  return Buffer.concat([head, Buffer.alloc(4), payload]);
}

async function once(yard) {
  const url = await yard.link();
  assert.match(url, /\/pair#\S+$/);
  const first = await profile(yard);
  const page = await first.context.newPage();
  // The code is behind the # of the address, and the body of one request has it: no address ever does.
  const asked = [];
  page.on('request', (each) => asked.push(each.url()));
  page.on('websocket', (each) => asked.push(each.url()));
  await page.goto(url);
  const pair = page.getByRole('button', { name: 'Pair this browser' });
  await pair.waitFor();
  assert.equal(new URL(page.url()).hash, '', 'the code leaves the address before anything is asked');
  await pair.click();
  await page.getByRole('heading', { name: 'Now', exact: true }).waitFor();
  for (const name of ['Now', 'Runs', 'Plans', 'Tools', 'Knowledge', 'Connections', 'Settings']) {
    assert.ok(await page.getByRole('navigation', { name: 'Main', exact: true }).getByRole('link', { name: new RegExp(`^${name}`) }).isVisible(), name);
  }
  const code = new URL(url).hash.slice(1);
  assert.ok(asked.length > 0 && asked.every((each) => !each.split('#')[0].includes(code)), 'no address carries the code');
  const [cookie] = await first.context.cookies();
  assert.ok(cookie?.httpOnly && cookie.sameSite === 'Strict', JSON.stringify(cookie));
  const second = await profile(yard);
  const other = await second.context.newPage();
  await other.goto(url);
  await other.getByRole('button', { name: 'Pair this browser' }).click();
  await other.getByText('CODE_USED').waitFor();
  assert.deepEqual(first.problems, []);
}

async function expired(yard) {
  const { url, expiresAt } = await yard.cli('console', '--print');
  const { context, problems } = await profile(yard);
  const page = await context.newPage();
  // The page is open in time; the click comes too late.
  await page.goto(url);
  const pair = page.getByRole('button', { name: 'Pair this browser' });
  await pair.waitFor();
  const left = Date.parse(expiresAt) - Date.now();
  assert.ok(left > 60_000 && left <= 121_000, `a code lives for two minutes, not ${left} ms`);
  await sleep(left + 1000);
  await pair.click();
  await page.getByText('CODE_EXPIRED').waitFor();
  await page.getByText('toolyard console').first().waitFor();
  assert.deepEqual(await context.cookies(), [], 'nobody is let in');
  assert.deepEqual((await yard.cli('devices', 'list')).paired, [], 'no device is kept');
  await page.goto(`${yard.url}/runs`);
  await page.getByText('This browser is not paired.').waitFor();
  assert.deepEqual(problems, []);
}

/** A page of another origin that shows Toolyard in a frame. */
async function framed(yard, context) {
  const port = await freePort();
  const stranger = createServer((_, response) => {
    response.setHeader('content-type', 'text/html');
    response.end(`<title>stranger</title><iframe src="${yard.url}/"></iframe>`);
  });
  await new Promise((resolve) => stranger.listen(port, '127.0.0.1', resolve));
  const page = await context.newPage();
  const refusals = [];
  page.on('console', (message) => refusals.push(message.text()));
  await page.goto(`http://localhost:${port}/`);
  await eventually(() => refusals.some((text) => /frame-ancestors|Framing/.test(text)), 'the refusal of the frame');
  // The browser reports the refusal before it has put its own error page into the frame.
  const inside = () => page.frames().find((frame) => frame !== page.mainFrame())?.url() ?? '';
  await eventually(() => /^chrome-error:/.test(inside()), `a frame shows nothing of Toolyard, and not ${inside()}`);
  await page.close();
  stranger.close();
}

const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

async function foreign(yard) {
  const { context } = await paired(yard);
  const cookie = (await context.cookies()).map((each) => `${each.name}=${each.value}`).join('; ');
  const evil = { origin: 'http://evil.example', cookie };
  assert.equal((await http(yard, { method: 'POST', path: '/pair', headers: { ...evil, 'content-type': 'application/json' }, body: '{}' })).status, 403);
  assert.equal((await http(yard, { method: 'POST', path: '/logout', headers: evil })).status, 403);
  assert.ok((await upgrade(yard, { Origin: 'http://evil.example', Cookie: cookie })).status >= 400, 'a foreign Origin gets no socket');
  assert.ok((await upgrade(yard, { Cookie: cookie })).status >= 400, 'no Origin gets no socket');
  assert.ok((await http(yard, { headers: { host: 'evil.example' } })).status >= 400, 'a foreign Host gets no page');
  await framed(yard, context);
  assert.ok((await http(yard, { method: 'POST', path: '/pair', headers: { origin: yard.url, 'sec-fetch-site': 'cross-site', 'content-type': 'application/json' }, body: '{}' })).status >= 400, 'a request that the browser calls cross-site does not pair');
  // Every document and script has the whole policy, word for word.
  for (const path of ['/', '/pair', '/runs/x', '/sw.js', '/trusted.js']) {
    const policy = (await http(yard, { path })).headers['content-security-policy'];
    assert.equal(policy, POLICY, path);
  }
}

async function parameters(yard) {
  const { context } = await profile(yard);
  const page = await context.newPage();
  const asked = [];
  page.on('request', (each) => asked.push(each.url()));
  page.on('websocket', (each) => asked.push(each.url()));
  await page.goto(`${yard.url}/?gatewayUrl=ws://127.0.0.1:9/&token=stolen`);
  await page.getByText('This browser is not paired.').waitFor();
  assert.ok(asked.every((url) => new URL(url).host === new URL(yard.url).host), asked.join(' '));
  assert.ok(!asked.some((url) => /socket/.test(url)), 'nothing is connected without a key');
}

async function stolenCookie(yard) {
  const { context } = await paired(yard);
  const cookies = await context.cookies();
  const thief = await profile(yard);
  await thief.context.addCookies(cookies.map(({ name, value, httpOnly, sameSite, expires }) => ({ name, value, httpOnly, sameSite, expires, url: yard.url })));
  const page = await thief.context.newPage();
  await page.goto(`${yard.url}/`);
  await page.getByText('This browser is not paired.').waitFor();
  // The cookie and our own Origin, but another key.
  const header = cookies.map((each) => `${each.name}=${each.value}`).join('; ');
  const { text, socket, status } = await upgrade(yard, { Origin: yard.url, Cookie: header });
  assert.equal(status, 101);
  const nonce = /"nonce":"([^"]+)"/.exec(text)?.[1];
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const raw = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  const deviceId = createHash('sha256').update(raw).digest('hex');
  const signature = sign(null, Buffer.from(['toolyard-console-connect-v1', yard.url, deviceId, nonce].join('\n')), privateKey).toString('base64url');
  let answer = '';
  socket.on('data', (part) => (answer += part.toString('latin1')));
  socket.write(frame(JSON.stringify({ type: 'req', id: '1', method: 'connect', params: { deviceId, signature } })));
  await eventually(() => /CONSOLE_(NOT_PAIRED|BAD_SIGNATURE)/.test(answer), 'the refusal');
  assert.ok(!answer.includes('hello-ok'));
  socket.destroy();
}

async function viewer(yard) {
  // A question needs somebody who can be reached.
  await paired(yard);
  const { id } = await question(yard);
  const { page, problems } = await paired(yard, {}, '--read-only');
  await page.goto(`${yard.url}/approve/${encodeURIComponent(id)}`);
  await page.getByText(/missing scope|may only look/).first().waitFor();
  assert.equal(await page.getByRole('button', { name: 'Allow once', exact: true }).count(), 0);
  await page.goto(`${yard.url}/`);
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  assert.equal(await page.getByRole('button', { name: 'Allow once', exact: true }).count(), 0);
  // The page hides what the server refuses: the same browser asks the server itself, over its own socket.
  const answers = new Map();
  let send = null;
  await page.routeWebSocket(/\/console\/socket$/, (socket) => {
    const server = socket.connectToServer();
    send = (method, params) => server.send(JSON.stringify({ type: 'req', id: `viewer-${method}`, method, params }));
    server.onMessage((message) => {
      const value = JSON.parse(message);
      if (String(value.id ?? '').startsWith('viewer-')) answers.set(value.id.slice('viewer-'.length), value);
      else socket.send(message);
    });
  });
  await page.reload();
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  const { shown } = (await yard.cli('approvals', 'show', id)).approval;
  const forbidden = {
    'approvals.answer': { id, decision: 'allow-once', shown },
    'tools.call': { name: 'vault.createFile', args: { path: 'Notes/Viewer.md', content: 'x' } },
    'grants.revoke': { id: 'x' },
    'config.patch': { baseHash: 'x', set: [] },
    'console.code': { rights: 'owner' },
    'devices.revoke': { id: 'x' },
    'mcp.remove': { server: 'calendar' },
  };
  for (const [method, params] of Object.entries(forbidden)) {
    send(method, params);
    const answer = await eventually(() => answers.get(method), `the refusal of ${method}`);
    assert.equal(answer.ok, false, method);
    assert.match(JSON.stringify(answer.error), /scope|FORBIDDEN|may not/i, `${method}: ${JSON.stringify(answer.error)}`);
  }
  const open = await yard.cli('approvals', 'list');
  assert.equal(open.approvals.length, 1, 'the question stays open');
  assert.deepEqual(problems, []);
}

/** A browser of a workspace says which one it shows, on every page and width; one of the default workspace says nothing. */
async function workspace(yard) {
  await yard.cli('workspaces', 'add', 'bob');
  const own = await paired(yard);
  assert.equal(await own.page.getByText('Workspace', { exact: true }).count(), 0, 'the default workspace is not named');
  for (const options of [{ size: DESK }, { size: TABLET }, { size: PHONE, touch: true }]) {
    const { page, problems } = await paired(yard, options, '--workspace', 'bob');
    const named = page.getByRole('note').filter({ hasText: 'Workspace' });
    for (const path of ['/', '/runs', '/settings/devices', '/approve/none']) {
      await page.goto(yard.url + path);
      await named.waitFor();
      assert.match(await named.innerText(), /Workspace\s+bob/);
    }
    assert.deepEqual(await axe(page), []);
    if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/workspace-${options.size.width}.png` });
    assert.deepEqual(problems, []);
  }
}

export const flows = [
  { number: 1, name: 'pair; the code used twice is refused', drive: once },
  { number: 2, name: 'an expired code is refused', drive: expired, waits: true },
  { number: 3, name: 'foreign Origin, Host and frame are refused', drive: foreign },
  { number: 4, name: 'gatewayUrl and token in the address are ignored', drive: parameters },
  { number: 5, name: 'a stolen cookie without the key is refused', drive: stolenCookie },
  { number: 11, name: 'a viewer is denied', drive: viewer },
  { number: 29, name: 'a browser of a workspace says which one it shows', drive: workspace },
];
