// Settings that a person changes in the browser, and what the pages say about notifications, savings and scores.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { framesOf, paired } from './browser.mjs';
import { listTools } from './store.mjs';
import { eventually, freePort } from './yard.mjs';

/** The port of the receiver of the flow under way, chosen before Toolyard starts. */
let hookPort = 0;

const withHook = () => `[notify]
coalesceSeconds = 0
privateHosts = ["127.0.0.1"]

[notify.channels.hook]
kind = "webhook"
url = "http://127.0.0.1:${hookPort}/hook"
`;

async function notifications(yard) {
  const received = [];
  const receiver = createServer((request, response) => {
    let body = '';
    request.on('data', (part) => (body += part));
    request.on('end', () => {
      received.push(JSON.parse(body));
      response.end();
    });
  });
  await new Promise((resolve) => receiver.listen(hookPort, '127.0.0.1', resolve));
  const { page, problems } = await paired(yard);
  await page.goto(`${yard.url}/settings/notifications`);
  await page.getByRole('heading', { name: 'This browser' }).waitFor();
  await page.getByRole('button', { name: 'Test hook' }).click();
  await page.getByText(/^Delivered in \d+ ms/).waitFor();
  assert.equal(received.length, 1, 'the receiver got the message');
  assert.ok(!JSON.stringify(received).match(/allow/i), 'no Allow travels');
  // Quiet hours are a change of the configuration, which keeps the rest of the file.
  const form = page.getByRole('form', { name: 'Quiet hours' });
  await form.getByLabel('From').fill('21:30');
  await form.getByLabel('To').fill('06:15');
  await form.getByLabel('Time zone').fill('Europe/Berlin');
  await form.getByRole('button', { name: 'Save' }).click();
  await page.getByText(/^Saved\./).first().waitFor();
  const file = () => readFileSync(join(yard.home, 'config.toml'), 'utf8');
  assert.match(file(), /21:30/);
  assert.match(file(), /notify\.channels\.hook/);
  assert.deepEqual(problems, []);
  receiver.close();
}

async function rules(yard) {
  const { page, problems } = await paired(yard);
  await page.goto(`${yard.url}/settings/policy`);
  const writing = page.getByLabel(/^Writing/);
  await writing.waitFor();
  assert.equal(await writing.inputValue(), 'ask');
  // At a glance: the policy's own answers, which follow the rule.
  const glance = page.getByRole('row', { name: /^main, mcp/ });
  await glance.getByText('Asks', { exact: true }).waitFor();
  await writing.selectOption('allow');
  await page.getByText(/^Saved\./).first().waitFor();
  await eventually(async () => (await glance.getByText('Allowed', { exact: true }).count()) === 3, 'changing notes is allowed');
  assert.match(readFileSync(join(yard.home, 'config.toml'), 'utf8'), /writes = "allow"/);
  // Whoever looks at an older file does not overwrite the newer one.
  const stale = page.getByLabel(/^Commands/);
  const { context } = await paired(yard);
  const other = context.pages()[0];
  await other.goto(`${yard.url}/settings/policy`);
  await other.getByLabel(/^Commands/).selectOption('deny');
  await other.getByText(/^Saved\./).first().waitFor();
  await stale.selectOption('allow');
  await page.getByText('CONFIG_CHANGED').or(page.getByText('CONFLICT')).first().waitFor();
  assert.match(readFileSync(join(yard.home, 'config.toml'), 'utf8'), /commands = "deny"/);
  assert.deepEqual(problems, []);
}

async function tools(yard) {
  const { page, problems } = await paired(yard);
  await listTools(yard);
  const frames = framesOf(page);
  await page.goto(`${yard.url}/tools?q=${encodeURIComponent('move a note and keep its links')}`);
  const row = page.locator('.tool-row').filter({ hasText: 'vault.rename' });
  await row.getByText('Asks', { exact: true }).waitFor();
  assert.match(await row.innerText(), /changes files|writes/, 'the reason is shown');
  assert.equal(frames.sent('tools.call').length, 0, 'a search in the console is no recorded call');
  await eventually(async () => {
    await page.reload();
    return page.getByRole('region', { name: 'What Tool Search saves' }).getByText('Not sent today').isVisible();
  }, 'the savings');
  assert.deepEqual(problems, []);
}

async function memory(yard) {
  const { page, problems } = await paired(yard);
  for (const text of ['I prefer tea, and meetings before eleven.', 'Frost dates come from the sensor on the shed.']) await yard.cli('call', 'memory_store', '--args', JSON.stringify({ text }));
  await page.goto(`${yard.url}/memory`);
  await page.getByLabel('Search what is known').fill('when do I like meetings');
  await page.getByRole('button', { name: 'Recall' }).click();
  const hits = page.getByRole('region', { name: /^Recalled for/ });
  await hits.getByText('threshold 0.15').waitFor();
  await hits.getByText(/score 0\.\d+: words [\d.]+, meaning/).first().waitFor({ state: 'attached' });
  // What is below the threshold is shown as such: an agent would not get it.
  await hits.getByText(/1 of 2 reach the threshold/).waitFor();
  assert.deepEqual(problems, []);
}

export const flows = [
  { number: 31, name: 'notifications: a channel is tested, quiet hours are set', drive: notifications, config: withHook, before: async () => (hookPort = await freePort()) },
  { number: 32, name: 'a rule is changed; a stale page does not overwrite', drive: rules },
  { number: 33, name: 'Tools: search with its reasons, savings', drive: tools },
  { number: 34, name: 'Memory: hits with the parts of their scores', drive: memory },
];
