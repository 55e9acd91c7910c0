import assert from 'node:assert/strict';
import test from 'node:test';
import { wait } from '../src/lib/backoff.ts';
import { Keys } from '../src/lib/keys.ts';
import { scale } from '../src/lib/waterfall.ts';
import { windowOf } from '../src/lib/window.ts';

test('the wait between attempts grows from 0.8 to 15 s and never leaves that range', () => {
  for (let attempt = 0; attempt < 40; attempt += 1) {
    for (const random of [0, 0.5, 0.999]) {
      const ms = wait(attempt, random);
      assert.ok(ms >= 800 && ms <= 15_000, `${attempt}: ${ms}`);
    }
  }
  assert.ok(wait(10, 0.999) > 14_000);
});

test('a hundred thousand rows draw at most sixty', () => {
  for (const top of [-500, 0, 1_800_000, 3_599_000]) {
    const { from, to } = windowOf(100_000, 36, top, 1400);
    assert.ok(to - from <= 60, String(to - from));
    assert.ok(from >= 0 && to <= 100_000);
  }
  const middle = windowOf(100_000, 36, 36 * 5000, 900);
  assert.ok(middle.from <= 5000 && middle.to >= 5025);
  assert.equal(middle.before, middle.from * 36);
  assert.deepEqual(windowOf(0, 36, 0, 900), { from: 0, to: 0, before: 0, height: 0 });
});

test('a long wait is folded, and work keeps its place', () => {
  const hour = 3_600_000;
  const scaled = scale([
    { start: 0, end: 400, wait: false },
    { start: 400, end: 5 * hour, wait: true },
    { start: 5 * hour, end: 5 * hour + 600, wait: false },
  ]);
  assert.equal(scaled.folds.length, 1);
  assert.ok(scaled.at(400) < 0.5, String(scaled.at(400)));
  assert.ok(scaled.at(5 * hour + 600) > 0.99);
  assert.ok(scaled.at(5 * hour) - scaled.at(400) < 0.11);
  let before = -1;
  for (let time = 0; time <= 5 * hour + 600; time += hour / 7) {
    const x = scaled.at(time);
    assert.ok(x >= before, 'places grow with time');
    before = x;
  }
});

test('short waits are drawn at their length', () => {
  assert.equal(scale([{ start: 0, end: 100, wait: false }, { start: 600, end: 700, wait: false }]).folds.length, 0);
});

test('g and a letter is one key', () => {
  const keys = new Keys();
  const press = (key: string, at: number, change: Partial<{ ctrlKey: boolean; altKey: boolean }> = {}): string | null => keys.name({ key, ctrlKey: false, metaKey: false, altKey: false, ...change }, at);
  assert.equal(press('g', 0), null);
  assert.equal(press('r', 300), 'g r');
  assert.equal(press('r', 400), 'r');
  assert.equal(press('g', 1000), null);
  assert.equal(press('r', 3000), 'r');
  assert.equal(press('K', 4000, { ctrlKey: true }), 'mod+k');
  assert.equal(press('a', 5000, { altKey: true }), null);
});
