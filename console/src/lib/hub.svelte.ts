// The console's one connection to Toolyard, for pages: its state, calls with types, and the feed of what happens.

import type { Answer, MethodName, Params } from './api.ts';
import type { Hello, ServerEvent, State } from './connection.ts';
import { forget, identity, signLines, type Identity } from './device.ts';
import { ORIGIN } from './origin.ts';
import { Problem } from './problem.ts';
import { Tabs } from './tabs.ts';

export interface FeedItem {
  /** Absent for the progress of a run, which is not sent again. */
  seq?: number;
  at: string;
  kind: 'run' | 'approval' | 'device' | 'lost';
  event?: string;
  runId?: string;
  run?: unknown;
  id?: string;
}

type Listener<T> = (value: T) => void;

/** How long the row of a run may be missing before it is fetched: a quick call has ended by then, and its end brings it. */
const ROW_MS = 500;

class Hub {
  phase = $state<State['phase'] | 'starting'>('starting');
  asOf = $state(0);
  retryAt = $state(0);
  hello = $state.raw<Hello | null>(null);
  identity = $state.raw<Identity | null>(null);
  /** Counts reconnects after which what is visible has to be fetched again. */
  gaps = $state(0);
  #tabs: Tabs | null = null;
  #feed = new Set<Listener<FeedItem>>();
  #events = new Set<Listener<ServerEvent>>();
  #build = '';
  /** Runs of which the feed has told without their row, because the store did not have it yet. */
  #rowless = new Set<string>();
  #rowTimer: ReturnType<typeof setTimeout> | undefined;

  get live(): boolean {
    return this.phase === 'live';
  }

  get rights(): 'owner' | 'approver' | 'viewer' {
    return this.hello?.device.rights ?? 'viewer';
  }

  /** The workspace that this device was paired in; nothing for the default one. */
  get workspace(): string | null {
    return this.hello?.device.workspace ?? null;
  }

  /** Whether this device may answer questions. */
  get mayAnswer(): boolean {
    return this.rights !== 'viewer';
  }

  /** Whether this device may change anything else. */
  get mayAct(): boolean {
    return this.rights === 'owner';
  }

  /** Whether the server has a method and lets this device call it. */
  has(method: MethodName): boolean {
    return this.hello?.methods.includes(method) ?? false;
  }

  async start(): Promise<void> {
    this.identity = await identity();
    if (!this.identity) {
      this.phase = 'unpaired';
      return;
    }
    this.#tabs = new Tabs(this.#parts(this.identity), {
      onState: (state) => this.#take(state),
      onEvent: (event) => this.#event(event),
      onGap: () => {
        this.gaps += 1;
      },
    });
    this.phase = 'connecting';
    this.#tabs.start();
    addEventListener('online', () => this.#tabs?.now());
    document.addEventListener('visibilitychange', () => {
      if (document.visibilityState === 'visible') this.#tabs?.lookForLeader();
    });
  }

  /** Tries to connect at once. */
  now(): void {
    this.#tabs?.now();
  }

  async call<M extends MethodName>(method: M, params: Params<M>): Promise<Answer<M>> {
    if (!this.#tabs) throw new Problem({ code: 'CONSOLE_NOT_PAIRED', message: 'This browser is not paired.', suggestion: 'Run: toolyard console' });
    return (await this.#tabs.call(method, params)) as Answer<M>;
  }

  onFeed(listener: Listener<FeedItem>): () => void {
    this.#feed.add(listener);
    return () => this.#feed.delete(listener);
  }

  onEvent(listener: Listener<ServerEvent>): () => void {
    this.#events.add(listener);
    return () => this.#events.delete(listener);
  }

  /** Forgets this device, here and at the server. */
  async logout(): Promise<void> {
    await fetch('/logout', { method: 'POST', credentials: 'same-origin' });
    await forget();
    location.assign('/pair');
  }

  #parts(who: Identity): ConstructorParameters<typeof Tabs>[0] {
    return {
      open: () => new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/console/socket`),
      sign: async (nonce) => ({
        deviceId: who.deviceId,
        signature: await signLines(who.keys, ['toolyard-console-connect-v1', ORIGIN, who.deviceId, nonce]),
      }),
      now: () => Date.now(),
      random: () => Math.random(),
      after: (ms, act) => setTimeout(act, ms),
      cancel: (timer) => clearTimeout(timer as number),
    };
  }

  #take(state: State): void {
    if (state.hello) {
      // After an upgrade the server carries another console: an old tab would speak an old protocol.
      if (this.#build && this.#build !== state.hello.console) location.reload();
      this.#build = state.hello.console;
      this.hello = state.hello;
    }
    this.phase = state.phase;
    this.asOf = state.asOf;
    this.retryAt = state.retryAt;
  }

  #event(event: ServerEvent): void {
    if (event.event === 'feed') this.#tell(event.payload as FeedItem);
    else for (const listener of this.#events) listener(event);
  }

  #tell(item: FeedItem): void {
    if (item.kind === 'run' && item.runId) {
      if (item.run) this.#rowless.delete(item.runId);
      else {
        this.#rowless.add(item.runId);
        this.#rowTimer ??= setTimeout(() => void this.#rows(), ROW_MS);
      }
    }
    for (const listener of this.#feed) listener(item);
  }

  /** Fetches the rows that the feed did not bring, and tells of them. */
  async #rows(): Promise<void> {
    this.#rowTimer = undefined;
    if (this.#rowless.size === 0 || !this.live) return;
    try {
      const { runs } = await this.call('runs.list', { counts: true, limit: 100 });
      const found = runs.filter((run) => this.#rowless.has(run.runId));
      this.#rowless.clear();
      for (const run of found.reverse()) this.#tell({ kind: 'run', event: 'run.progress', at: new Date().toISOString(), runId: run.runId, run });
    } catch {
      // The connection was lost: what is missed comes after the reconnect.
    }
  }
}

export const hub = new Hub();
