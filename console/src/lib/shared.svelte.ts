// What the whole console shows: open questions, open runs, servers that do not work. Fetched once, then kept current by the
// feed; nothing here polls.

import type { Question, RunRow } from './console-methods.ts';
import { hub, type FeedItem } from './hub.svelte.ts';
import type { McpServersAnswerServerStatus } from '../types/methods.ts';

const OPEN = ['pending', 'running', 'paused'] as const;

class Shared {
  questions = $state.raw<Question[]>([]);
  /** When each question appeared here: keys and taps are ignored for a moment after that. */
  appeared = new Map<string, number>();
  open = $state.raw<RunRow[]>([]);
  servers = $state.raw<McpServersAnswerServerStatus[]>([]);
  loaded = $state(false);
  /** The newest run that ended while this tab was open. */
  lastEnded = $state.raw<RunRow | null>(null);

  get broken(): McpServersAnswerServerStatus[] {
    return this.servers.filter((server) => server.status === 'unavailable' || (server.error ?? '') !== '');
  }

  start(): void {
    hub.onFeed((item) => this.#take(item));
    $effect.root(() => {
      $effect(() => {
        void hub.gaps;
        if (hub.live) void this.load();
      });
    });
  }

  async load(): Promise<void> {
    const [questions, runs, servers] = await Promise.allSettled([
      hub.mayAnswer && hub.has('approvals.list') ? hub.call('approvals.list', {}) : Promise.resolve({ approvals: [] }),
      hub.call('runs.list', { status: [...OPEN], counts: true, limit: 100 }),
      hub.has('mcp.servers') ? hub.call('mcp.servers', {}) : Promise.resolve({ servers: [] }),
    ]);
    if (questions.status === 'fulfilled') this.#questions(questions.value.approvals);
    if (runs.status === 'fulfilled') this.open = runs.value.runs;
    if (servers.status === 'fulfilled') this.servers = servers.value.servers;
    this.loaded = true;
  }

  async loadServers(): Promise<void> {
    this.servers = (await hub.call('mcp.servers', {})).servers;
  }

  /** Takes a question as settled, before the feed says so. */
  settle(question: Question): void {
    this.questions = this.questions.filter((each) => each.id !== question.id);
  }

  /** The feed names a question; what is to be shown of it is fetched. */
  async #fetch(id: string): Promise<void> {
    try {
      const { approval } = await hub.call('approvals.show', { id });
      if (!approval.answer) this.#questions([...this.questions.filter((each) => each.id !== id), approval]);
    } catch {
      // Answered or gone in the meantime: the feed says so next. A lost connection loads everything again.
    }
  }

  #questions(list: Question[]): void {
    for (const question of list) if (!this.appeared.has(question.id)) this.appeared.set(question.id, performance.now());
    this.questions = [...list].sort((a, b) => a.askedAt.localeCompare(b.askedAt));
  }

  #take(item: FeedItem): void {
    if (item.kind === 'approval') {
      if (item.event === 'requested' && item.id) void this.#fetch(item.id);
      else this.#questions(this.questions.filter((each) => each.id !== item.id));
    }
    if (item.kind === 'run' && item.run) {
      const run = item.run as RunRow;
      const others = this.open.filter((each) => each.runId !== run.runId);
      const isOpen = (OPEN as readonly string[]).includes(run.status);
      this.open = isOpen ? [run, ...others].sort((a, b) => b.startedAt.localeCompare(a.startedAt)) : others;
      if (!isOpen) this.lastEnded = run;
    }
  }
}

export const shared = new Shared();
