import assert from 'node:assert/strict';
import test from 'node:test';
import { address, match, section } from '../src/lib/router.ts';

test('every page of the contract has its address', () => {
  const cases: [string, string, string][] = [
    ['/', 'now', ''], ['/approve/policy%3A1', 'approve', 'policy:1'], ['/runs', 'runs', ''], ['/runs/abc', 'run', 'abc'], ['/runs/abc/undo', 'undo', 'abc'],
    ['/plans/new', 'plans', ''], ['/tools/vault.readFile', 'tool', 'vault.readFile'], ['/notes', 'notes', ''], ['/memory', 'memory', ''], ['/traces/t1', 'trace', 't1'],
    ['/connect', 'connect', ''], ['/servers/calendar', 'server', 'calendar'], ['/agents/agent%3Amain', 'agent', 'agent:main'], ['/settings/grants', 'settings', 'grants'], ['/nowhere/else', 'missing', ''],
  ];
  for (const [path, page, id] of cases) {
    const route = match(path, '');
    assert.deepEqual([route.page, route.id], [page, id], path);
  }
  assert.equal(match('/approve/%E0%A4%A', '').id, '%E0%A4%A');
});

test('filters are in the address, empty ones are not', () => {
  assert.equal(address('/runs', { status: 'failed', agent: '', q: null }), '/runs?status=failed');
  assert.equal(match('/runs', '?q=a%20b').query.get('q'), 'a b');
});

test('a page lights its entry of the navigation', () => {
  assert.equal(section('approve'), '/');
  assert.equal(section('undo'), '/runs');
  assert.equal(section('why'), '/notes');
});
