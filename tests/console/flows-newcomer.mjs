// The first minutes of somebody who has read nothing: what `toolyard up` prints is opened, what the pages say is done.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { profile } from './browser.mjs';
import { eventually } from './yard.mjs';

const run = promisify(execFile);

/** Runs what a page gave to paste, as a shell does. */
const shell = (text) => run('sh', ['-c', text], { maxBuffer: 64 << 20 });

/** A client that starts the pasted command as its MCP server and makes one call. */
async function callOverMcp(command) {
  const server = spawn('sh', ['-c', `exec ${command}`], { stdio: ['pipe', 'pipe', 'ignore'] });
  const send = (message) => server.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  const answered = new Promise((resolve) => {
    createInterface({ input: server.stdout }).on('line', (line) => {
      const { id, result } = JSON.parse(line);
      if (id === 0) {
        send({ method: 'notifications/initialized' });
        send({ id: 1, method: 'tools/call', params: { name: 'vault_readFile', arguments: { path: 'Welcome.md' } } });
      } else if (id === 1) resolve(result);
    });
  });
  send({ id: 0, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'claude-code', version: '1' } } });
  const result = await answered;
  server.stdin.end();
  return result;
}

async function newcomer(yard) {
  // The link is the last thing that `toolyard up` prints.
  await yard.stop();
  await yard.start({ json: false });
  const link = await eventually(() => /http:\S+\/pair#\S+/.exec(yard.log)?.[0], 'the link that pairs the first browser');
  assert.match(yard.log, /Open this in a browser/);
  const begun = Date.now();
  const { context, problems } = await profile(yard);
  const page = await context.newPage();
  await page.goto(link);
  await page.getByRole('button', { name: 'Pair this browser' }).click();

  // Now says what there is to do. The command that it shows makes a call that asks.
  await page.getByRole('heading', { name: 'Begin' }).waitFor();
  await page.getByRole('button', { name: 'Copy' }).click();
  const answer = shell(await page.evaluate(() => navigator.clipboard.readText()));
  const allow = page.getByRole('button', { name: 'Allow once', exact: true });
  await allow.waitFor();
  await page.getByText('May it create').waitFor();
  await page.waitForTimeout(400);
  await allow.click();
  const { stdout } = await answer;
  assert.equal(JSON.parse(stdout).ok, true, stdout);
  assert.equal(yard.read('Hello.md'), 'Hello.');
  if (process.env.VERBOSE) console.error(`from the link to the first approved call: ${Date.now() - begun} ms`);

  // Connect: the block is pasted as it is, and the page notices the first call by itself.
  await page.getByRole('link', { name: 'Connections' }).first().click();
  const block = page.getByRole('article').filter({ hasText: 'Claude Code' });
  await block.getByRole('button', { name: 'Copy' }).click();
  await block.getByText('Waiting for it').waitFor();
  const paste = await page.evaluate(() => navigator.clipboard.readText());
  const command = paste.slice(paste.indexOf(' -- ') + 4);
  const result = await callOverMcp(command);
  assert.notEqual(result.isError, true, JSON.stringify(result).slice(0, 400));
  await block.getByText('Connected', { exact: true }).waitFor();
  await block.getByText(/called/).waitFor();
  assert.deepEqual(problems, []);
}

export const flows = [{ number: 36, name: 'a newcomer: from the printed link to the first approved call, and a client connected', drive: newcomer, config: '' }];
