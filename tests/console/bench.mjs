// Measures the console's bars in a real browser and prints a JSON line for each, with its target. The long list and the long
// run are served by this program in place of the server, frame by frame as the server would: the bars are the browser's.
import { closeBrowser, paired } from './browser.mjs';
import { question } from './seed.mjs';
import { eventually, sleep, Yard } from './yard.mjs';

const RUNS = 100_000;
const CALLS = 30_000;
const QUESTIONS = Number(process.env.QUESTIONS ?? 12);
const IDLE_SECONDS = Number(process.env.IDLE_SECONDS ?? 60);
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

const hex = (number, digits) => number.toString(16).padStart(digits, '0');
const runId = (number) => `019a8f02-0000-7000-8000-${hex(number, 12)}`;

function runRow(number) {
  const at = Date.now() - (RUNS - number) * 60_000;
  const status = number % 50 === 0 ? 'failed' : 'finished';
  return { runId: runId(number), kind: number % 3 ? 'plan' : 'call', status, title: `Run ${number} of a long list`, startedAt: new Date(at).toISOString(), endedAt: new Date(at + 900).toISOString(), durationMs: 900, agent: `agent-${number % 7}`, door: 'gateway', calls: number % 40, failed: 0, changed: number % 5, tools: [] };
}

/** Answers some methods in the place of the server. */
async function inPlaceOf(page, answers) {
  await page.routeWebSocket(/\/console\/socket$/, (socket) => {
    const server = socket.connectToServer();
    socket.onMessage((message) => {
      const value = JSON.parse(message);
      const answer = answers[value.method];
      if (answer) socket.send(JSON.stringify({ type: 'res', id: value.id, ok: true, payload: answer(value.params) }));
      else server.send(message);
    });
    server.onMessage((message) => socket.send(message));
  });
}

async function longList(yard) {
  const { page, context } = await paired(yard);
  await inPlaceOf(page, {
    'runs.list': ({ before, limit = 200, status }) => {
      if (status?.length) return { runs: [] };
      const from = before ? Number.parseInt(before.slice(-12), 16) - 1 : RUNS;
      const runs = [];
      // The whole list in few answers: the bar is about drawing it.
      for (let number = from; number > Math.max(0, from - Math.max(limit, 20_000)); number -= 1) runs.push(runRow(number));
      const last = Math.max(0, from - Math.max(limit, 20_000));
      return { runs, next: last > 0 ? runId(last + 1) : null };
    },
  });
  await page.goto(`${yard.url}/runs`);
  await page.getByRole('row').nth(5).waitFor();
  await eventually(async () => {
    await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
    return /^100,000 runs/.test((await page.locator('.head .sub').textContent()) ?? '');
  }, 'all rows are there', 60_000);
  const session = await context.newCDPSession(page);
  // Time of the thread, not of the wall clock: other work of the machine does not count.
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const work = async () => {
    const { metrics } = await session.send('Performance.getMetrics');
    return ['ScriptDuration', 'LayoutDuration', 'RecalcStyleDuration'].reduce((sum, name) => sum + metrics.find((each) => each.name === name).value, 0) * 1000;
  };
  const frames = [];
  let rows = 0;
  await page.evaluate(() => scrollTo(0, 0));
  for (let step = 0; step < 200; step += 1) {
    const before = await work();
    await page.evaluate((by) => new Promise((resolve) => {
      scrollBy(0, by);
      requestAnimationFrame(() => requestAnimationFrame(resolve));
    }), step % 10 === 9 ? 200_000 : 700);
    frames.push((await work()) - before);
    rows = Math.max(rows, await page.locator('.runs-list [role=row]').count());
  }
  if (process.env.VERBOSE) console.error([...frames].sort((a, b) => a - b).map((each) => each.toFixed(1)).filter((_, at) => at % 10 === 0).join(' '));
  print('list of 100,000 runs: main-thread work a frame, p95', p95(frames), 8, 'ms');
  print('list of 100,000 runs: row nodes', rows, 60, 'nodes');
  await context.close();
}

function record() {
  const at = Date.parse('2026-11-17T02:00:00Z');
  const frames = [{ kind: 1, kindName: 'run-started', value: { runId: runId(1), kind: 'plan', plan: { goal: 'A long run', steps: [] }, planHash: 'sha256:aa', policyHash: 'sha256:bb', caller: {}, startedAt: new Date(at).toISOString(), executorVersion: '1' } }];
  for (let call = 0; call < CALLS; call += 1) {
    const id = `call-${call}`;
    frames.push({ kind: 4, kindName: 'call', value: { c: id, s: `step-${call % 300}`, t: 'vault.readFile', n: 1, at: (at + call * 10) * 1000, r: 'read-only', h: 'x', a: { path: `Notes/Note ${call}.md` } } });
    frames.push({ kind: 5, kindName: 'result', value: { c: id, o: { st: 'ok', b: (at + call * 10) * 1000, us: 8000 } } });
  }
  frames.push({ kind: 12, kindName: 'finished', value: { at: new Date(at + CALLS * 10).toISOString(), status: 'finished', message: '' } });
  return frames.map(({ kind, kindName, value }, index) => ({ seq: index + 1, kind, kindName, payload: Buffer.from(JSON.stringify(value)).toString('base64'), chain: hex(index, 64) }));
}

async function longRun(yard) {
  const frames = record();
  const { page, context } = await paired(yard);
  await inPlaceOf(page, {
    'runs.record': ({ from = 1, limit = 500 }) => {
      const part = frames.slice(from - 1, from - 1 + limit);
      const next = from + part.length;
      return { runId: runId(1), genesis: hex(0, 64), frames: part, total: frames.length, next: next <= frames.length ? next : null, keys: [] };
    },
    'runs.subscribe': () => ({ ok: true, subscriptionId: 'none' }),
  });
  const begun = Date.now();
  await page.goto(`${yard.url}/runs/${runId(1)}`);
  await page.locator('.wf-row:not(.wf-head)').nth(10).waitFor();
  print('run with 30,000 calls: usable', (Date.now() - begun) / 1000, 1.5, 's');
  await eventually(async () => /30,000 calls/.test((await page.locator('#rec-h').textContent()) ?? ''), 'the whole record', 60_000);
  await page.evaluate(() => scrollTo(0, 300_000));
  await page.locator('.wf-row:not(.wf-head)').nth(5).waitFor();
  const session = await context.newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  print('run with 30,000 calls: heap', usedSize / 1e6, 150, 'MB');
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
  let frames = 0;
  page.on('websocket', (socket) => {
    socket.on('framereceived', () => (frames += 1));
    socket.on('framesent', () => (frames += 1));
  });
  await page.reload();
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  await sleep(3000);
  frames = 0;
  await sleep(IDLE_SECONDS * 1000);
  print(`idle tab: frames in 10 min (measured for ${IDLE_SECONDS} s)`, (frames * 600) / IDLE_SECONDS, 20, 'frames');
  await context.close();
}

const PARTS = { list: longList, run: longRun, questions, idle };
const wanted = process.env.BARS?.split(',') ?? Object.keys(PARTS);
const yard = await Yard.make('');
try {
  for (const part of wanted) await PARTS[part](yard);
} finally {
  await closeBrowser();
  await yard.remove();
}
process.exit(failed ? 1 : 0);
