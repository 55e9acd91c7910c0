// Knowledge, large and hostile data, zoom, an upgrade, accessibility.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { axe, DESK, paired, PHONE, TABLET } from './browser.mjs';
import { plan, question, SERVER } from './seed.mjs';
import { LIMITS, listTools, longStore, RUNS } from './store.mjs';
import { eventually, sleep } from './yard.mjs';

async function memory(yard) {
  const { page, problems } = await paired(yard);
  await yard.cli('call', 'memory_store', '--args', JSON.stringify({ text: 'I prefer tea, and meetings before eleven.' }));
  await page.goto(`${yard.url}/memory`);
  await page.getByText(/meetings before eleven/).first().waitFor();
  const forget = page.getByRole('button', { name: /^Forget…/ });
  while ((await forget.count()) > 0) {
    const before = await forget.count();
    await forget.first().click();
    await page.getByRole('button', { name: 'Forget it' }).click();
    await eventually(async () => (await forget.count()) < before, 'it leaves the list');
  }
  await yard.stop();
  await yard.start();
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached', timeout: 60_000 });
  await page.reload();
  await page.getByText(/Nothing is remembered yet/).waitFor();
  assert.deepEqual(problems, []);
}

async function why(yard) {
  const { page, problems } = await paired(yard);
  mkdirSync(join(yard.vault, 'Private'));
  yard.write('Private/Pear.md', '# Pear\nThe old pear tree was pruned in February.\n');
  await page.goto(`${yard.url}/why?q=${encodeURIComponent('when was the pear tree pruned')}&expect=${encodeURIComponent('Private/Pear.md')}`);
  const steps = page.getByRole('list', { name: 'Steps to an answer' });
  await steps.waitFor({ timeout: 60_000 });
  // It exists; the first step that fails says why it is not found.
  assert.match(await steps.getByRole('listitem').first().innerText(), /Exists/);
  assert.equal(await steps.locator('li.ok').filter({ hasText: 'Exists' }).count(), 1);
  assert.match(await steps.locator('li.stop').first().innerText(), /Allowed|Indexed/);
  assert.equal(await page.locator('.hit.ghosted').count(), 0, 'it is not among what was found');
  assert.deepEqual(problems, []);
}

async function many(yard) {
  const { page, problems } = await paired(yard);
  const rows = page.locator('.runs-list [role=row]');
  const said = () => page.locator('.head .sub').textContent();
  await page.goto(`${yard.url}/runs`);
  await rows.nth(5).waitFor();
  // Further rows come as they are scrolled to, and few are in the document.
  let most = 0;
  for (let step = 0; step < 12; step += 1) {
    await page.mouse.move(700, 500);
    await page.mouse.wheel(0, 20_000);
    await sleep(150);
    most = Math.max(most, await rows.count());
  }
  assert.ok(most <= 60, `${most} rows in the document`);
  // The header counts all of them, whether they are in the list already or not.
  assert.match(await said(), new RegExp(`^${RUNS.toLocaleString('en-GB')} runs`));
  const height = () => page.locator('.runs-list .virtual').evaluate((body) => body.clientHeight);
  await eventually(async () => (await height()) >= 1000 * 28, 'more of the list');
  // The first of all runs is found by its text, among all of them.
  await page.getByLabel('Search runs').fill('A long run');
  await page.getByRole('link', { name: 'A long run' }).waitFor({ timeout: 120_000 });
  // A path finds the runs that were about it.
  await page.getByLabel('Search runs').fill('Missing/99950.md');
  await page.getByRole('link', { name: /vault_readFile Missing\/99950\.md/ }).waitFor({ timeout: 120_000 });
  await page.getByLabel('Search runs').fill('');
  await page.waitForURL((url) => !url.search.includes('q='));
  await rows.nth(5).waitFor();
  // All of them, and a frame of scrolling stays short enough for the hand.
  const download = page.waitForEvent('download', { timeout: 600_000 });
  await page.getByRole('button', { name: /^Export/ }).click();
  await (await download).cancel();
  assert.match(await said(), new RegExp(`^${RUNS.toLocaleString('en-GB')} runs`));
  await page.keyboard.press('End');
  await page.getByRole('link', { name: 'A long run' }).waitFor();
  assert.ok((await rows.count()) <= 60);
  // A run that begins now is on top, whatever the length of the list.
  await page.mouse.move(5, 5);
  await page.keyboard.press('Home');
  const { runId } = await yard.cli('call', 'vault.readFile', '--args', '{"path":"Welcome.md"}');
  await page.locator(`a[href="/runs/${runId}"]`).waitFor();
  assert.deepEqual(problems, []);
}

