// Verification of a run's record, in the browser. The server gives the bytes of the records; hashes and signatures are
// recomputed here with WebCrypto, against the key that this browser pinned when it was paired. A verdict of the server is
// never shown as this browser's.

export function fromHex(hex: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(Math.floor(hex.length / 2));
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = Number.parseInt(hex.slice(at * 2, at * 2 + 2), 16);
  return bytes;
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const standard = text.replaceAll('-', '+').replaceAll('_', '/');
  const binary = atob(standard.padEnd(Math.ceil(standard.length / 4) * 4, '='));
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

export function toBase64Url(bytes: Uint8Array): string {
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

export async function sha256(...parts: Uint8Array[]): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', concat(parts)));
}

export function concat(parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export function same(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}

export interface Frame {
  seq: number;
  kind: number;
  /** The payload's bytes, base64. */
  payload: string;
  /** The chain value that the store holds, hex. */
  chain: string;
}

export const CHECKPOINT = 13;

/** A public key of the record: `name+id+base64(type and key)`, as C2SP writes verifier keys. */
export interface RecordKey {
  name: string;
  id: string;
  text: string;
  raw: Uint8Array<ArrayBuffer>;
}

const ED25519 = 1;

export function parseKey(text: string): RecordKey | null {
  const found = /^([^+]+)\+([0-9a-f]{8})\+(.+)$/.exec(text.trim());
  const [, name, id, key] = found ?? [];
  if (!name || !id || !key) return null;
  const bytes = fromBase64(key);
  if (bytes.length !== 33 || bytes[0] !== ED25519) return null;
  return { name, id, text: text.trim(), raw: bytes.slice(1) };
}

export async function genesis(runId: string): Promise<Uint8Array<ArrayBuffer>> {
  return sha256(new TextEncoder().encode('toolyard run record v1\0'), fromHex(runId.replaceAll('-', '')));
}

export async function link(previous: Uint8Array, frame: Pick<Frame, 'seq' | 'kind'>, payload: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
  const head = new Uint8Array(9);
  new DataView(head.buffer).setBigUint64(0, BigInt(frame.seq));
  head[8] = frame.kind;
  return sha256(previous, head, payload);
}

/** Whether a signed note says exactly this and carries a signature of the key. Signatures of others are passed over. */
export async function checkNote(note: string, origin: string, size: number, hash: Uint8Array, key: RecordKey): Promise<boolean> {
  const body = `${origin}\n${size}\n${btoa(String.fromCharCode(...hash))}\n`;
  if (!note.startsWith(body + '\n')) return false;
  const imported = await crypto.subtle.importKey('raw', key.raw, 'Ed25519', false, ['verify']);
  for (const line of note.slice(body.length + 1).split('\n')) {
    const cut = line.lastIndexOf(' ');
    if (!line.startsWith('\u2014 ') || line.slice(2, cut) !== key.name) continue;
    const blob = fromBase64(line.slice(cut + 1));
    if (blob.length !== 68 || toHex(blob.slice(0, 4)) !== key.id) continue;
    if (await crypto.subtle.verify('Ed25519', imported, blob.slice(4), new TextEncoder().encode(body))) return true;
  }
  return false;
}

export interface Break {
  seq: number;
  problem: string;
}

export interface Verdict {
  records: number;
  signatures: number;
  /** The last record that a signature covers. */
  signedSeq: number;
  head: string;
  broken: Break | null;
}

/** Walks the record of a run, frame by frame; stops at the first break. */
export class Walker {
  verdict: Verdict = { records: 0, signatures: 0, signedSeq: 0, head: '', broken: null };
  readonly #runId: string;
  readonly #keys: RecordKey[];
  #chain: Uint8Array<ArrayBuffer> | null = null;

  /** `keys` are those that this browser trusts: the pinned one, and those that it leads to. */
  constructor(runId: string, keys: RecordKey[]) {
    this.#runId = runId;
    this.#keys = keys;
  }

  /** Takes the next frame; false when it breaks the record. */
  async step(frame: Frame): Promise<boolean> {
    const verdict = this.verdict;
    if (verdict.broken) return false;
    const before = this.#chain ?? (await genesis(this.#runId));
    const expected = verdict.records + 1;
    if (frame.seq !== expected) return this.#stop(expected, `Record ${expected} is missing: the next one is record ${frame.seq}.`);
    const payload = fromBase64(frame.payload);
    const chain = await link(before, frame, payload);
    if (toHex(chain) !== frame.chain) return this.#stop(frame.seq, `Record ${frame.seq} was changed. Its bytes do not give the hash that the record continues with.`);
    if (frame.kind === CHECKPOINT && !(await this.#signature(payload, before, verdict.records))) {
      return this.#stop(frame.seq, `The signature in record ${frame.seq} is not one of the key pinned in this browser, nor of a key that it leads to.`);
    }
    this.#chain = chain;
    verdict.records = frame.seq;
    verdict.head = frame.chain;
    return true;
  }

  async #signature(payload: Uint8Array, chain: Uint8Array, covered: number): Promise<boolean> {
    const checkpoint = parseJson(payload) as { seq?: number; note?: string } | null;
    if (!checkpoint || checkpoint.seq !== covered || typeof checkpoint.note !== 'string') return false;
    for (const key of this.#keys) {
      if (await checkNote(checkpoint.note, `toolyard/run/${this.#runId}`, covered, chain, key)) {
        this.verdict.signatures += 1;
        this.verdict.signedSeq = covered;
        return true;
      }
    }
    return false;
  }

  #stop(seq: number, problem: string): false {
    this.verdict.broken = { seq, problem };
    return false;
  }
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return null;
  }
}

