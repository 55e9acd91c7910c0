// Measures the console's bars in a real browser and prints a JSON line for each, with its target. The long list and the long
// run come from a real server over a real store (store.mjs).
import { closeBrowser, framesOf, paired } from './browser.mjs';
import { question } from './seed.mjs';
import { CALLS, LIMITS, longRunIn, longStore, RUNS } from './store.mjs';
import { workPerFrame } from './trace.mjs';
import { eventually, sleep, Yard } from './yard.mjs';

const QUESTIONS = Number(process.env.QUESTIONS ?? 12);
const IDLE_SECONDS = Number(process.env.IDLE_SECONDS ?? 600);
let failed = false;

function print(bar, value, target, unit) {
  const ok = value <= target;
  failed ||= !ok;
  console.log(JSON.stringify({ bar, value: Math.round(value * 100) / 100, target, unit, ok }));
}

function p95(list) {
  const sorted = [...list].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.95))];
}

const number = (n) => n.toLocaleString('en-GB');

async function longList(yard) {
  const { page, context } = await paired(yard);
  await page.goto(`${yard.url}/runs`);
  const first = page.locator('.runs-list [role=row]').nth(5);
  const begun = Date.now();
  await first.waitFor();
  if (process.env.VERBOSE) console.error(`first page of the list: ${Date.now() - begun} ms`);
  // An export fetches every page; afterwards all rows are in the list.
  const download = page.waitForEvent('download', { timeout: 600_000 });
  await page.getByRole('button', { name: /^Export/ }).click();
  await (await download).cancel();
  const said = await page.locator('.head .sub').textContent();
  if (!said?.startsWith(`${number(RUNS)} runs`)) throw new Error(`the list says ${said}`);
  await page.mouse.move(700, 500);
  const work = await workPerFrame(context, page, async () => {
    // As a hand scrolls: 40 rows a second for a while, then in long throws, then to the ends of the list.
    for (let step = 0; step < 240; step += 1) {
      await page.mouse.wheel(0, step % 12 === 11 ? 60_000 : 240);
      await sleep(25);
    }
    for (const key of ['End', 'Home', 'PageDown', 'PageDown', 'End']) {
      await page.keyboard.press(key);
      await sleep(200);
    }
  });
  if (process.env.VERBOSE) console.error(`${work.length} frames: ${[0.5, 0.75, 0.9, 0.95, 0.99, 1].map((part) => [...work].sort((a, b) => a - b)[Math.min(work.length - 1, Math.floor(work.length * part))].toFixed(1)).join(' ')}`);
  print(`list of ${number(RUNS)} runs: main-thread work a frame, p95 of ${work.length} frames`, p95(work), 8, 'ms');
  let rows = 0;
  for (let at = 0; at < 40; at += 1) {
    await page.evaluate((part) => scrollTo(0, document.body.scrollHeight * part), at / 39);
    await sleep(50);
    rows = Math.max(rows, await page.locator('.runs-list [role=row]').count());
  }
  print(`list of ${number(RUNS)} runs: row nodes`, rows, 60, 'nodes');
  await context.close();
}

async function longRun(yard) {
  const { page, context } = await paired(yard);
  const begun = Date.now();
  await page.goto(`${yard.url}/runs/${longRunIn(yard)}`);
  await page.locator('.wf-row:not(.wf-head)').nth(3).waitFor();
  await page.getByRole('button', { name: 'Verify' }).click({ trial: true });
  print(`run with ${number(CALLS)} calls: usable`, (Date.now() - begun) / 1000, 1.5, 's');
  await eventually(async () => (await page.locator('#rec-h').textContent())?.includes(`${number(CALLS)} calls`), 'the whole record', 120_000);
  // The loop is one row; opened, all of its calls are rows.
  await page.locator('.wf-row').filter({ hasText: 'open' }).first().click();
  await page.evaluate(() => scrollTo(0, 300_000));
  await page.locator('.wf-row:not(.wf-head)').nth(5).waitFor();
  const session = await context.newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  print(`run with ${number(CALLS)} calls: heap`, usedSize / 1e6, 150, 'MB');
  await context.close();
}

async function questions(yard) {
  const { page, context } = await paired(yard);
  await page.evaluate(() => {
    globalThis.seen = {};
    new MutationObserver(() => {
      for (const each of document.querySelectorAll('.question .ask-line')) globalThis.seen[each.id.slice(2)] ??= Date.now();
    }).observe(document.body, { childList: true, subtree: true });
  });
  const visible = [];
  const durable = [];
  for (let number = 0; number < QUESTIONS; number += 1) {
    const { id, answer } = await question(yard, { path: `Notes/New ${number}.md`, content: 'x' }, 'vault.createFile');
    const allow = page.getByRole('button', { name: 'Allow once', exact: true });
    await allow.waitFor();
    const shown = await page.evaluate((wanted) => globalThis.seen[wanted], id);
    const { approval } = await yard.cli('approvals', 'show', id);
    visible.push(shown - Date.parse(approval.askedAt));
    await sleep(400);
    durable.push(await page.evaluate(() => new Promise((resolve) => {
      const begun = performance.now();
      const list = document.querySelector('.toasts');
      const watch = new MutationObserver(() => {
        if (!list?.textContent?.includes('Allowed once')) return;
        watch.disconnect();
        resolve(performance.now() - begun);
      });
      watch.observe(list, { childList: true, subtree: true, characterData: true });
      [...document.querySelectorAll('button')].find((button) => button.textContent?.startsWith('Allow once'))?.click();
    })));
    await answer;
    await page.evaluate(() => document.querySelectorAll('.toasts button').forEach((button) => button.click()));
  }
  print('question to visible, p95', p95(visible), 150, 'ms');
  print('tap to durable, p95', p95(durable), 200, 'ms');
  await context.close();
}

async function idle(yard) {
  const { page, context } = await paired(yard);
  const frames = framesOf(page);
  await page.goto(`${yard.url}/runs`);
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  await sleep(3000);
  const before = frames.count();
  await sleep(IDLE_SECONDS * 1000);
  const came = frames.names().slice(before);
  print(`idle tab: frames in ${IDLE_SECONDS} s`, came.length, Math.floor((20 * IDLE_SECONDS) / 600), 'frames');
  print('idle tab: lists fetched again', came.filter((name) => /\.list$/.test(name)).length, 0, 'fetches');
  await context.close();
}

const PARTS = { list: longList, run: longRun, questions, idle };
const NEEDS_STORE = new Set(['list', 'run']);
const wanted = process.env.BARS?.split(',') ?? Object.keys(PARTS);
// The idle tab has a Toolyard of its own, and its ten minutes pass beside the others.
const drive = async (parts, ...made) => {
  if (parts.length === 0) return;
  const yard = await Yard.make(...made);
  try {
    for (const part of parts) await PARTS[part](yard);
  } finally {
    await yard.remove();
  }
};
try {
  const quiet = drive(wanted.filter((part) => part === 'idle'), '');
  await drive(wanted.filter((part) => NEEDS_STORE.has(part)), LIMITS, longStore);
  await drive(wanted.filter((part) => part !== 'idle' && !NEEDS_STORE.has(part)), '');
  await quiet;
} finally {
  await closeBrowser();
}
process.exit(failed ? 1 : 0);
