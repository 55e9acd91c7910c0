// Losses: the server killed during a run, a run left in doubt, a connection that is cut, a tab left alone.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { framesOf, paired } from './browser.mjs';
import { PATCH, question, runFromPage, withLog } from './seed.mjs';
import { Door, eventually, sleep } from './yard.mjs';

const LINES = 150;
const OFFLINE_MS = 60_000;
const IDLE_MS = 60_000;

const lines = (path) => (existsSync(path) ? readFileSync(path, 'utf8').split('\n').filter(Boolean) : []);

async function killed(yard) {
  const { page, problems } = await paired(yard);
  const items = Array.from({ length: LINES }, (_, at) => `line ${at + 1}`);
  const plan = {
    version: '1.0', goal: 'Write a journal line by line', riskLevel: 'writes',
    steps: [
      { id: 'items', tool: 'util.parseMarkdownBullets', args: { text: items.map((each) => `- ${each}`).join('\n') } },
      { id: 'lines', tool: 'vault.writeFile', args: { path: 'Journal.md', mode: 'append', content: '{line.text}\n' }, foreach: { from: '$steps.items.items', itemName: 'line' } },
    ],
  };
  const journal = join(yard.vault, 'Journal.md');
  const kill = async () => {
    await eventually(() => lines(journal).length >= 20, 'the run is under way', 60_000, 5);
    const mine = yard.process;
    await yard.stop('SIGKILL');
    assert.equal(mine.signalCode, 'SIGKILL');
  };
  const [runId] = await Promise.all([runFromPage(yard, page, plan), kill()]);
  const before = lines(journal).length;
  assert.ok(before < LINES, `the run was over before the kill: ${before} lines`);
  await page.getByText('Offline.', { exact: true }).waitFor();
  await page.evaluate(() => (globalThis.sawTheKill = true));
  await sleep(500);
  assert.equal(lines(journal).length, before, 'nothing goes on without the server');
  await yard.start();
  // The same page, not loaded again, sees the run go on to its end.
  await page.getByText('Finished', { exact: true }).first().waitFor({ timeout: 60_000 });
  assert.equal(await page.evaluate(() => globalThis.sawTheKill), true, 'the page was not loaded again');
  assert.deepEqual(lines(journal), items, 'every line once, in order');
  const { results } = await yard.cli('runs', 'show', runId);
  const done = results.filter((each) => each.stepId === 'lines');
  assert.equal(done.length, LINES, 'one result a line');
  assert.ok(done.every((each) => each.status === 'ok'));
  assert.equal(new Set(done.map((each) => each.callId)).size, LINES, 'no result twice');
  // What was recorded before the kill was not called again: at most the call that was under way.
  const { frames } = await yard.cli('runs', 'record', runId);
  const calls = frames.filter((frame) => frame.kindName === 'call').length;
  assert.ok(calls === LINES + 1 || calls === LINES + 2, `${calls} calls for ${LINES} lines and their list`);
  const [{ runs: listed }] = [await yard.cli('runs', 'list', '--limit', '50')];
  assert.equal(listed.filter((each) => each.title === plan.goal).length, 1, 'one run');
  await page.getByText(new RegExp(`${LINES + 1} calls`)).waitFor();
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.getByText('Intact', { exact: true }).waitFor();
  assert.deepEqual(problems, []);
}

async function questionSurvives(yard) {
  const { page, problems } = await paired(yard);
  // The agent can come back for the answer: its call has a key.
  const { id } = await question(yard, PATCH, 'vault.patchFile', { idempotencyKey: 'winter-1' });
  await page.getByRole('button', { name: 'Allow once', exact: true }).waitFor();
  await yard.stop('SIGKILL');
  await page.getByText('Offline.', { exact: true }).waitFor();
  // The data stays, and an answer is not queued.
  await page.getByRole('button', { name: /Allow once: offline/ }).waitFor();
  // A page that was not fetched before says so, and the tab does not load itself into an error page.
  await page.getByRole('link', { name: /^Tools/ }).first().click();
  await page.getByText('This page was not opened before the connection was lost.').waitFor();
  await page.getByRole('link', { name: /^Now/ }).first().click();
  await page.getByRole('button', { name: /Allow once: offline/ }).waitFor();
  await page.getByRole('link', { name: /^Tools/ }).first().click();
  await yard.start();
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached', timeout: 60_000 });
  const open = await yard.cli('approvals', 'list');
  assert.deepEqual(open.approvals.map((each) => each.id), [id], 'the question survived');
  await page.getByText(/^\d+ tools from/).waitFor();
  await page.getByRole('link', { name: /^Now/ }).first().click();
  await page.getByRole('button', { name: 'Allow once', exact: true }).click();
  await eventually(async () => (await yard.cli('approvals', 'show', id)).approval.answer?.decision === 'allow-once', 'the answer');
  const again = await yard.call('vault.patchFile', PATCH, { idempotencyKey: 'winter-1' });
  assert.equal(again.ok, true, JSON.stringify(again).slice(0, 400));
  assert.equal(yard.read('Projects/Garden.md').match(/winter rest/g).length, 1);
  assert.deepEqual(problems, []);
}

