import assert from 'node:assert/strict';
import test from 'node:test';
import type { Question } from '../src/lib/console-methods.ts';
import { alike, choices, effectSentence, sentence } from '../src/lib/question.ts';

const QUESTION: Question = {
  id: 'policy:1', kind: 'policy', title: 'vault.patchFile', description: '', severity: 'warning', tool: 'vault.patchFile', args: { path: 'Garden/Beds/Bed 3.md' }, argsHash: 'h',
  preview: 'made', rule: 'policy.ask.0', agent: 'night-gardener', runId: 'r1', askedAt: '2026-11-17T06:20:14Z', expiresAt: '2026-11-19T06:20:14Z', waiting: true,
  paths: ['Garden/Beds/Bed 3.md'], decisions: ['allow-once', 'allow-always', 'deny'], scopes: ['arguments', 'run', 'folder', 'tool'],
  effects: { modified: [{ path: 'Garden/Beds/Bed 3.md' }] },
};

test('a question is one sentence about one thing', () => {
  assert.deepEqual(sentence(QUESTION), { verb: 'change', object: 'Bed 3.md', objectIsTool: false, folder: 'Garden/Beds/' });
  assert.equal(sentence({ ...QUESTION, effects: { created: [{ path: 'x', kind: 'file' }] } }).verb, 'create');
  assert.deepEqual(sentence({ ...QUESTION, paths: [], effects: null, tool: 'mail__dispatch' }), { verb: 'call', object: 'mail__dispatch', objectIsTool: true, folder: '' });
  assert.equal(sentence({ ...QUESTION, kind: 'exec', args: { command: 'rm -rf x' } }).object, 'rm -rf x');
  assert.equal(sentence({ ...QUESTION, tool: 'plans.run', args: { goal: 'Tidy up' } }).object, 'Tidy up');
});

test('the effects are told in words when there is no diff', () => {
  assert.equal(effectSentence(QUESTION), 'Changes 1 file.');
  assert.equal(effectSentence({ ...QUESTION, effects: null }), '');
});

test('only answers that the server offers are shown, the narrowest first', () => {
  assert.deepEqual(choices(QUESTION, '09:14').map((choice) => choice.id), ['once', 'hour', 'run', 'folder']);
  assert.deepEqual(choices({ ...QUESTION, scopes: ['run'] }, '09:14').map((choice) => choice.id), ['once', 'run']);
  assert.deepEqual(choices({ ...QUESTION, decisions: ['allow-once', 'deny'] }, '09:14').map((choice) => choice.id), ['once']);
  assert.deepEqual(choices({ ...QUESTION, runId: null, paths: ['root.md'] }, '09:14').map((choice) => choice.id), ['once', 'hour']);
  const [once, hour, , folder] = choices(QUESTION, '09:14');
  assert.equal(once?.button, 'Allow once');
  assert.deepEqual(hour?.grant, { scope: { kind: 'tool' }, expiresInMs: 3_600_000 });
  assert.deepEqual(folder?.grant, { scope: { kind: 'folder', path: 'Garden/Beds' } });
});

test('alike means the same agent, tool and rule', () => {
  const other = { ...QUESTION, id: 'policy:2' };
  assert.deepEqual(alike(QUESTION, [QUESTION, other, { ...other, id: 'policy:3', agent: 'x' }, { ...other, id: 'policy:4', rule: 'y' }]).map((each) => each.id), ['policy:2']);
});
