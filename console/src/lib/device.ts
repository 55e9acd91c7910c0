// This browser's device: a key that cannot be exported, kept in IndexedDB, and the key of the record pinned when it was
// paired. The cookie that belongs to it is HttpOnly and never seen here.

import { sha256, toBase64Url, toHex } from './seam.ts';

export interface Identity {
  keys: CryptoKeyPair;
  deviceId: string;
  /** The key that verifies the record, as it was when this browser was paired. */
  recordKey: string;
  instance: string;
  pairedAt: number;
}

const DATABASE = 'toolyard-console';
const STORE = 'device';
const THIS = 'this';

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('IndexedDB does not open'));
  });
}

async function transact<T>(mode: IDBTransactionMode, act: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const database = await open();
  try {
    return await new Promise<T>((resolve, reject) => {
      const transaction = database.transaction(STORE, mode);
      const request = act(transaction.objectStore(STORE));
      // The value counts once the transaction is complete, not when the request is.
      transaction.oncomplete = () => resolve(request.result);
      transaction.onerror = () => reject(transaction.error ?? new Error('IndexedDB refused'));
      transaction.onabort = () => reject(transaction.error ?? new Error('IndexedDB aborted'));
    });
  } finally {
    database.close();
  }
}

export async function identity(): Promise<Identity | null> {
  return (await transact('readonly', (store) => store.get(THIS) as IDBRequest<Identity | undefined>)) ?? null;
}

export async function keep(value: Identity): Promise<void> {
  await transact('readwrite', (store) => store.put(value, THIS));
}

export async function forget(): Promise<void> {
  await transact('readwrite', (store) => store.delete(THIS));
}

export async function newKeys(): Promise<{ keys: CryptoKeyPair; publicKey: string; deviceId: string }> {
  const keys = (await crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify'])) as CryptoKeyPair;
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', keys.publicKey));
  return { keys, publicKey: toBase64Url(raw), deviceId: toHex(await sha256(raw)) };
}

/** Signs lines joined with newlines, as the console's protocol wants them. */
export async function signLines(keys: CryptoKeyPair, lines: string[]): Promise<string> {
  const text = new TextEncoder().encode(lines.join('\n'));
  return toBase64Url(new Uint8Array(await crypto.subtle.sign('Ed25519', keys.privateKey, text)));
}

/** A name for the list of devices: "Firefox on Linux". */
export function browserName(agent: string): string {
  const browser = /Edg\//.test(agent) ? 'Edge' : /OPR\//.test(agent) ? 'Opera' : /Firefox\//.test(agent) ? 'Firefox'
    : /Chrom(e|ium)\//.test(agent) ? 'Chrome' : /Safari\//.test(agent) ? 'Safari' : 'Browser';
  const system = /Android/.test(agent) ? 'Android' : /iPhone|iPad/.test(agent) ? 'iOS' : /Mac OS X/.test(agent) ? 'macOS'
    : /Windows/.test(agent) ? 'Windows' : /Linux/.test(agent) ? 'Linux' : '';
  return system ? `${browser} on ${system}` : browser;
}
