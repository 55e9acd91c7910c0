import assert from 'node:assert/strict';
import test from 'node:test';
import { changedWords, parseDiff, summary } from '../src/lib/diff.ts';

const DIFF = `--- a/Garden/Bed 3.md
+++ b/Garden/Bed 3.md
@@ -1,4 +1,6 @@
 ---
-season: autumn
+season: winter
+cover: straw
+check: 2027-02-15
 ---
 # Bed 3
--- /dev/null
+++ b/New.md
@@ -0,0 +1,2 @@
+# New
+--- not a header
`;

test('files, kinds and line numbers are read', () => {
  const [bed, fresh] = parseDiff(DIFF);
  assert.equal(bed?.path, 'Garden/Bed 3.md');
  assert.equal(bed?.kind, 'changed');
  assert.deepEqual([bed?.added, bed?.removed], [3, 1]);
  assert.equal(fresh?.kind, 'added');
  assert.equal(fresh?.added, 2);
  assert.equal(fresh?.lines.at(-1)?.marks[0]?.text, '--- not a header');
  const removed = bed?.lines.find((line) => line.kind === 'del');
  assert.deepEqual([removed?.old, removed?.new], [2, null]);
});

test('a removed line that looks like a header stays a line', () => {
  const [file] = parseDiff('--- a/x\n+++ b/x\n@@ -1,2 +1,1 @@\n--- a rule\n+++ plus\n-gone\n');
  assert.equal(file?.removed, 2);
  assert.equal(file?.added, 1);
});

test('changed words are marked where lines correspond', () => {
  const pair = changedWords('season: autumn', 'season: winter');
  assert.deepEqual(pair?.[0].filter((mark) => mark.changed).map((mark) => mark.text), ['autumn']);
  assert.deepEqual(pair?.[1].filter((mark) => mark.changed).map((mark) => mark.text), ['winter']);
  assert.equal(changedWords('completely', 'different'), null);
});

test('the sentence counts lines', () => {
  assert.equal(summary(parseDiff('--- a/x\n+++ b/x\n@@ -1,1 +1,3 @@\n-a b\n+a c\n+d\n+e\n')), 'Adds 2 lines, changes 1.');
  assert.equal(summary([]), '');
});

test('a rename without lines is one file', () => {
  const [file] = parseDiff('rename from A.md\nrename to B/A.md\n');
  assert.deepEqual([file?.kind, file?.from, file?.path], ['renamed', 'A.md', 'B/A.md']);
});
