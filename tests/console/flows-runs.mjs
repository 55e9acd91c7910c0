// Runs: tabs, dry run and deviation, undo, a tampered record, forks.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { paired } from './browser.mjs';
import { plan, question, runFromPage, withLog } from './seed.mjs';
import { eventually, sleep } from './yard.mjs';

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
  const predict = async () => {
    await page.goto(`${yard.url}/plans/new`);
    await page.getByLabel('Start from an example').selectOption('patch-front-matter.json');
    await page.getByText('No errors').waitFor();
    await page.getByRole('button', { name: 'Dry run', exact: true }).click();
    await page.getByRole('heading', { name: /^Dry run: 1 file would change/ }).waitFor();
  };
  const before = yard.read('Projects/Garden.md');
  await predict();
  await page.getByText('in progress').first().waitFor();
  assert.equal(yard.read('Projects/Garden.md'), before, 'a dry run writes nothing');
  // The note changes behind the preview's back: the run is refused, says so, and does nothing.
  const edited = `${before}\nSomebody wrote this.\n`;
  yard.write('Projects/Garden.md', edited);
  await page.getByRole('button', { name: /^Run, change 1/ }).click();
  const refusal = page.locator('.problem').first();
  await refusal.waitFor();
  assert.match(await refusal.innerText(), /not what the dry run showed[^]*CONFIRMATION_REQUIRED/);
  assert.deepEqual((await yard.cli('runs', 'list', '--status', 'finished')).runs.filter((run) => run.kind === 'plan'), [], 'no run of the plan');
  assert.equal(yard.read('Projects/Garden.md'), edited, 'a refused run writes nothing');
  await predict();
  await page.getByRole('button', { name: /^Run, change 1/ }).click();
  await page.waitForURL(/\/runs\//);
  await page.getByText('Finished').first().waitFor();
  assert.match(yard.read('Projects/Garden.md'), /status: in progress/);
  assert.equal(await page.getByText(/something else than the preview/).count(), 0, 'as predicted');
  // What depends on a tool that cannot be predicted happens without having been shown: the page says so.
  await eventually(async () => (await yard.cli('tools', 'list')).tools.some((tool) => tool.name === 'log__append'), 'the tool of the server', 60_000);
  await runFromPage(yard, page, {
    version: '1.0', goal: 'Keep a line, then write a note', riskLevel: 'writes',
    steps: [{ id: 'line', tool: 'log__append', args: { text: 'a line' } }, { id: 'note', tool: 'vault.createFile', args: { path: 'Notes/Unseen.md', content: '$steps.line.content[0].text' } }],
  });
  const deviation = page.getByRole('region', { name: 'Deviation' });
  await deviation.getByText('create Notes/Unseen.md').waitFor();
  assert.equal(yard.read('Notes/Unseen.md'), 'kept a line');
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
  // The others are as before the run.
  const others = [...JSON.stringify(detail).matchAll(/"path":"([^"]+\.md)","kind":"file"\}/g)].map(([, path]) => path).filter((path) => path !== created);
  assert.ok(others.length > 0);
  for (const path of new Set(others)) assert.throws(() => yard.read(path), /ENOENT/, `${path} is gone`);
  assert.deepEqual(problems, []);
}

/** The frames of a run as the database holds them. */
const framesIn = (yard, runId) => yard.sql('SELECT id, kind, payload, chain FROM frames WHERE id >> 32 = (SELECT no FROM runs WHERE run_id = ?) ORDER BY id', `hex:${runId.replaceAll('-', '')}`);

async function tampered(yard) {
  const { page, problems } = await paired(yard);
  const { runId } = await plan(yard, 'patch-front-matter.json');
  const verify = async () => {
    await page.goto(`${yard.url}/runs/${runId}`);
    await eventually(async () => page.getByRole('button', { name: 'Verify' }).isEnabled(), 'the connection', 60_000);
    await page.getByRole('button', { name: 'Verify' }).click();
  };
  await verify();
  await page.getByText('Intact', { exact: true }).waitFor();
  const { runId: untouched } = await plan(yard, 'read-summary.json');
  // The bytes of the records, as the server gives them.
  const { frames } = await yard.cli('runs', 'record', runId);
  const call = frames.find((frame) => frame.kindName === 'call');
  const text = Buffer.from(call.payload, 'base64').toString();
  const forged = text.replace('Garden', 'Harden');
  assert.notEqual(forged, text);
  const hex = (value) => `hex:${Buffer.from(value).toString('hex')}`;
  await yard.stop();
  // Somebody with the disk writes another record, plain, in the place of the true one. Its hash stays.
  const stored = await framesIn(yard, runId);
  const [id] = stored[call.seq - 1];
  const put = (kind, payload, chain) => yard.sql('UPDATE frames SET kind = ?, payload = ?, chain = ? WHERE id = ?', kind, payload, chain, id);
  await put(call.kind, hex(forged), stored[call.seq - 1][3]);
  await yard.start();
  await verify();
  await page.getByText(`Record ${call.seq} was changed`, { exact: true }).waitFor();
  assert.equal(await page.getByText('Intact', { exact: true }).count(), 0);
  // The seam is cut at that record, and what follows is not proved.
  assert.equal(await page.locator('.wf-row.cutrow').count(), 1);
  assert.match(await page.locator('.wf-row.cutrow .no').innerText(), new RegExp(`^${call.seq}\\b`));
  assert.ok((await page.locator('.wf-row.loose').count()) > 0);
  // Another run of the same store is as it was.
  await page.goto(`${yard.url}/runs/${untouched}`);
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.getByText('Intact', { exact: true }).waitFor();
  // The forger is better: every hash from that record on is made anew. The signature is not his to make.
  await yard.stop();
  let chain = Buffer.from(frames[call.seq - 2].chain, 'hex');
  for (const frame of frames.slice(call.seq - 1)) {
    const payload = frame.seq === call.seq ? Buffer.from(forged) : Buffer.from(frame.payload, 'base64');
    const head = Buffer.alloc(9);
    head.writeBigUInt64BE(BigInt(frame.seq));
    head[8] = frame.kind;
    chain = createHash('sha256').update(chain).update(head).update(payload).digest();
    await yard.sql('UPDATE frames SET chain = ? WHERE id = ?', `hex:${chain.toString('hex')}`, stored[frame.seq - 1][0]);
  }
  await yard.start();
  await verify();
  await page.getByText(new RegExp(`The signature in record ${frames.find((frame) => frame.kindName === 'checkpoint').seq} is not one of the key`)).first().waitFor();
  assert.equal(await page.getByText('Intact', { exact: true }).count(), 0);
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
  { number: 14, name: 'three tabs, one socket', drive: tabs },
  { number: 15, name: 'dry run, refused after a change, run, deviation', drive: dryRun, config: withLog },
  { number: 16, name: 'undo with a conflict', drive: undo },
  { number: 17, name: 'a record tampered with in the store is found in the browser', drive: tampered },
  { number: 18, name: 'fork with an edited step', drive: fork },
];
