// Runs: tabs, losses of the connection, dry run and deviation, undo, a tampered record, forks.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { paired } from './browser.mjs';
import { PATCH, plan, question } from './seed.mjs';
import { eventually, sleep } from './yard.mjs';

async function killed(yard) {
  const { page, problems } = await paired(yard);
  // The agent can come back for the answer: its call has a key.
  const { id } = await question(yard, PATCH, 'vault.patchFile', { idempotencyKey: 'winter-1' });
  await page.getByRole('button', { name: 'Allow once', exact: true }).waitFor();
  await yard.stop('SIGKILL');
  await page.getByText('Offline.', { exact: true }).waitFor();
  // The data stays, and an answer is not queued.
  await page.getByRole('button', { name: /Allow once: offline/ }).waitFor();
  await yard.start();
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached', timeout: 60_000 });
  const open = await yard.cli('approvals', 'list');
  assert.deepEqual(open.approvals.map((each) => each.id), [id], 'the question survived');
  await page.getByRole('button', { name: 'Allow once', exact: true }).waitFor();
  assert.deepEqual(problems, []);
}

async function offline(yard) {
  const { page, context } = await paired(yard);
  await page.goto(`${yard.url}/runs`);
  await page.getByRole('heading', { name: 'Runs', exact: true }).waitFor();
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  const session = await context.newCDPSession(page);
  await session.send('Network.enable');
  await session.send('Network.emulateNetworkConditions', { offline: true, latency: 0, downloadThroughput: 0, uploadThroughput: 0 });
  await page.evaluate(() => dispatchEvent(new Event('offline')));
  for (const path of ['Notes/Compost.md', 'Notes/Watering.md', 'Welcome.md']) await yard.call('vault.readFile', { path });
  await sleep(3000);
  await session.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  await page.evaluate(() => dispatchEvent(new Event('online')));
  await eventually(async () => (await page.getByRole('row').filter({ hasText: 'vault.readFile' }).count()) >= 3, 'the runs that were missed', 40_000);
}

async function tabs(yard) {
  const { context, page, problems } = await paired(yard);
  const sockets = [];
  const watch = (each) => each.on('websocket', (socket) => {
    sockets.push(socket);
    socket.on('close', () => sockets.splice(sockets.indexOf(socket), 1));
  });
  watch(page);
  await page.reload();
  const others = [await context.newPage(), await context.newPage()];
  for (const each of others) {
    watch(each);
    await each.goto(`${yard.url}/`);
    await each.getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  }
  assert.equal(sockets.length, 1, `${sockets.length} sockets`);
  // A tab without the socket shows news and can act.
  const { answer } = await question(yard);
  const last = others[1];
  await last.getByRole('button', { name: 'Allow once', exact: true }).waitFor();
  await sleep(400);
  await last.getByRole('button', { name: 'Allow once', exact: true }).click();
  assert.equal((await answer).ok, true);
  // The tab that holds the socket closes: another takes over.
  await page.close();
  await eventually(() => sockets.length === 1, 'the next tab connects');
  await others[0].getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  assert.deepEqual(problems, []);
}

