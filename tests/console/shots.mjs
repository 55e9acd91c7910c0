// Takes the pictures in docs/images: Now, Approve on a phone, Run, Undo, Why and Connections, in light and dark.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { closeBrowser, DESK, paired, PHONE } from './browser.mjs';
import { CONFIG, question, runs } from './seed.mjs';
import { sleep, Yard } from './yard.mjs';

const OUT = join(process.env.CHECKOUT, 'docs/images');
mkdirSync(OUT, { recursive: true });
const yard = await Yard.make(CONFIG);
try {
  const made = await runs(yard);
  const run = made['notes-from-bullets.json'];
  // A question needs somebody who can be reached.
  await paired(yard);
  const { id } = await question(yard);
  const pages = [
    ['console-now', '/', DESK],
    ['console-approve', `/approve/${encodeURIComponent(id)}`, PHONE],
    ['console-run', `/runs/${run}`, DESK],
    ['console-undo', `/runs/${run}/undo`, DESK],
    ['console-why', `/why?q=${encodeURIComponent('how is the garden watered')}&expect=${encodeURIComponent('Notes/Watering.md')}`, DESK],
    ['console-connect', '/connect', DESK],
  ];
  for (const theme of ['light', 'dark']) {
    for (const [name, path, size] of pages) {
      const { context, page } = await paired(yard, { size, theme, touch: size === PHONE });
      await page.goto(yard.url + path);
      await page.getByRole('heading', { level: 1 }).first().waitFor();
      await sleep(1000);
      if (name === 'console-run') {
        await page.getByRole('button', { name: 'Verify' }).click();
        await page.getByText('Intact', { exact: true }).waitFor();
      }
      await sleep(name === 'console-why' ? 3000 : 500);
      await page.screenshot({ path: join(OUT, `${name}-${theme}.png`) });
      await context.close();
    }
  }
} finally {
  await closeBrowser();
  await yard.remove();
}