export interface Receipt {
  runId: string;
  leaf: string;
  index: number;
  proof: string[];
  checkpoint: string;
}

export interface Sealed {
  /** The number of the run's entry in the ledger's tree. */
  index: number;
  size: number;
  /** When the leaf was made. */
  at: number;
  seq: number;
  head: string;
}

/** Follows a receipt from its leaf to the signed root. Null when it proves nothing. */
export async function checkReceipt(receipt: Receipt, keys: RecordKey[]): Promise<Sealed | null> {
  const [origin, sizeText, root64] = receipt.checkpoint.split('\n');
  const size = Number(sizeText);
  if (origin !== 'toolyard/ledger' || !Number.isSafeInteger(size) || !root64) return null;
  const root = fromBase64(root64);
  let signed = false;
  for (const key of keys) signed ||= await checkNote(receipt.checkpoint, origin, size, root, key);
  if (!signed) return null;
  const found = await rootOf(receipt, size);
  if (!found || !same(found, root)) return null;
  const leaf = parseJson(new TextEncoder().encode(receipt.leaf)) as { type?: string; run?: string; seq?: number; head?: string; at?: number } | null;
  if (!leaf || leaf.type !== 'run' || leaf.run !== receipt.runId) return null;
  return { index: receipt.index, size, at: leaf.at ?? 0, seq: leaf.seq ?? 0, head: leaf.head ?? '' };
}

/** A leaf in a tree whose head is signed. */
export interface SignedInclusion {
  proof: string[];
  checkpoint: string;
}

/** A change of the signing key: the leaf names both keys. */
export interface KeyChange {
  leaf: string;
  index: number;
  /** In the last tree that the old key signed. */
  announced: SignedInclusion;
  /** In the first tree that the new key signed. */
  accepted?: SignedInclusion | null;
}

async function isIncluded(change: KeyChange, inclusion: SignedInclusion, key: RecordKey): Promise<boolean> {
  const [origin, sizeText, root64] = inclusion.checkpoint.split('\n');
  const size = Number(sizeText);
  if (origin !== 'toolyard/ledger' || !Number.isSafeInteger(size) || !root64) return false;
  const root = fromBase64(root64);
  if (!(await checkNote(inclusion.checkpoint, origin, size, root, key))) return false;
  const found = await rootOf({ leaf: change.leaf, index: change.index, proof: inclusion.proof }, size);
  return found !== null && same(found, root);
}

/**
 * The keys that the pinned one leads to, itself first. A key that is trusted vouches for the next one by signing the tree that
 * announces it, and for the one before by signing the tree that accepted the change. A change without such a signature leads
 * nowhere, whatever the server says.
 */
export async function trustedKeys(pinned: RecordKey, changes: KeyChange[]): Promise<RecordKey[]> {
  const trusted = [pinned];
  const knows = (text: string): boolean => trusted.some((key) => key.text === text);
  for (let before = 0; before !== trusted.length; ) {
    before = trusted.length;
    for (const change of changes) {
      const leaf = parseJson(new TextEncoder().encode(change.leaf)) as { type?: string; old?: string; new?: string } | null;
      const from = parseKey(leaf?.old ?? '');
      const to = parseKey(leaf?.new ?? '');
      if (leaf?.type !== 'key' || !from || !to) continue;
      if (knows(from.text) && !knows(to.text) && (await isIncluded(change, change.announced, from))) trusted.push(to);
      if (knows(to.text) && !knows(from.text) && change.accepted && (await isIncluded(change, change.accepted, to))) trusted.push(from);
    }
  }
  return trusted;
}

/** The root that an inclusion proof leads to (RFC 9162, 2.1.3.2). */
async function rootOf(receipt: Pick<Receipt, 'leaf' | 'index' | 'proof'>, size: number): Promise<Uint8Array | null> {
  if (receipt.index >= size) return null;
  let place = receipt.index;
  let last = size - 1;
  let hash = await sha256(Uint8Array.of(0), new TextEncoder().encode(receipt.leaf));
  for (const text of receipt.proof) {
    const sibling = fromBase64(text);
    if (last === 0 || sibling.length !== 32) return null;
    if (place % 2 === 1 || place === last) {
      hash = await sha256(Uint8Array.of(1), sibling, hash);
      while (place % 2 === 0 && place !== 0) {
        place = Math.floor(place / 2);
        last = Math.floor(last / 2);
      }
    } else hash = await sha256(Uint8Array.of(1), hash, sibling);
    place = Math.floor(place / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 ? hash : null;
}