async function dryRun(yard) {
  const { page, problems } = await paired(yard);
  await page.goto(`${yard.url}/plans/new`);
  await page.getByLabel('Start from an example').selectOption('patch-front-matter.json');
  await page.getByText('No errors').waitFor();
  await page.getByRole('button', { name: 'Dry run', exact: true }).click();
  await page.getByRole('heading', { name: /^Dry run: 1 file would change/ }).waitFor();
  await page.getByText('in progress').first().waitFor();
  assert.doesNotMatch(yard.read('Projects/Garden.md'), /status: in progress/, 'a dry run writes nothing');
  // The note changes behind the preview's back: the run is refused.
  const before = yard.read('Projects/Garden.md');
  yard.write('Projects/Garden.md', `${before}\nSomebody wrote this.\n`);
  await page.getByRole('button', { name: /^Run, change 1/ }).click();
  const refused = await Promise.race([page.getByRole('alert').first().waitFor().then(() => true), page.waitForURL(/\/runs\//).then(() => false)]);
  if (!refused) await page.getByText(/deviat|Failed|preview/i).first().waitFor();
  await page.goto(`${yard.url}/plans/new`);
  await page.getByLabel('Start from an example').selectOption('patch-front-matter.json');
  await page.getByRole('button', { name: 'Dry run', exact: true }).click();
  await page.getByRole('button', { name: /^Run, change 1/ }).click();
  await page.waitForURL(/\/runs\//);
  await page.getByText('Finished').first().waitFor();
  assert.match(yard.read('Projects/Garden.md'), /status: in progress/);
  assert.deepEqual(problems, []);
}

async function undo(yard) {
  const { page, problems } = await paired(yard);
  const { runId } = await plan(yard, 'notes-from-bullets.json');
  await page.goto(`${yard.url}/runs/${runId}`);
  await page.getByRole('heading', { name: /^Changes/ }).waitFor();
  const { run: _run, ...detail } = await yard.cli('runs', 'show', runId);
  const created = JSON.stringify(detail).match(/"path":"([^"]+\.md)","kind":"file"\}/)?.[1];
  assert.ok(created, 'the plan created a note');
  yard.write(created, `${yard.read(created)}\nEdited since.\n`);
  await page.getByRole('link', { name: /^Undo/ }).click();
  await page.getByText('Changed since: stays').waitFor();
  const button = page.getByRole('button', { name: /^Undo \d+ of \d+$/ });
  const [, some, all] = /Undo (\d+) of (\d+)/.exec(await button.textContent());
  assert.equal(Number(some), Number(all) - 1, 'the changed file is unticked');
  await button.click();
  await page.waitForURL((url) => /\/runs\/[0-9a-f-]+$/.test(url.pathname) && !url.pathname.includes(runId));
  await page.getByText('Finished').first().waitFor();
  assert.match(yard.read(created), /Edited since/, 'the edited file stays');
  assert.deepEqual(problems, []);
}

async function tampered(yard) {
  const { page, problems } = await paired(yard);
  const { runId } = await plan(yard, 'patch-front-matter.json');
  await page.goto(`${yard.url}/runs/${runId}`);
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.getByText('Intact', { exact: true }).waitFor();
  // Somebody between the store and the browser changes one record. The page must find out which.
  await page.routeWebSocket(/\/console\/socket$/, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((message) => {
      const value = JSON.parse(message);
      for (const frame of value.payload?.frames ?? []) {
        if (frame.seq === 3) frame.payload = Buffer.from(Buffer.from(frame.payload, 'base64').toString().replace(/"st":"ok"|a/, 'b')).toString('base64');
      }
      socket.send(JSON.stringify(value));
    });
  });
  await page.goto(`${yard.url}/runs/${runId}`);
  await page.getByRole('button', { name: 'Verify' }).waitFor();
  await eventually(async () => page.getByRole('button', { name: 'Verify' }).isEnabled(), 'the connection');
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.getByText('Record 3 was changed', { exact: true }).waitFor();
  assert.deepEqual(problems, []);
}

async function fork(yard) {
  const { page, problems } = await paired(yard);
  const { runId } = await plan(yard, 'patch-front-matter.json');
  await page.goto(`${yard.url}/plans/new?from=${runId}`);
  await page.getByText('No errors').waitFor();
  const editor = page.getByRole('textbox', { name: 'Plan, JSON' });
  await editor.waitFor();
  const text = JSON.parse(readFileSync(join(process.env.CHECKOUT, 'examples/plans/patch-front-matter.json'), 'utf8'));
  text.steps[1].args.patch.operations = [{ op: 'replace', target: { type: 'frontmatter', key: 'status' }, value: 'forked' }];
  await editor.click();
  await page.keyboard.press('Control+a');
  await page.evaluate((value) => navigator.clipboard.writeText(value), JSON.stringify(text));
  await page.keyboard.press('Control+v');
  await page.getByLabel('Run again from').selectOption('garden');
  await page.getByRole('button', { name: 'Dry run', exact: true }).click();
  await page.getByRole('button', { name: 'Fork from garden' }).click();
  await page.waitForURL((url) => /\/runs\/[0-9a-f-]+$/.test(url.pathname));
  await page.getByText('Finished').first().waitFor();
  assert.match(yard.read('Projects/Garden.md'), /status: forked/);
  assert.deepEqual(problems, []);
}

export const flows = [
  { number: 12, name: 'kill -9: the data stays, the question survives, nothing is answered twice', drive: killed },
  { number: 13, name: 'offline, then every event that was missed', drive: offline },
  { number: 14, name: 'three tabs, one socket', drive: tabs },
  { number: 15, name: 'dry run, a note that changed meanwhile, run', drive: dryRun },
  { number: 16, name: 'undo with a conflict', drive: undo },
  { number: 17, name: 'a tampered record is found in the browser', drive: tampered },
  { number: 18, name: 'fork with an edited step', drive: fork },
];
