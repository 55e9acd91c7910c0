// The list of runs: pages of the server joined, kept current by the feed, never reordered under a finger.

import type { Params } from './api.ts';
import type { RunRow } from './console-methods.ts';
import { hub, type FeedItem } from './hub.svelte.ts';
import { asProblem, type Problem } from './problem.ts';

const PAGE = 200;

export interface Filters {
  status: string;
  kind: string;
  agent: string;
  tool: string;
  door: string;
  q: string;
  from: string;
  to: string;
}

export class RunsList {
  rows = $state.raw<RunRow[]>([]);
  /** New runs that wait behind "3 new". */
  fresh = $state.raw<RunRow[]>([]);
  loading = $state(false);
  slow = $state(false);
  problem = $state.raw<Problem | null>(null);
  /** Whether the server has older runs. */
  more = $state(false);
  loaded = $state(false);
  #filters: Filters;
  #next: string | null = null;
  #turn = 0;

  constructor(filters: Filters) {
    this.#filters = filters;
  }

  async reload(filters: Filters): Promise<void> {
    this.#filters = filters;
    this.#turn += 1;
    this.#next = null;
    this.loading = false;
    await this.#fetch(true);
  }

  async older(): Promise<void> {
    if (this.more && !this.loading) await this.#fetch(false);
  }

  /** Fetches every remaining page; for an export, and for the measurement of a long list. */
  async all(): Promise<void> {
    while (this.more && !this.problem) await this.#fetch(false);
  }

  async #fetch(replace: boolean): Promise<void> {
    const turn = this.#turn;
    this.loading = true;
    const timer = setTimeout(() => (this.slow = turn === this.#turn && this.loading), 150);
    try {
      // A page may hold fewer rows than asked for, even none, where a filter found little among those looked at.
      const answer = await hub.call('runs.list', { ...this.#params(), ...(replace || !this.#next ? {} : { before: this.#next }) });
      if (turn !== this.#turn) return;
      this.rows = replace ? answer.runs : [...this.rows, ...answer.runs];
      if (replace) this.fresh = [];
      this.#next = answer.next ?? null;
      this.more = this.#next !== null;
      this.problem = null;
      this.loaded = true;
    } catch (error) {
      if (turn === this.#turn) this.problem = asProblem(error);
    } finally {
      clearTimeout(timer);
      if (turn === this.#turn) this.loading = this.slow = false;
    }
    if (turn === this.#turn && this.more && !this.problem && this.rows.length < 50) await this.#fetch(false);
  }

  #params(): Params<'runs.list'> {
    const { status, kind, agent, tool, door, q, from, to } = this.#filters;
    return {
      counts: true,
      limit: PAGE,
      ...(status ? { status: [status] as Params<'runs.list'>['status'] } : {}),
      ...(kind ? { kind: kind as 'plan' | 'call' } : {}),
      ...(agent ? { agent } : {}),
      ...(tool ? { tool } : {}),
      ...(door ? { door } : {}),
      ...(q ? { text: q } : {}),
      ...(from ? { from } : {}),
      ...(to ? { to } : {}),
    };
  }

  /** Takes an item of the feed. With `hold`, a new row waits behind the pill. */
  take(item: FeedItem, hold: boolean): void {
    if (item.kind !== 'run' || !item.run) return;
    const run = item.run as RunRow;
    const known = this.rows.findIndex((row) => row.runId === run.runId);
    if (known >= 0) {
      const rows = [...this.rows];
      if (this.#filters.status && run.status !== this.#filters.status && !hold) rows.splice(known, 1);
      else rows[known] = { ...rows[known], ...run };
      this.rows = rows;
      return;
    }
    if (!this.#fits(run)) return;
    const waiting = this.fresh.some((row) => row.runId === run.runId);
    if (hold || waiting) this.fresh = [run, ...this.fresh.filter((row) => row.runId !== run.runId)];
    else this.rows = [run, ...this.rows];
  }

  /** Shows the rows that waited. */
  reveal(): void {
    this.rows = [...this.fresh, ...this.rows];
    this.fresh = [];
  }

  #fits(run: RunRow): boolean {
    const { status, kind, agent, tool, door, q, to } = this.#filters;
    if (status && run.status !== status) return false;
    if (kind && run.kind !== kind) return false;
    if (agent && run.agent !== agent) return false;
    if (tool && !run.tools?.includes(tool)) return false;
    if (door && run.door !== door) return false;
    if (q && !run.title.toLowerCase().includes(q.toLowerCase())) return false;
    return !to || run.startedAt <= to;
  }
}
