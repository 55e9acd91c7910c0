// Servers, knowledge, large and hostile data, zoom, an upgrade, accessibility.
import assert from 'node:assert/strict';
import { axe, DESK, paired, PHONE, TABLET } from './browser.mjs';
import { plan, question } from './seed.mjs';
import { eventually, sleep } from './yard.mjs';

async function brokenServer(yard) {
  const { page, problems } = await paired(yard);
  await page.getByRole('heading', { name: 'Broken' }).waitFor({ timeout: 60_000 });
  await page.getByRole('link', { name: 'Look', exact: true }).click();
  await page.getByText(/refresh token expired/).first().waitFor();
  assert.deepEqual(problems, []);
}

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
  yard.write('Notes/Pear.md', '# Pear\nThe old pear tree was pruned in February.\n');
  await page.goto(`${yard.url}/why?q=${encodeURIComponent('when was the pear tree pruned')}&expect=${encodeURIComponent('Notes/Pear.md')}`);
  await page.getByRole('list', { name: 'Steps to an answer' }).waitFor({ timeout: 60_000 });
  const text = await page.getByRole('list', { name: 'Steps to an answer' }).innerText();
  assert.match(text, /Exists/);
  assert.match(text, /Indexed/);
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

async function hostile(yard) {
  const { page, problems } = await paired(yard);
  const path = 'Notes/<img src=x onerror=alert(1)>\u202Egpj.md';
  const content = '<script>alert("note")</script>\nملاحظات الشتاء\n{{constructor.constructor("alert(1)")()}}\n';
  let dialogs = 0;
  page.on('dialog', (dialog) => {
    dialogs += 1;
    void dialog.dismiss();
  });
  const { id } = await question(yard, { path, content }, 'vault.createFile').catch(() => question(yard, { path: 'Notes/<script>alert(1)</script>.md'.replaceAll('/', '').replace('Notes', 'Notes/'), content }, 'vault.createFile'));
  await page.goto(`${yard.url}/approve/${encodeURIComponent(id)}`);
  await page.getByRole('button', { name: 'Deny', exact: true }).waitFor();
  await page.getByText('<script>alert("note")</script>').first().waitFor();
  assert.equal(await page.locator('main img, main script').count(), 0);
  await sleep(400);
  await page.getByRole('button', { name: 'Deny', exact: true }).click();
  await page.goto(`${yard.url}/runs`);
  await page.getByRole('row').nth(1).waitFor();
  assert.equal(dialogs, 0);
  assert.deepEqual(problems, []);
}

async function zoom(yard) {
  // A window of 1440 px at 200 % is one of 720 px to the page; 320 px is the narrowest that must not scroll sideways.
  // A question needs somebody who can be reached.
  await paired(yard);
  await question(yard);
  for (const width of [720, 320]) {
    const { page, context } = await paired(yard, { size: { width, height: 700 } });
    for (const path of ['/', '/runs', '/tools', '/connect', '/settings/policy', '/plans/new']) {
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
  { number: 20, name: 'a broken server, its stderr', drive: brokenServer },
  { number: 22, name: 'Why for a note that is not indexed', drive: why },
  { number: 23, name: 'a memory forgotten, gone after a restart', drive: memory },
  { number: 25, name: 'a result of 5 MB', drive: large },
  { number: 26, name: 'hostile names, right-to-left text, script tags', drive: hostile },
  { number: 27, name: 'zoom 200 %', drive: zoom },
  { number: 28, name: 'an old tab after an upgrade loads itself anew', drive: upgrade },
  { number: 29, name: 'axe: every page, both themes, three widths', drive: accessible },
];
