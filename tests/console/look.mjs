// Takes a picture of every page, in both themes and at three widths, into the folder LOOK, and runs axe on each. DATA says
// what there is to see: `none` (a new home), `little` (the default), or `much` (100,000 runs and 30 questions). ONLY, SIZES and
// THEMES name some of the pages, widths and themes.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { axe, closeBrowser, DESK, paired, PHONE, TABLET } from './browser.mjs';
import { CONFIG, question, runs } from './seed.mjs';
import { LIMITS, longRunIn, longStore } from './store.mjs';
import { sleep, Yard } from './yard.mjs';

const OUT = process.env.LOOK ?? '/tmp/console-look';
mkdirSync(OUT, { recursive: true });
const only = process.env.ONLY?.split(',');
const data = process.env.DATA ?? 'little';
const yard = await (data === 'none' ? Yard.make('') : data === 'much' ? Yard.make(LIMITS + CONFIG, longStore) : Yard.make(CONFIG));
let bad = 0;

/** Fills the home; gives the ids of a run and a question to look at. */
async function fill() {
  if (data === 'none') return { run: 'none', id: 'none' };
  const made = await runs(yard);
  // A question needs somebody who can be reached.
  await paired(yard);
  const { id } = await question(yard);
  await question(yard, { path: 'Notes/Compost.md', content: '# Compost\nTurn it in March.\n' }, 'vault.writeFile');
  for (let at = 0; data === 'much' && at < 28; at += 1) await question(yard, { path: `Notes/Seed ${at}.md`, content: `# Seed ${at}\n` }, 'vault.createFile');
  await yard.cli('call', 'memory_store', '--args', JSON.stringify({ text: 'I prefer tea, and meetings before eleven. Frost dates come from the sensor on the shed.' })).catch(() => null);
  return { run: data === 'much' ? longRunIn(yard) : made['patch-front-matter.json'], id };
}

try {
  const { run, id } = await fill();
  const pages = {
    now: '/', approve: `/approve/${encodeURIComponent(id)}`, runs: '/runs', run: `/runs/${run}`, undo: `/runs/${run}/undo`, plans: '/plans/new', fork: `/plans/new?from=${run}`,
    tools: '/tools', toolsearch: '/tools?q=rename+a+note', tool: '/tools/vault.patchFile', notes: '/notes', memory: '/memory', traces: '/traces', why: '/why?q=garden&expect=Projects%2FGarden.md',
    connect: '/connect', server: '/servers/calendar', policy: '/settings/policy', devices: '/settings/devices', grants: '/settings/grants', notifications: '/settings/notifications', logs: '/settings/logs',
    doctor: '/settings/doctor', browser: '/settings/browser', more: '/more', missing: '/settings/x/y',
  };
  for (const [sizeName, size, touch] of [['1440', DESK, false], ['390', PHONE, true], ['768', TABLET, false]].filter(([name]) => !process.env.SIZES || process.env.SIZES.split(',').includes(name))) {
    for (const theme of process.env.THEMES?.split(',') ?? ['light', 'dark']) {
      const { context, page, problems } = await paired(yard, { size, theme, touch });
      for (const [name, path] of Object.entries(pages)) {
        if (only && !only.includes(name)) continue;
        await page.goto(yard.url + path);
        await page.getByRole('heading', { level: 1 }).first().waitFor();
        await sleep(name === 'plans' || name === 'fork' ? 1500 : 700);
        if (name === 'run' && sizeName === '1440' && data === 'little') {
          await page.getByRole('button', { name: 'Verify' }).click();
          await sleep(800);
        }
        await page.screenshot({ path: join(OUT, `${name}-${sizeName}-${theme}.png`), fullPage: process.env.FULL === '1' });
        const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
        const found = await axe(page);
        for (const each of [...found, ...(wide ? ['it scrolls sideways'] : [])]) {
          bad += 1;
          console.log(`${name} ${sizeName} ${theme}: ${each}`);
        }
      }
      for (const each of problems) {
        bad += 1;
        console.log(`${sizeName} ${theme}: ${each}`);
      }
      await context.close();
    }
  }
} finally {
  await closeBrowser();
  await yard.remove();
}
console.log(bad === 0 ? 'every page: nothing found' : `${bad} findings`);
