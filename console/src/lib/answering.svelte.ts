// Answering a question: once, bound to what was shown, and not within 300 ms of its appearance.

import type { Choice } from './question.ts';
import type { Question } from './console-methods.ts';
import { hub } from './hub.svelte.ts';
import { asProblem, type Problem } from './problem.ts';
import { shared } from './shared.svelte.ts';

export const ARMING_MS = 300;

export class Answering {
  busy = $state(false);
  problem = $state.raw<Problem | null>(null);
  /** True while keys and taps are ignored because the question has just appeared. */
  arming = $state(true);

  arm(id: string): () => void {
    const since = shared.appeared.get(id) ?? performance.now();
    const rest = ARMING_MS - (performance.now() - since);
    this.arming = rest > 0;
    const timer = setTimeout(() => (this.arming = false), Math.max(0, rest));
    return () => clearTimeout(timer);
  }

  /** The question as it is afterwards, or null when nothing was sent or the answer failed. */
  async allow(question: Question, choice: Pick<Choice, 'decision' | 'grant'>): Promise<{ applied: boolean; approval: Question } | null> {
    return this.#send(question, { decision: choice.decision, ...(choice.grant ? { grant: choice.grant } : {}) });
  }

  async deny(question: Question, note: string): Promise<{ applied: boolean; approval: Question } | null> {
    return this.#send(question, { decision: 'deny', ...(note.trim() ? { note: note.trim() } : {}) });
  }

  async #send(question: Question, answer: { decision: 'allow-once' | 'allow-always' | 'deny'; note?: string; grant?: Choice['grant'] }): Promise<{ applied: boolean; approval: Question } | null> {
    if (this.busy || this.arming || !hub.live) return null;
    this.busy = true;
    this.problem = null;
    try {
      const { grant, ...rest } = answer;
      const result = await hub.call('approvals.answer', {
        id: question.id, ...rest, ...(grant ? { grant } : {}), ...(question.shown ? { shown: question.shown } : {}),
      });
      shared.settle(result.approval);
      return result;
    } catch (error) {
      this.problem = asProblem(error);
      return null;
    } finally {
      this.busy = false;
    }
  }
}
