// Changes of the configuration from a page: a patch over the file as it was read, so that nobody's edit is overwritten.

import { hub } from './hub.svelte.ts';
import type { Json } from '../types/methods.ts';

/** Applies a patch, and answers what a person should know about it. */
export async function changeConfig(baseHash: string, patch: { [key: string]: Json }): Promise<string> {
  const { changed, needsRestart } = await hub.call('config.patch', { baseHash, patch });
  if (changed.length === 0) return 'Nothing differs from what the configuration says.';
  if (needsRestart.length === 0) return 'Saved. It holds from now on.';
  return `Saved. ${needsRestart.join(', ')}: from the next start of Toolyard on.`;
}

/** A value within the configuration, by its key; undefined where a part of the key is missing. */
export function valueAt(config: Json | undefined, key: string): Json | undefined {
  let value: Json | undefined = config;
  for (const part of key.split('.')) {
    if (value === null || typeof value !== 'object' || Array.isArray(value)) return undefined;
    value = value[part];
  }
  return value;
}

/** A merge patch that sets one key; null removes it. */
export function patchOf(key: string, value: Json): { [key: string]: Json } {
  const [last = '', ...above] = key.split('.').reverse();
  return above.reduce<{ [key: string]: Json }>((inner, part) => ({ [part]: inner }), { [last]: value });
}