async function settled(yard) {
  const { page, problems } = await paired(yard);
  const log = join(yard.folder, 'log.txt');
  await eventually(async () => (await yard.cli('tools', 'list')).tools.some((tool) => tool.name === 'log__append'), 'the tool of the server', 60_000);
  const choices = [
    { button: 'It happened, go on', word: 'Finished', kept: ['line 1', 'after line 1'] },
    { button: 'It did not, do it again', word: 'Finished', kept: ['line 2', 'line 2', 'after line 2'] },
    { button: 'End the run', word: 'Cancelled', kept: ['line 3'] },
  ];
  for (const [at, { button, word, kept }] of choices.entries()) {
    const text = `line ${at + 1}`;
    const begun = lines(log).length;
    const plan = { version: '1.0', goal: `Keep ${text}`, riskLevel: 'writes', steps: [{ id: 'first', tool: 'log__append', args: { text } }, { id: 'second', tool: 'log__append', args: { text: `after ${text}` }, dependsOn: ['first'] }] };
    writeFileSync(`${log}.hold`, '');
    await runFromPage(yard, page, plan);
    await eventually(() => lines(log).includes(text), 'the call has had its effect');
    await yard.stop('SIGKILL');
    // Nobody can say whether the call happened: the run waits for somebody who looks.
    rmSync(`${log}.hold`);
    await yard.start();
    await page.getByText('1 call in doubt').waitFor({ timeout: 60_000 });
    await page.getByText('Paused').or(page.getByText('In doubt')).first().waitFor();
    assert.equal(lines(log).length, begun + 1, 'nothing goes on by itself');
    await page.getByRole('button', { name: button }).click();
    await page.locator('.head').getByText(word, { exact: true }).waitFor({ timeout: 60_000 });
    assert.deepEqual(lines(log).slice(begun), kept, button);
  }
  assert.deepEqual(problems, []);
}

async function offline(yard) {
  const door = await Door.before(yard);
  // A question needs somebody who can be reached.
  await paired(yard);
  const { page, problems } = await paired(door);
  const frames = framesOf(page);
  await page.goto(`${door.url}/runs`);
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  const read = async (path) => (await yard.cli('call', 'vault.readFile', '--args', JSON.stringify({ path }))).runId;
  const first = await read('Welcome.md');
  await page.locator(`a[href="/runs/${first}"]`).waitFor({ state: 'attached' });
  await door.shut();
  await page.getByText('Offline.', { exact: true }).waitFor();
  const until = Date.now() + OFFLINE_MS;
  const missed = [];
  for (let count = 0; count < 12; count += 1) missed.push(await read(['Welcome.md', 'Notes/Compost.md', 'Notes/Watering.md'][count % 3]));
  const { id } = await question(yard);
  // A question that is asked and answered meanwhile is not shown as open afterwards.
  const settled = await question(yard, { path: 'Notes/Gone.md', content: 'x' }, 'vault.createFile');
  await yard.cli('approvals', 'deny', settled.id);
  assert.equal(frames.sockets().closed, frames.sockets().opened, 'the socket is cut');
  const before = frames.feed().at(-1);
  assert.equal(await page.getByText('Offline.', { exact: true }).count(), 1, 'the page stays offline');
  assert.equal(await page.locator(`a[href="/runs/${missed[0]}"]`).count(), 0, 'nothing came through');
  await sleep(until - Date.now());
  // The pages of the list, not the runs that are under way, which the navigation counts.
  const fetched = () => frames.sent('runs.list').filter((each) => each.params.limit === 200).length;
  const asked = fetched();
  await door.open();
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached', timeout: 30_000 });
  for (const each of missed) await page.locator(`a[href="/runs/${each}"]`).waitFor({ state: 'attached' });
  for (const each of [first, ...missed]) assert.equal(await page.locator(`a[href="/runs/${each}"]`).count(), 1, 'each run once');
  // The numbers of the feed go on where they stopped: nothing is missing, nothing comes twice, and no list was fetched.
  const missedNumbers = frames.newestFeed();
  assert.equal(missedNumbers[0], before + 1, 'the new connection begins where the old one ended');
  assert.ok(missedNumbers.length >= missed.length, `${missedNumbers.length} items for ${missed.length} runs`);
  const numbers = frames.feed();
  assert.deepEqual(numbers, Array.from(numbers, (_, at) => numbers[0] + at), 'the feed has no gap');
  assert.equal(frames.answers('console.subscribe').at(-1)?.resumed, true);
  assert.equal(fetched(), asked, 'the list was not fetched again');
  await page.getByRole('link', { name: /^Now/ }).first().click();
  await page.locator(`a[href="/approve/${encodeURIComponent(id)}"]`).first().waitFor({ state: 'attached' });
  assert.equal(await page.locator(`a[href="/approve/${encodeURIComponent(settled.id)}"]`).count(), 0, 'an answered question is not open');
  assert.deepEqual(problems, []);
  await door.shut();
}

async function idle(yard) {
  const { page, problems } = await paired(yard);
  const frames = framesOf(page);
  await page.goto(`${yard.url}/runs`);
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  await sleep(3000);
  const before = frames.count();
  await sleep(IDLE_MS);
  // A tenth of the ten minutes, so a tenth of the 20 frames; the whole is measured by `make console-bench`.
  assert.ok(frames.count() - before <= 2, `${frames.names().slice(before).join(' ')} in ${IDLE_MS / 1000} s`);
  assert.deepEqual(problems, []);
}

export const flows = [
  { number: 12, name: 'kill -9 of the server during a run: it goes on, nothing happens twice', drive: killed },
  { number: 12.5, name: 'kill -9 while a question is open: it survives and is answered once', drive: questionSurvives },
  { number: 13, name: 'offline for 60 s, no event is missing', drive: offline, waits: true },
  { number: 19, name: 'a paused run is settled, in each of three ways', drive: settled, config: withLog },
  { number: 30, name: 'an idle tab is quiet', drive: idle, waits: true, config: '' },
];
