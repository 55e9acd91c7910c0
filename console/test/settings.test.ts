import assert from 'node:assert/strict';
import { test } from 'node:test';
import { savedBars } from '../src/lib/savings.ts';

const NOW = Date.parse('2026-11-18T12:00:00Z');
const day = (date: string, savedBytes: number) => {
  const total = { lists: 1, directBytes: savedBytes + 10, shownBytes: 10, savedBytes, savedTokens: savedBytes / 4 };
  return { date, doors: [], total };
};

test('two weeks of savings, with the days on which nothing was listed', () => {
  const bars = savedBars([day('2026-11-01', 9_000_000), day('2026-11-05', 1), day('2026-11-17', 500), day('2026-11-18', 1000)], NOW);
  assert.equal(bars.length, 14);
  assert.equal(bars[0]?.date, '2026-11-05', 'what is older is left out');
  assert.deepEqual(bars.map((bar) => bar.today), [...Array(13).fill(false), true]);
  assert.equal(bars[13]?.height, 46, 'the highest bar is that of the most');
  assert.equal(bars[12]?.height, 23);
  assert.equal(bars[1]?.height, 0, 'a day without lists has no bar');
  assert.equal(bars[0]?.height, 2, 'the least can still be seen');
});

test('bars grow from one base line', () => {
  for (const bar of savedBars([day('2026-11-18', 7)], NOW)) assert.equal(bar.y + bar.height, 62);
});
