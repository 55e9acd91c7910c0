// Data of a page: fetched when the page needs it, kept while offline, fetched again after a gap in the feed. A skeleton is
// shown only after 150 ms, so that a fast answer never flickers.

import { untrack } from 'svelte';
import { hub } from './hub.svelte.ts';
import { asProblem, type Problem } from './problem.ts';

const SKELETON_MS = 150;

export class Resource<T> {
  data = $state.raw<T | null>(null);
  problem = $state.raw<Problem | null>(null);
  loading = $state(false);
  /** True once loading has lasted long enough to be shown. */
  slow = $state(false);
  readonly #fetch: () => Promise<T>;
  #turn = 0;

  constructor(fetch: () => Promise<T>) {
    this.#fetch = fetch;
  }

  /** Fetches now. Of several fetches at the same time only the newest counts. */
  async load(): Promise<void> {
    this.#turn += 1;
    const turn = this.#turn;
    this.loading = true;
    const timer = setTimeout(() => {
      if (turn === this.#turn && this.loading) this.slow = true;
    }, SKELETON_MS);
    try {
      const data = await this.#fetch();
      if (turn !== this.#turn) return;
      this.data = data;
      this.problem = null;
    } catch (error) {
      if (turn === this.#turn) this.problem = asProblem(error);
    } finally {
      clearTimeout(timer);
      if (turn === this.#turn) {
        this.loading = false;
        this.slow = false;
      }
    }
  }
}

/** A resource that is loaded when the page is shown, when `key` changes, and when the connection comes back after a gap. */
export function resource<T>(fetch: () => Promise<T>, key: () => unknown = () => null): Resource<T> {
  const made = new Resource(fetch);
  let loaded: unknown;
  let begun = false;
  $effect(() => {
    const wanted = JSON.stringify([key(), hub.gaps]);
    if (!hub.live) return;
    if (begun && wanted === loaded && untrack(() => made.problem === null)) return;
    begun = true;
    loaded = wanted;
    untrack(() => void made.load());
  });
  return made;
}
