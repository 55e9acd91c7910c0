// Something to look at: runs of the example plans, a question with its diff, a broken server, memories. Everything is done
// by the program itself; nothing is made up for the page.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { eventually } from './yard.mjs';

/** The MCP server of the flows (mcp-server.mjs). */
export const SERVER = fileURLToPath(new URL('mcp-server.mjs', import.meta.url));

export const CONFIG = `
[policy.approval]
timeoutMs = 600000

[mcp.servers.calendar]
command = "sh"
args = ["-c", "echo 'Error: refresh token expired' >&2; exit 1"]
`;

export const PATCH = {
  path: 'Projects/Garden.md',
  patch: {
    operations: [
      { op: 'replace', target: { type: 'frontmatter', key: 'status' }, value: 'winter rest' },
      { op: 'insert', target: { type: 'frontmatter', key: 'cover' }, value: 'straw, 8 cm' },
    ],
  },
};

export async function plan(yard, name) {
  return yard.cli('plan', 'run', join(process.env.CHECKOUT, 'examples/plans', name), '--yes');
}

/** Runs the example plans; gives the id of the run of each. */
export async function runs(yard) {
  const found = {};
  for (const name of ['read-summary.json', 'patch-front-matter.json', 'notes-from-bullets.json', 'rename-with-links.json']) {
    const report = await plan(yard, name).catch((error) => ({ runId: '', failed: error.message }));
    found[name] = report?.runId ?? '';
  }
  return found;
}

/** An agent asks to change a note, and waits; gives the promise of its answer and the question's id. */
export async function question(yard, args = PATCH, tool = 'vault.patchFile', more = {}) {
  const before = new Set((await yard.cli('approvals', 'list')).approvals.map((each) => each.id));
  const answer = yard.call(tool, args, more);
  const id = await eventually(async () => (await yard.cli('approvals', 'list')).approvals.find((each) => !before.has(each.id))?.id, 'the question');
  return { id, answer };
}

/** Puts a plan into the editor of the page, as somebody does who pastes it. */
export async function paste(page, plan) {
  const editor = page.getByRole('textbox', { name: 'Plan, JSON' });
  await editor.click();
  await page.keyboard.press('Control+a');
  await page.evaluate((value) => navigator.clipboard.writeText(value), JSON.stringify(plan, null, 2));
  await page.keyboard.press('Control+v');
}

/** Runs a plan from the page: dry run, then the button that is bound to it. */
export async function runFromPage(yard, page, plan) {
  await page.goto(`${yard.url}/plans/new`);
  await paste(page, plan);
  await page.getByText('No errors').or(page.getByText(/\d+ warning/)).first().waitFor();
  await page.getByRole('button', { name: 'Dry run', exact: true }).click();
  await page.getByRole('heading', { name: /^Dry run:/ }).waitFor();
  await page.getByRole('button', { name: /^Run/ }).click();
  await page.waitForURL(/\/runs\/[0-9a-f-]+$/);
  return new URL(page.url()).pathname.slice('/runs/'.length);
}

export const APPEND = { name: 'append', description: 'Keeps a line.', inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] } };

/** A configuration with a server whose one tool keeps lines in `log.txt`. Nobody can ask it afterwards whether it did. */
export function withLog(yard) {
  writeFileSync(join(yard.folder, 'tools.json'), JSON.stringify([APPEND]));
  return `[mcp.servers.log]\ncommand = "node"\nargs = ${JSON.stringify([SERVER, join(yard.folder, 'tools.json'), join(yard.folder, 'log.txt')])}\n`;
}