async function large(yard) {
  const { page, problems } = await paired(yard);
  yard.write('Notes/Large.md', `# Large\n${'A line of a long note that nobody reads to its end.\n'.repeat(100_000)}`);
  const result = await yard.cli('call', 'vault.readFile', '--args', JSON.stringify({ path: 'Notes/Large.md', maxBytes: 8_000_000 }));
  assert.ok(JSON.stringify(result).length > 4_000_000);
  await page.goto(`${yard.url}/runs/${result.runId}?call=3`);
  await page.getByRole('heading', { name: /^Record 3/ }).waitFor();
  await page.getByRole('link', { name: 'Now', exact: true }).or(page.getByRole('link', { name: /^Now/ }).first()).first().click();
  await page.getByRole('heading', { name: 'Now', exact: true }).waitFor({ timeout: 5000 });
  assert.deepEqual(problems, []);
}

/** A name that is markup, and that reads backwards from its middle on. */
const HOSTILE = '<img src=x onerror=alert(1)>\u202Egpj';
const SCRIPT = '<script>alert("note")</script>';

/** Names that others choose, each hostile. Those of channels and servers are checked by the configuration, not their addresses. */
function hostileConfig(yard) {
  const tools = [
    { name: 'fine', description: `${SCRIPT} ${HOSTILE} {{constructor.constructor("alert(1)")()}}`, inputSchema: { type: 'object', properties: { [HOSTILE]: { type: 'string', description: SCRIPT } } } },
    { name: HOSTILE, description: 'x', inputSchema: { type: 'object' } },
  ];
  writeFileSync(join(yard.folder, 'tools.json'), JSON.stringify(tools));
  return `[policy.approval]
timeoutMs = 600000

[notify]
privateHosts = ["127.0.0.1"]

[notify.channels.phone]
kind = "ntfy"
url = ${JSON.stringify(`http://127.0.0.1:9/${SCRIPT}${HOSTILE}`)}

[mcp.servers.strange]
command = "node"
args = ${JSON.stringify([SERVER, join(yard.folder, 'tools.json'), join(yard.folder, 'log.txt')])}
`;
}

async function hostile(yard) {
  const content = `${SCRIPT}\nملاحظات الشتاء\n{{constructor.constructor("alert(1)")()}}\n`;
  const { context, page, problems } = await paired(yard);
  let dialogs = 0;
  context.on('dialog', (dialog) => {
    dialogs += 1;
    void dialog.dismiss();
  });
  await eventually(async () => (await yard.cli('tools', 'list')).tools.some((tool) => tool.name === 'strange__fine'), 'the tool of the server', 60_000);
  await listTools(yard);
  await yard.cli('call', 'memory_store', '--args', JSON.stringify({ text: `${SCRIPT} ${HOSTILE}` }));
  const { runId } = await yard.cli('plan', 'run', goalFile(yard), '--yes');
  const { id } = await question(yard, { path: `Notes/${HOSTILE}.md`, content }, 'vault.createFile');
  // Every page that shows a name somebody else chose, in both themes and at three widths.
  const paths = ['/', `/approve/${encodeURIComponent(id)}`, '/runs', `/runs/${runId}`, '/tools', '/tools?q=alert', '/tools/strange__fine', '/memory', '/connect', '/servers/strange', '/settings/notifications', '/settings/policy', '/settings/grants', '/settings/devices', '/settings/logs'];
  const found = [];
  for (const size of [DESK, TABLET, PHONE]) {
    for (const theme of ['light', 'dark']) {
      await page.setViewportSize(size);
      await page.emulateMedia({ colorScheme: theme });
      for (const path of paths) {
        await page.goto(yard.url + path);
        await page.getByRole('heading', { level: 1 }).first().waitFor();
        await sleep(500);
        // Markup stays text: no element that it names, no character that turns the text around it.
        const made = await page.evaluate(() => ({ elements: document.querySelectorAll('main img, main script, main iframe').length, turned: /[\u202A-\u202E\u2066-\u2069]/.test(document.querySelector('main')?.textContent ?? ''), wide: document.documentElement.scrollWidth > innerWidth }));
        if (made.elements > 0 || made.turned || made.wide) found.push(`${path} ${size.width} ${theme}: ${JSON.stringify(made)}`);
        for (const each of await axe(page)) found.push(`${path} ${size.width} ${theme}: ${each}`);
      }
    }
  }
  assert.deepEqual(found, []);
  await page.setViewportSize(DESK);
  await page.goto(`${yard.url}/approve/${encodeURIComponent(id)}`);
  await page.getByText(SCRIPT).first().waitFor();
  await page.getByText('U+202E').first().waitFor();
  await sleep(400);
  await page.getByRole('button', { name: 'Deny', exact: true }).click();
  await page.getByText('You answered: denied.').waitFor();
  // Toolyard takes such characters out of what servers say before anybody sees it; markup stays, as text.
  await page.goto(`${yard.url}/tools/strange__fine`);
  await page.getByText(/<script>alert/).first().waitFor();
  // A page that tries to write markup is stopped by Trusted Types, whoever's text it is.
  const refused = await page.evaluate(() => {
    try {
      document.body.insertAdjacentHTML('beforeend', '<b>x</b>');
      return '';
    } catch (error) {
      return error.name;
    }
  });
  assert.equal(refused, 'TypeError');
  assert.equal(dialogs, 0);
  // The attempt above is the only report.
  assert.ok(problems.length > 0 && problems.every((each) => /require-trusted-types-for|TrustedHTML/.test(each)), problems.join('\n'));
}

/** A plan whose goal is hostile. */
function goalFile(yard) {
  const file = join(yard.folder, 'goal.json');
  writeFileSync(file, JSON.stringify({ version: '1.0', goal: `${SCRIPT} ${HOSTILE}`, riskLevel: 'read-only', steps: [{ id: 'read', tool: 'vault.readFile', args: { path: 'Welcome.md' } }] }));
  return file;
}

async function zoom(yard) {
  // A window of 1440 px at 200 % is one of 720 px to the page; 320 px is the narrowest that must not scroll sideways.
  // A question needs somebody who can be reached.
  await paired(yard);
  const { id } = await question(yard);
  for (const width of [720, 320]) {
    const { page, context } = await paired(yard, { size: { width, height: 700 } });
    for (const path of ['/', '/runs', `/approve/${encodeURIComponent(id)}`, '/tools', '/notes', '/memory', '/why', '/connect', '/settings/policy', '/settings/devices', '/settings/notifications', '/plans/new']) {
      await page.goto(yard.url + path);
      await page.getByRole('heading', { level: 1 }).first().waitFor();
      await sleep(500);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, `${path} at ${width} px scrolls sideways`);
    }
    await context.close();
  }
}

async function upgrade(yard) {
  const { page } = await paired(yard);
  let build = '';
  await page.routeWebSocket(/\/console\/socket$/, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((message) => {
      const value = JSON.parse(message);
      if (build && value.payload?.console) value.payload.console = build;
      socket.send(JSON.stringify(value));
    });
  });
  await page.goto(`${yard.url}/settings/browser`);
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  await page.evaluate(() => (globalThis.old = true));
  // The server is upgraded: it carries another console.
  build = 'another';
  await yard.stop();
  await yard.start();
  await eventually(async () => (await page.evaluate(() => globalThis.old).catch(() => true)) === undefined, 'the old tab loads itself anew', 60_000);
}

async function accessible(yard) {
  const { runId } = await plan(yard, 'patch-front-matter.json');
  // A question needs somebody who can be reached.
  await paired(yard);
  const { id } = await question(yard);
  const paths = ['/', `/approve/${encodeURIComponent(id)}`, '/runs', `/runs/${runId}`, `/runs/${runId}/undo`, '/plans/new', '/tools', '/tools/vault.patchFile', '/notes', '/memory', '/traces', '/why', '/connect', '/servers/calendar', '/settings/policy', '/settings/devices', '/settings/grants', '/settings/notifications', '/settings/logs', '/settings/doctor', '/settings/browser', '/more'];
  const found = [];
  for (const size of [DESK, TABLET, PHONE]) {
    for (const theme of ['light', 'dark']) {
      const { page, context, problems } = await paired(yard, { size, theme });
      for (const path of paths) {
        await page.goto(yard.url + path);
        await page.getByRole('heading', { level: 1 }).first().waitFor();
        await sleep(600);
        for (const each of await axe(page)) found.push(`${path} ${size.width} ${theme}: ${each}`);
      }
      found.push(...problems);
      await context.close();
    }
  }
  assert.deepEqual(found, []);
}

export const flows = [
  { number: 22, name: 'Why for a note that is not indexed', drive: why, config: '[knowledge.indexing]\ndenyFolders = ["Private"]\n' },
  { number: 23, name: 'a memory forgotten, gone after a restart', drive: memory },
  { number: 24, name: 'a list of 100,000 runs', drive: many, config: LIMITS, home: longStore },
  { number: 25, name: 'a result of 5 MB', drive: large },
  { number: 26, name: 'hostile names, right-to-left text, script tags', drive: hostile, config: hostileConfig },
  { number: 27, name: 'zoom 200 %', drive: zoom },
  { number: 28, name: 'an old tab after an upgrade loads itself anew', drive: upgrade },
  { number: 29, name: 'axe: every page, both themes, three widths', drive: accessible },
];
