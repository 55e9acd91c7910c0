import assert from 'node:assert/strict';
import test from 'node:test';
import { bytes, left, plural, times, took, until, when } from '../src/lib/format.ts';

test('lengths of time have at most two units', () => {
  const cases: [number, string][] = [[0, '0 ms'], [12, '12 ms'], [4620, '4.62 s'], [18_400, '18.4 s'], [60_000, '1 min'], [64_000, '1 min 4 s'], [20_460_000, '5 h 41 min'], [183_600_000, '2 d 3 h']];
  for (const [ms, text] of cases) assert.equal(took(ms), text);
});

test('what is left is never rounded up to more time than there is', () => {
  assert.equal(left(46 * 3_600_000 + 6 * 60_000), '46 h left');
  assert.equal(left(59_500), '1 min left');
  assert.equal(left(58_200), '59 s left');
  assert.equal(left(125 * 60_000), '2 h 5 min left');
  assert.equal(left(0), 'expired');
});

test('sizes and counts have units', () => {
  assert.equal(bytes(4_100), '4.10 kB');
  assert.equal(bytes(2_310_000), '2.31 MB');
  assert.equal(bytes(999), '999 B');
  assert.equal(plural(1, 'run'), '1 run');
  assert.equal(plural(100_312, 'run'), '100,312 runs');
});

test('a time is the clock today and the date before', () => {
  const now = new Date(2026, 10, 17, 8, 14).getTime();
  assert.equal(when(new Date(2026, 10, 17, 7, 42).getTime(), now), '07:42');
  assert.equal(when(new Date(2026, 10, 16, 19, 20).getTime(), now), '16 Nov 19:20');
  assert.equal(when(new Date(2025, 9, 3).getTime(), now), '3 Oct 2025');
  assert.equal(until(new Date(2026, 10, 19, 6, 20).getTime(), now), 'until Thu 06:20');
});

test('a number of times is a word where there is one', () => {
  assert.deepEqual([1, 2, 4, 1200].map(times), ['once', 'twice', '4 times', '1,200 times']);
});
