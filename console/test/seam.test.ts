import assert from 'node:assert/strict';
import test from 'node:test';
import { checkReceipt, concat, genesis, link, parseKey, sha256, toHex, trustedKeys, Walker, type Frame, type KeyChange, type RecordKey } from '../src/lib/seam.ts';

const RUN = '019a8f02-0000-7000-8000-00000000c41d';
const bytes = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
const base64 = (data: Uint8Array): string => Buffer.from(data).toString('base64');

interface Signer {
  pair: CryptoKeyPair;
  key: RecordKey;
}

async function signer(): Promise<Signer> {
  const pair = (await crypto.subtle.generateKey('Ed25519', true, ['sign', 'verify'])) as CryptoKeyPair;
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', pair.publicKey));
  const id = toHex((await sha256(bytes('toolyard\n'), Uint8Array.of(1), raw)).slice(0, 4));
  const key = parseKey(`toolyard+${id}+${base64(concat([Uint8Array.of(1), raw]))}`);
  assert.ok(key);
  return { pair, key };
}

async function note({ pair, key }: Signer, origin: string, size: number, hash: Uint8Array): Promise<string> {
  const body = `${origin}\n${size}\n${base64(hash)}\n`;
  const signature = new Uint8Array(await crypto.subtle.sign('Ed25519', pair.privateKey, bytes(body)));
  return `${body}\n\u2014 ${key.name} ${base64(concat([Buffer.from(key.id, 'hex'), signature]))}\n`;
}

/** A record of `count` frames; every fourth is a checkpoint. */
async function record(who: Signer, count: number): Promise<Frame[]> {
  const frames: Frame[] = [];
  let chain = await genesis(RUN);
  for (let seq = 1; seq <= count; seq += 1) {
    const checkpoint = seq % 4 === 0;
    const payload = bytes(checkpoint ? JSON.stringify({ seq: seq - 1, note: await note(who, `toolyard/run/${RUN}`, seq - 1, chain) }) : JSON.stringify({ n: seq }));
    const kind = checkpoint ? 13 : 8;
    chain = await link(chain, { seq, kind }, payload);
    frames.push({ seq, kind, payload: base64(payload), chain: toHex(chain) });
  }
  return frames;
}

async function walk(frames: Frame[], keys: RecordKey[]): Promise<Walker['verdict']> {
  const walker = new Walker(RUN, keys);
  for (const frame of frames) if (!(await walker.step(frame))) break;
  return walker.verdict;
}

test('an untouched record is intact, with its signatures counted', async () => {
  const who = await signer();
  const frames = await record(who, 9);
  const verdict = await walk(frames, [who.key]);
  assert.deepEqual([verdict.records, verdict.signatures, verdict.signedSeq, verdict.broken], [9, 2, 7, null]);
  assert.equal(verdict.head, frames.at(-1)?.chain);
});

test('a changed record is named', async () => {
  const who = await signer();
  const frames = await record(who, 9);
  const third = frames[2];
  assert.ok(third);
  frames[2] = { ...third, payload: base64(bytes('{"n":33}')) };
  const verdict = await walk(frames, [who.key]);
  assert.equal(verdict.broken?.seq, 3);
  assert.equal(verdict.records, 2);
});

test('a record whose chain was made anew breaks at its signature', async () => {
  const who = await signer();
  const frames = await record(who, 9);
  let chain = await genesis(RUN);
  const forged: Frame[] = [];
  for (const frame of frames) {
    const payload = frame.seq === 2 ? bytes('{"n":22}') : Buffer.from(frame.payload, 'base64');
    chain = await link(chain, frame, payload);
    forged.push({ ...frame, payload: base64(payload), chain: toHex(chain) });
  }
  assert.equal((await walk(forged, [who.key])).broken?.seq, 4);
});

test('removed and moved records, and signatures of another key, are found', async () => {
  const who = await signer();
  const frames = await record(who, 9);
  assert.equal((await walk(frames.filter((frame) => frame.seq !== 5), [who.key])).broken?.seq, 5);
  const swapped = [...frames];
  [swapped[4], swapped[5]] = [swapped[5] as Frame, swapped[4] as Frame];
  assert.equal((await walk(swapped, [who.key])).broken?.seq, 5);
  const other = await signer();
  assert.equal((await walk(frames, [other.key])).broken?.seq, 4);
  assert.equal((await new Walker('019a8f02-0000-7000-8000-00000000c41e', [who.key]).step(frames[0] as Frame)), false);
});

