// Several tabs, one socket. The tab that holds a Web Lock has the connection; the others send their calls to it and receive
// its events through a BroadcastChannel. When that tab closes, the lock passes on and the next tab connects. A visible tab
// that gets no sign of life from the holder takes the lock away from it.

import { Connection, type Cursor, type ServerEvent, type State, type Surroundings } from './connection.ts';
import { offline, Problem, type ProblemShape } from './problem.ts';

const LOCK = 'toolyard-socket';
const CHANNEL = 'toolyard';
/** How long a visible tab waits for the holder of the socket to answer. */
const SIGN_OF_LIFE_MS = 2500;

type Message =
  | { kind: 'who' }
  | { kind: 'state'; state: State; cursor: Cursor | null }
  | { kind: 'event'; event: ServerEvent; cursor: Cursor | null }
  | { kind: 'gap' }
  | { kind: 'now' }
  | { kind: 'leader' }
  | { kind: 'call'; from: string; id: number; method: string; params: unknown }
  | { kind: 'reply'; to: string; id: number; payload?: unknown; problem?: ProblemShape };

export interface TabHandlers {
  onState(state: State): void;
  onEvent(event: ServerEvent): void;
  onGap(): void;
}

export type ConnectionParts = Pick<Surroundings, 'open' | 'sign' | 'now' | 'random' | 'after' | 'cancel'>;

export class Tabs {
  readonly #id = crypto.randomUUID();
  readonly #channel = new BroadcastChannel(CHANNEL);
  readonly #parts: ConnectionParts;
  readonly #handlers: TabHandlers;
  #connection: Connection | null = null;
  #cursor: Cursor | null = null;
  #live = false;
  #nextId = 1;
  #pending = new Map<number, { resolve(payload: unknown): void; reject(problem: Problem): void }>();
  #heard = 0;

  constructor(parts: ConnectionParts, handlers: TabHandlers) {
    this.#parts = parts;
    this.#handlers = handlers;
    this.#channel.onmessage = (event) => this.#receive(event.data as Message);
  }

  start(): void {
    this.#stand(false);
    this.lookForLeader();
  }

  /** Asks the holder of the socket for its state; takes over when a visible tab gets no answer. */
  lookForLeader(): void {
    if (this.#connection) {
      this.#connection.now();
      return;
    }
    const asked = this.#parts.now();
    this.#post({ kind: 'who' });
    this.#post({ kind: 'now' });
    this.#parts.after(SIGN_OF_LIFE_MS, () => {
      if (!this.#connection && this.#heard < asked && document.visibilityState === 'visible') this.#stand(true);
    });
  }

  call(method: string, params: unknown): Promise<unknown> {
    if (this.#connection) return this.#connection.call(method, params);
    if (!this.#live) return Promise.reject(offline());
    const id = this.#nextId;
    this.#nextId += 1;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      this.#post({ kind: 'call', from: this.#id, id, method, params });
    });
  }

  /** Tries to connect at once. */
  now(): void {
    if (this.#connection) this.#connection.now();
    else this.#post({ kind: 'now' });
  }

  #post(message: Message): void {
    this.#channel.postMessage(message);
  }

  /** Waits for the lock, and holds it until the tab closes or another tab steals it. */
  #stand(steal: boolean): void {
    navigator.locks
      .request(LOCK, { steal }, () => new Promise<void>(() => this.#lead()))
      .catch(() => {
        // The lock was stolen: this tab had not answered. It listens again.
        this.#connection?.stop();
        this.#connection = null;
        this.#stand(false);
      });
  }

  #lead(): void {
    const connection = new Connection({
      ...this.#parts,
      onState: (state) => {
        this.#live = state.phase === 'live';
        this.#handlers.onState(state);
        this.#post({ kind: 'state', state, cursor: connection.cursor });
      },
      onEvent: (event) => {
        this.#handlers.onEvent(event);
        this.#post({ kind: 'event', event, cursor: connection.cursor });
      },
      onGap: () => {
        this.#handlers.onGap();
        this.#post({ kind: 'gap' });
      },
    });
    // A tab that listened before knows how far the feed had come.
    connection.cursor = this.#cursor;
    this.#connection = connection;
    this.#abandon();
    this.#post({ kind: 'leader' });
    connection.start();
  }

  #receive(message: Message): void {
    const connection = this.#connection;
    if (connection) {
      if (message.kind === 'who') this.#post({ kind: 'state', state: connection.state, cursor: connection.cursor });
      else if (message.kind === 'now') connection.now();
      else if (message.kind === 'call') this.#serve(connection, message);
      return;
    }
    if (message.kind === 'state' || message.kind === 'event') {
      this.#heard = this.#parts.now();
      if (message.cursor) this.#cursor = message.cursor;
    }
    if (message.kind === 'state') {
      this.#live = message.state.phase === 'live';
      this.#handlers.onState(message.state);
    } else if (message.kind === 'event') this.#handlers.onEvent(message.event);
    else if (message.kind === 'gap') this.#handlers.onGap();
    else if (message.kind === 'leader') this.#abandon();
    else if (message.kind === 'reply' && message.to === this.#id) {
      const pending = this.#pending.get(message.id);
      this.#pending.delete(message.id);
      if (message.problem) pending?.reject(new Problem(message.problem));
      else pending?.resolve(message.payload);
    }
  }

  #serve(connection: Connection, message: Extract<Message, { kind: 'call' }>): void {
    connection.call(message.method, message.params).then(
      (payload) => this.#post({ kind: 'reply', to: message.from, id: message.id, payload }),
      (problem: Problem) => this.#post({ kind: 'reply', to: message.from, id: message.id, problem: problem.shape() }),
    );
  }

  /** Calls that went to a tab that is gone will not be answered. */
  #abandon(): void {
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const each of pending) each.reject(offline());
  }
}
