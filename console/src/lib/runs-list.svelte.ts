// The list of runs: pages of the server joined, kept current by the feed, never reordered under a finger.

import type { Params } from './api.ts';
import type { RunRow } from './console-methods.ts';
import { dayKey, longDay } from './format.ts';
import { hub, type FeedItem } from './hub.svelte.ts';
import { asProblem, type Problem } from './problem.ts';

const PAGE = 200;
/** Whoever wants everything is given it in few answers. */
const LARGE_PAGE = 2000;

/** A line of the list: a run, or the day that the runs below it belong to. */
export type Item = { day: string } | { run: RunRow };

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
  /**
   * The lines, changed in place: a list of 100,000 runs is not copied for a page or an item of the feed. `version` says that
   * it changed.
   */
  readonly items: Item[] = [];
  version = $state(0);
  /** How many of the lines are runs. */
  runs = $state(0);
  /** How many runs fit in all; null where the server cannot count them. */
  total = $state<number | null>(null);
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
  #known = new Set<string>();
  #day = '';

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
    while (this.more && !this.problem) await this.#fetch(false, LARGE_PAGE);
  }

  /** The runs as they are listed. */
  rows(): RunRow[] {
    return this.items.flatMap((item) => ('run' in item ? [item.run] : []));
  }

  #append(runs: RunRow[]): void {
    for (const run of runs) {
      if (this.#known.has(run.runId)) continue;
      this.#known.add(run.runId);
      const at = Date.parse(run.startedAt);
      const day = dayKey(at);
      if (day !== this.#day) {
        this.#day = day;
        this.items.push({ day: longDay(at) });
      }
      this.items.push({ run });
    }
    this.#changed();
  }

  #clear(): void {
    this.items.length = 0;
    this.#known.clear();
    // Today needs no heading.
    this.#day = dayKey(Date.now());
  }

  #changed(): void {
    this.runs = this.#known.size;
    this.version += 1;
  }

  async #fetch(replace: boolean, limit = PAGE): Promise<void> {
    const turn = this.#turn;
    this.loading = true;
    const timer = setTimeout(() => (this.slow = turn === this.#turn && this.loading), 150);
    try {
      // A page may hold fewer rows than asked for, even none, where a filter found little among those looked at.
      const answer = await hub.call('runs.list', { ...this.#params(), limit, ...(replace || !this.#next ? { total: true } : { before: this.#next }) });
      if (turn !== this.#turn) return;
      if (replace) {
        this.#clear();
        this.fresh = [];
        this.total = answer.total ?? null;
      }
      this.#append(answer.runs);
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
    if (turn === this.#turn && this.more && !this.problem && this.runs < 50) await this.#fetch(false);
  }

  #params(): Params<'runs.list'> {
    const { status, kind, agent, tool, door, q, from, to } = this.#filters;
    return {
      counts: true,
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
    if (this.#known.has(run.runId)) {
      const known = this.items.findIndex((item) => 'run' in item && item.run.runId === run.runId);
      const before = this.items[known];
      if (!before || !('run' in before)) return;
      if (this.#filters.status && run.status !== this.#filters.status && !hold) {
        this.items.splice(known, 1);
        this.#known.delete(run.runId);
        if (this.total !== null) this.total -= 1;
      } else this.items[known] = { run: { ...before.run, ...run } };
      this.#changed();
      return;
    }
    if (!this.#fits(run)) return;
    const waiting = this.fresh.some((row) => row.runId === run.runId);
    if (!waiting && this.total !== null) this.total += 1;
    if (hold || waiting) this.fresh = [run, ...this.fresh.filter((row) => row.runId !== run.runId)];
    else this.#prepend([run]);
  }

  #prepend(runs: RunRow[]): void {
    this.items.unshift(...runs.map((run) => ({ run })));
    for (const run of runs) this.#known.add(run.runId);
    this.#changed();
  }

  /** Shows the rows that waited. */
  reveal(): void {
    this.#prepend(this.fresh);
    this.fresh = [];
  }

  #fits(run: RunRow): boolean {
    const { status, kind, agent, tool, door, q, to } = this.#filters;
    if (status && run.status !== status) return false;
    if (kind && run.kind !== kind) return false;
    if (agent && run.agent !== agent) return false;
    if (tool && !run.tools?.includes(tool)) return false;
    if (door && run.door !== door) return false;
    if (q && ![run.title, run.runId, run.subject ?? '', ...(run.tools ?? [])].some((text) => text.toLowerCase().includes(q.toLowerCase()))) return false;
    return !to || run.startedAt <= to;
  }
}
