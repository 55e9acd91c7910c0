import assert from 'node:assert/strict';
import test from 'node:test';
import { person, pieces, shortHash, shortId, splitPath, throughDoor, withoutTool } from '../src/lib/text.ts';

test('control characters in a name become chips', () => {
  assert.deepEqual(pieces('openclaw\u202E/nimda'), [
    { text: 'openclaw', control: false },
    { text: 'U+202E', control: true },
    { text: '/nimda', control: false },
  ]);
  assert.deepEqual(pieces('zero\u200Bwidth').map((piece) => piece.text), ['zero', 'U+200B', 'width']);
  assert.deepEqual(pieces('bell\u0007').at(-1), { text: 'U+0007', control: true });
});

test('ordinary text of any script is one piece', () => {
  for (const text of ['Garden/温室/トマト.md', 'ملاحظات الشتاء', 'line\nline\ttab', '<script>alert(1)</script>']) {
    assert.deepEqual(pieces(text), [{ text, control: false }]);
  }
});

test('hashes and ids are shortened the same way everywhere', () => {
  assert.equal(shortHash('sha256:3f9a11c8aaaabbbbccccdddd000077c2'), '3f9a 11c8 … 77c2');
  assert.equal(shortHash('3f9a11c8'), '3f9a 11c8');
  assert.equal(shortId('019a8f02-1111-7000-8000-00000000c41d'), '019a8f02…c41d');
  assert.deepEqual(splitPath('Garden/Beds/Bed 3.md'), { folder: 'Garden/Beds/', name: 'Bed 3.md' });
  assert.deepEqual(splitPath('a.md'), { folder: '', name: 'a.md' });
});

test('a reason does not repeat the tool that stands beside it', () => {
  assert.equal(withoutTool('vault.rename: it changes files or state', 'vault.rename'), 'it changes files or state');
  assert.equal(withoutTool('vault.rename: it changes files', 'vault.patchFile'), 'vault.rename: it changes files');
});

test('a principal and a door are said in words', () => {
  assert.equal(person('uid:1000'), 'the person at this machine (user 1000)');
  assert.equal(person('Chrome on Linux'), 'Chrome on Linux');
  assert.equal(throughDoor('mcp'), 'over MCP');
  assert.equal(throughDoor('telegraph'), 'through telegraph');
});
