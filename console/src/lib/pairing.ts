// Pairing this browser: a one-use code, a key that cannot be exported, one request. Nothing is read from a parameter of the
// address: the code stands in the fragment, which no server sees, and leaves the address bar at once.

import type { Device } from './connection.ts';
import { browserName, keep, newKeys, signLines } from './device.ts';
import { ORIGIN } from './origin.ts';
import { Problem } from './problem.ts';

export interface Session {
  paired: boolean;
  device?: Device;
  canPair: boolean;
  why?: { code: string; message: string; suggestion?: string };
  version: string;
  instance: string;
  publicKey?: string;
}

/** The code in the fragment; the fragment is removed from the address and from the history. */
export function takeCode(): string {
  const code = location.hash.slice(1);
  if (location.hash) history.replaceState(null, '', '/pair');
  return code;
}

export async function session(): Promise<Session> {
  const response = await fetch('/console/session', { credentials: 'same-origin', cache: 'no-store' });
  if (!response.ok) throw await refusal(response);
  return (await response.json()) as Session;
}

/** Pairs with a one-use code, or with the gateway's token, which gives a viewer's rights. */
export async function pair(secret: { code: string } | { token: string }): Promise<Device> {
  const { keys, publicKey, deviceId } = await newKeys();
  const text = 'code' in secret ? secret.code : secret.token;
  const signature = await signLines(keys, ['toolyard-console-pair-v1', ORIGIN, publicKey, text]);
  const response = await fetch('/pair', {
    method: 'POST',
    credentials: 'same-origin',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...secret, publicKey, signature, name: browserName(navigator.userAgent) }),
  });
  if (!response.ok) throw await refusal(response);
  const answer = (await response.json()) as { device: Device; publicKey: string; instance: string };
  await keep({ keys, deviceId, recordKey: answer.publicKey, instance: answer.instance, pairedAt: Date.now() });
  return answer.device;
}

async function refusal(response: Response): Promise<Problem> {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text) as { error: { code: string; message: string; suggestion?: string } };
    return new Problem(error);
  } catch {
    return new Problem({ code: `HTTP_${response.status}`, message: 'Toolyard refused the request.', suggestion: 'Open the page again from: toolyard console' });
  }
}