test('a receipt leads from the leaf to the signed root, and a changed one does not', async () => {
  const who = await signer();
  const leaves = ['a', JSON.stringify({ type: 'run', run: RUN, seq: 9, head: 'ab', at: 5 }), 'c'];
  const hash = async (text: string): Promise<Uint8Array<ArrayBuffer>> => sha256(Uint8Array.of(0), bytes(text));
  const node = async (left: Uint8Array, right: Uint8Array): Promise<Uint8Array<ArrayBuffer>> => sha256(Uint8Array.of(1), left, right);
  const [a, b, c] = [await hash(leaves[0] ?? ''), await hash(leaves[1] ?? ''), await hash(leaves[2] ?? '')];
  const root = await node(await node(a, b), c);
  const receipt = { runId: RUN, leaf: leaves[1] ?? '', index: 1, proof: [base64(a), base64(c)], checkpoint: await note(who, 'toolyard/ledger', 3, root) };
  assert.deepEqual(await checkReceipt(receipt, [who.key]), { index: 1, size: 3, at: 5, seq: 9, head: 'ab' });
  assert.equal(await checkReceipt({ ...receipt, index: 2 }, [who.key]), null);
  assert.equal(await checkReceipt({ ...receipt, leaf: receipt.leaf.replace('9', '8') }, [who.key]), null);
  assert.equal(await checkReceipt({ ...receipt, proof: [base64(c), base64(a)] }, [who.key]), null);
  assert.equal(await checkReceipt(receipt, [(await signer()).key]), null);
  assert.equal(await checkReceipt({ ...receipt, runId: 'other' }, [who.key]), null);
});

/** A change of the key in a tree of two leaves: the first is another one. */
async function change(from: Signer, to: Signer, announcedBy = from, acceptedBy = to): Promise<KeyChange> {
  const leaf = JSON.stringify({ type: 'key', old: from.key.text, new: to.key.text, at: 5 });
  const other = await sha256(Uint8Array.of(0), bytes('a'));
  const root = await sha256(Uint8Array.of(1), other, await sha256(Uint8Array.of(0), bytes(leaf)));
  const inclusion = async (who: Signer): Promise<KeyChange['announced']> => ({ proof: [base64(other)], checkpoint: await note(who, 'toolyard/ledger', 2, root) });
  return { leaf, index: 1, announced: await inclusion(announcedBy), accepted: await inclusion(acceptedBy) };
}

test('a pinned key leads to the later and the earlier keys, and to no key that nobody vouches for', async () => {
  const [first, second, third, forger] = [await signer(), await signer(), await signer(), await signer()];
  const honest = [await change(first, second), await change(second, third)];
  const texts = async (pinned: Signer, changes: KeyChange[]): Promise<string[]> => (await trustedKeys(pinned.key, changes)).map((key) => key.text);
  const all = [first, second, third].map((who) => who.key.text).sort();
  for (const pinned of [first, second, third]) assert.deepEqual((await texts(pinned, honest)).sort(), all);
  assert.deepEqual(await texts(first, [await change(second, third)]), [first.key.text], 'a missing change leads nowhere');
  // The server names a key of its own; the old key did not sign that.
  assert.deepEqual(await texts(first, [await change(first, forger, forger, forger)]), [first.key.text]);
  assert.deepEqual(await texts(second, [await change(forger, second, forger, forger)]), [second.key.text]);
  const moved = await change(first, second);
  assert.deepEqual(await texts(first, [{ ...moved, leaf: moved.leaf.replace(second.key.text, forger.key.text) }]), [first.key.text]);
  // A record that was signed after the change verifies in a browser that pinned the first key.
  const frames = await record(third, 9);
  assert.equal((await walk(frames, await trustedKeys(first.key, honest))).broken, null);
});

test('keys of another form are not taken', () => {
  assert.equal(parseKey(''), null);
  assert.equal(parseKey('name+base64only'), null);
  assert.equal(parseKey('name+00000000+AAAA'), null);
});
