import assert from 'node:assert/strict';
import test from 'node:test';
import { KIND, Reader, type RawFrame } from '../src/lib/record.ts';
import { conflict, part, pathOf, type Plan } from '../src/lib/undo.ts';
import { command, fields, read } from '../src/lib/form.ts';

function frames(list: [number, unknown][]): RawFrame[] {
  return list.map(([kind, value], at) => ({ seq: at + 1, kind, payload: Buffer.from(JSON.stringify(value)).toString('base64'), chain: '' }));
}

const START = { runId: 'r', kind: 'plan', plan: { goal: 'Tidy', steps: [] }, planHash: 'sha256:8be2ff', policyHash: 'sha256:4b1e00', caller: { agentId: 'main' }, startedAt: '2026-11-17T02:00:00Z', executorVersion: '1' };
const AT = Date.parse('2026-11-17T02:00:00Z') * 1000;
const call = (id: string, step: string, change: object = {}): object => ({ c: id, s: step, t: 'vault.patchFile', n: 1, at: AT, r: 'writes', h: 'x', a: { path: `${id}.md` }, ...change });
const done = (id: string, change: object = {}): object => ({ c: id, o: { st: 'ok', b: AT + 1000, us: 22_000, ...change } });

test('a call and its result are one row with its effects', () => {
  const reader = new Reader();
  reader.take(frames([[KIND.started, START], [KIND.call, call('a', 's1')], [KIND.result, done('a', { fx: { modified: [{ path: 'a.md' }] } })], [KIND.finished, { at: '2026-11-17T02:00:01Z', status: 'finished', message: '' }], [KIND.checkpoint, { seq: 4, note: '' }]]));
  const { record } = reader;
  assert.deepEqual(record.rows.map((row) => [row.name, row.first, row.last]), [['Run started', 1, 1], ['vault.patchFile', 2, 3], ['Run finished', 4, 4], ['Signed', 5, 5]]);
  assert.equal(record.rows[1]?.end, AT / 1000 + 1 + 22);
  assert.deepEqual(record.changes, [{ kind: 'changed', path: 'a.md', from: null, callId: 'a', seq: 3 }]);
  assert.deepEqual([record.calls, record.failed, record.signatures, record.finished?.status], [1, 0, 1, 'finished']);
});

test('a failed call keeps its code, and a retry is one row with a tick', () => {
  const reader = new Reader();
  reader.take(frames([
    [KIND.started, START],
    [KIND.call, call('a', 's1')],
    [KIND.result, done('a', { st: 'timeout', e: { code: 'TIMEOUT', message: 'slow' } })],
    [KIND.retry, { s: 's1', n: 2, at: '2026-11-17T02:00:02Z', w: '2026-11-17T02:00:01Z' }],
    [KIND.call, call('b', 's1', { n: 2 })],
    [KIND.result, done('b')],
  ]));
  const rows = reader.record.rows.filter((row) => row.kind === 'call');
  assert.equal(rows.length, 1);
  assert.equal(rows[0]?.small, '2 tries');
  assert.ok((rows[0]?.ticks.length ?? 0) >= 1);
  assert.equal(rows[0]?.failed, false);
});

test('calls of a loop become a group, pages may come one by one', () => {
  const list: [number, unknown][] = [[KIND.started, START]];
  for (let index = 0; index < 4; index += 1) list.push([KIND.call, call(`c${index}`, 'loop', { i: { index, itemName: 'note', itemValue: `n${index}` } })], [KIND.result, done(`c${index}`)]);
  const all = frames(list);
  const reader = new Reader();
  reader.take(all.slice(0, 4));
  reader.take(all.slice(2));
  const group = reader.record.rows.find((row) => row.kind === 'group');
  assert.deepEqual([group?.children.length, group?.small, group?.first, group?.last], [4, '4 of 4', 2, 9]);
  assert.equal(reader.record.calls, 4);
});

test('waiting for a person is a row of its own, and doubt names its calls', () => {
  const reader = new Reader();
  reader.take(frames([[KIND.started, START], [KIND.asked, { message: 'May it?', at: '2026-11-17T02:00:00Z' }], [KIND.confirmed, { decision: 'approved', by: 'ada', at: '2026-11-17T07:41:00Z' }], [KIND.paused, { at: '2026-11-17T07:41:01Z', callIds: ['x'], message: 'in doubt' }]]));
  const wait = reader.record.rows.find((row) => row.bar === 'person');
  assert.deepEqual([wait?.name, wait?.end, wait?.seqs], ['Asked, allowed', Date.parse('2026-11-17T07:41:00Z'), [2, 3]]);
  assert.deepEqual(reader.record.doubt?.callIds, ['x']);
});

const PLAN = {
  version: '1.0', goal: 'Take back', riskLevel: 'writes',
  steps: ['a', 'b', 'c'].map((id, at, all) => ({ id, tool: 'vault.restoreFile', args: { path: `${id}.md`, expectedEtag: 'e' }, dependsOn: at > 0 ? [all[at - 1] ?? ''] : [] })),
} as Plan;

test('a part of an undo keeps its order and its guards, but for forced steps', () => {
  const chosen = part(PLAN, (step) => step.id !== 'b', new Set(['c']));
  assert.deepEqual(chosen.steps.map((step) => [step.id, step.dependsOn, 'expectedEtag' in step.args]), [['a', [], true], ['c', ['a'], false]]);
  assert.equal(pathOf(PLAN.steps[0] as never), 'a.md');
  assert.deepEqual(conflict({ steps: [{ id: 'a', tool: 't', attempts: 1, status: 'ok' }, { id: 'b', tool: 't', attempts: 1, status: 'error', error: { code: 'CONFLICT', message: 'changed' } }] }), { id: 'b', message: 'It is not as this run left it.' });
});

test('a form reads what its schema says', () => {
  const list = fields({ required: ['path'], properties: { path: { type: 'string' }, limit: { type: 'integer' }, deep: { type: 'boolean' }, mode: { enum: ['a', 'b'] }, patch: { type: 'object' } } });
  assert.deepEqual(list.map((field) => field.kind), ['text', 'number', 'switch', 'choice', 'json']);
  assert.deepEqual(read(list, { path: 'x', limit: '3', deep: 'true', mode: 'a', patch: '{"k":1}' }), { args: { path: 'x', limit: 3, deep: true, mode: 'a', patch: { k: 1 } }, errors: {} });
  assert.deepEqual(Object.keys(read(list, { limit: 'three', patch: '{' }).errors), ['path', 'limit', 'patch']);
  assert.equal(command('vault.readFile', { path: "it's" }), `toolyard call vault.readFile --args '{"path":"it'\\''s"}'`);
});
