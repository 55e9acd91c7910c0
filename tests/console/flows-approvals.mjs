// Questions: answered by keyboard, by thumb, by two people, too late, many at once.
import assert from 'node:assert/strict';
import { paired, PHONE } from './browser.mjs';
import { question } from './seed.mjs';
import { eventually, sleep } from './yard.mjs';

const approve = (yard, id) => `${yard.url}/approve/${encodeURIComponent(id)}`;

async function keyboard(yard) {
  const { page, problems } = await paired(yard);
  const { answer } = await question(yard);
  // The question appears by itself, with its diff.
  await page.getByRole('button', { name: 'Allow once', exact: true }).waitFor();
  await page.getByText('winter rest').first().waitFor();
  await sleep(400);
  await page.keyboard.press('a');
  const result = await answer;
  assert.equal(result.ok, true, JSON.stringify(result).slice(0, 400));
  assert.match(yard.read('Projects/Garden.md'), /winter rest/);
  await eventually(async () => (await page.getByRole('button', { name: 'Allow once', exact: true }).count()) === 0, 'the question leaves');
  assert.deepEqual(problems, []);
}

async function armed(yard) {
  const { page } = await paired(yard);
  const { id } = await question(yard);
  await page.getByRole('button', { name: 'Allow once', exact: true }).waitFor();
  // A key that was on its way to something else does not answer a question that has just appeared.
  await page.evaluate(() => dispatchEvent(new KeyboardEvent('keydown', { key: 'a' })));
  await page.goto(approve(yard, id));
  await page.getByRole('button', { name: 'Deny', exact: true }).waitFor();
  await sleep(400);
  await page.getByRole('button', { name: 'Deny', exact: true }).click();
  await page.getByText('You answered: denied.').waitFor();
  assert.doesNotMatch(yard.read('Projects/Garden.md'), /winter rest/);
}

async function phone(yard) {
  const { page, problems } = await paired(yard, { size: PHONE, touch: true });
  const { id, answer } = await question(yard);
  await page.goto(approve(yard, id));
  const allow = page.getByRole('button', { name: 'Allow once', exact: true });
  await allow.waitFor();
  for (const button of [allow, page.getByRole('button', { name: 'Deny', exact: true })]) {
    const box = await button.boundingBox();
    assert.ok(box && box.height >= 44, `a target of ${box?.height} px`);
    assert.ok(box.y > PHONE.height / 2 && box.y + box.height <= PHONE.height, 'within reach of a thumb');
  }
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  await sleep(400);
  await allow.tap();
  assert.equal((await answer).ok, true);
  await page.getByText('You answered: allowed once.').waitFor();
  assert.deepEqual(problems, []);
}

async function two(yard) {
  const first = await paired(yard);
  const second = await paired(yard);
  const { id, answer } = await question(yard);
  await Promise.all([first.page.goto(approve(yard, id)), second.page.goto(approve(yard, id))]);
  const allow = first.page.getByRole('button', { name: 'Allow once', exact: true });
  const deny = second.page.getByRole('button', { name: 'Deny', exact: true });
  await Promise.all([allow.waitFor(), deny.waitFor()]);
  await sleep(400);
  // Both fingers come down together. One answer counts, and the other browser is told whose.
  await Promise.all([allow.click(), deny.click()]);
  const settled = (await eventually(async () => {
    const { approval } = await yard.cli('approvals', 'show', id);
    return approval.answer && approval;
  }, 'the answer')).answer;
  const isAllowed = settled.decision === 'allow-once';
  const [winner, loser] = isAllowed ? [first.page, second.page] : [second.page, first.page];
  const word = isAllowed ? 'allowed once' : 'denied';
  await winner.getByText(`You answered: ${word}.`).waitFor();
  await loser.getByText(`Already answered: ${word}.`).waitFor();
  await loser.getByText(new RegExp(`By ${settled.by}, in the console, \\d\\d:\\d\\d:\\d\\d`)).waitFor();
  assert.equal(await loser.getByRole('button', { name: 'Allow once', exact: true }).count(), 0);
  assert.equal((await answer).ok === true, isAllowed);
  assert.equal(/winter rest/.test(yard.read('Projects/Garden.md')), isAllowed);
}

async function expires(yard) {
  const { page } = await paired(yard);
  const { id } = await question(yard);
  await page.goto(approve(yard, id));
  await page.getByRole('button', { name: 'Allow once', exact: true }).waitFor();
  await page.getByText(/This question (expired|ended)/).waitFor({ timeout: 40_000 });
  assert.equal(await page.getByRole('button', { name: 'Allow once', exact: true }).count(), 0);
  // The finger was on its way: the key does nothing any more, and the server keeps that nobody answered.
  await page.keyboard.press('a');
  await sleep(500);
  const { approval } = await yard.cli('approvals', 'show', id);
  assert.equal(approval.answer?.by ?? null, null, JSON.stringify(approval.answer));
  assert.doesNotMatch(yard.read('Projects/Garden.md'), /winter rest/);
}

async function grants(yard) {
  const { page, problems } = await paired(yard);
  const made = [];
  for (const name of ['one', 'two', 'three']) made.push(await question(yard, { path: `Notes/New ${name}.md`, content: `# ${name}\n` }, 'vault.createFile'));
  await page.goto(approve(yard, made[0].id));
  await page.getByRole('heading', { name: '2 like this' }).waitFor();
  await page.getByLabel('Answer all 3 the same way').check();
  await page.getByRole('radio', { name: /1 h/ }).check();
  await sleep(400);
  await page.getByRole('button', { name: 'Allow for 1 h' }).click();
  for (const { answer } of made) assert.equal((await answer).ok, true);
  // While the grant holds, the next call does not ask.
  assert.equal((await yard.call('vault.createFile', { path: 'Notes/New four.md', content: 'x' })).ok, true);
  await page.goto(`${yard.url}/settings/grants`);
  const revoke = page.getByRole('button', { name: /^Revoke/ });
  await revoke.first().waitFor();
  const count = await revoke.count();
  for (let left = count; left > 0; left -= 1) {
    await revoke.first().click();
    await eventually(async () => (await revoke.count()) === left - 1, 'the revoked grant leaves');
  }
  const again = await question(yard, { path: 'Notes/New five.md', content: 'x' }, 'vault.createFile');
  await yard.cli('approvals', 'deny', again.id);
  assert.deepEqual(problems, []);
}

export const flows = [
  { number: 6, name: 'approve by keyboard', drive: keyboard },
  { number: 6.5, name: 'a question that has just appeared is not answered; deny', drive: armed },
  { number: 7, name: 'approve at 390 px', drive: phone },
  { number: 8, name: 'two browsers answer, the second sees who won', drive: two },
  { number: 9, name: 'a question expires under the finger', drive: expires, config: '[policy.approval]\ntimeoutMs = 6000\n' },
  { number: 10, name: 'batch, a grant of one hour, revoke', drive: grants },
];
