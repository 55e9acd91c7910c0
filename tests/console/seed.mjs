// Something to look at: runs of the example plans, a question with its diff, a broken server, memories. Everything is done
// by the program itself; nothing is made up for the page.
import { join } from 'node:path';
import { eventually } from './yard.mjs';

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
