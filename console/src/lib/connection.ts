// One socket to Toolyard: challenge, signed nonce, requests and answers, the feed with its sequence numbers, and a new
// attempt with jitter after a loss. It knows nothing of tabs or pages.

import { wait } from './backoff.ts';
import { offline, Problem } from './problem.ts';

export type Rights = 'owner' | 'approver' | 'viewer';

export interface Device {
  id: string;
  name: string;
  rights: Rights;
  pairedAt: string;
  expiresAt: string;
  /** Absent for the default workspace. */
  workspace?: string;
}

export interface Hello {
  server: { version: string; buildId: string; bootId: string; connId: string };
  device: Device;
  publicKey: string;
  instance: string;
  /** The hash of the console that this server carries. */
  console: string;
  methods: string[];
  session: { mainKey: string };
}

export interface Cursor {
  bootId: string;
  seq: number;
}

export type Phase = 'connecting' | 'live' | 'offline' | 'unpaired';

export interface State {
  phase: Phase;
  /** When the data shown was last known to be current. */
  asOf: number;
  /** When the next attempt is made, while offline. */
  retryAt: number;
  hello: Hello | null;
}

/** An event of the server, with the name of the event. */
export interface ServerEvent {
  event: string;
  payload: unknown;
}

export interface SocketLike {
  send(text: string): void;
  close(code?: number): void;
  addEventListener(type: 'message', listener: (event: { data: unknown }) => void): void;
  addEventListener(type: 'close', listener: (event: { code: number }) => void): void;
}

export interface Surroundings {
  open(): SocketLike;
  sign(nonce: string): Promise<{ deviceId: string; signature: string }>;
  now(): number;
  random(): number;
  after(ms: number, act: () => void): unknown;
  cancel(timer: unknown): void;
  onState(state: State): void;
  onEvent(event: ServerEvent): void;
  /** Events may have been missed: what is visible is to be fetched again. */
  onGap(): void;
}

interface Frame {
  type: 'req' | 'res' | 'event';
  id?: string;
  ok?: boolean;
  payload?: unknown;
  event?: string;
  seq?: number;
  error?: { code: string; message: string; details?: { code?: string; suggestion?: string }; retryable?: boolean };
}

interface Waiting {
  resolve(payload: unknown): void;
  reject(problem: Problem): void;
}

const UNPAIRED = 4401;
const REVOKED = 1008;
/** A connection that does not greet within this time is given up. */
const GREETING_MS = 15_000;

export class Connection {
  state: State;
  /** The last item of the feed that was handed on. */
  cursor: Cursor | null = null;
  readonly #around: Surroundings;
  #socket: SocketLike | null = null;
  #waiting = new Map<string, Waiting>();
  #nextId = 1;
  #attempt = 0;
  #timer: unknown = null;
  #closed = false;

  constructor(around: Surroundings) {
    this.#around = around;
    this.state = { phase: 'connecting', asOf: around.now(), retryAt: 0, hello: null };
  }

  start(): void {
    this.#closed = false;
    this.#connect();
  }

  /** Connects at once instead of waiting: the network is back, or somebody looks. */
  now(): void {
    if (this.state.phase === 'offline') this.#connect();
  }

  stop(): void {
    this.#closed = true;
    this.#around.cancel(this.#timer);
    const socket = this.#socket;
    this.#drop();
    socket?.close(1000);
  }

  /** Calls a method. While offline it fails at once: nothing is ever queued. */
  call(method: string, params: unknown): Promise<unknown> {
    if (this.state.phase !== 'live') return Promise.reject(offline());
    return this.#request(method, params);
  }

  #request(method: string, params: unknown): Promise<unknown> {
    const socket = this.#socket;
    if (!socket) return Promise.reject(offline());
    const id = String(this.#nextId);
    this.#nextId += 1;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      socket.send(JSON.stringify({ type: 'req', id, method, params: params ?? {} }));
    });
  }

  #set(change: Partial<State>): void {
    this.state = { ...this.state, ...change };
    this.#around.onState(this.state);
  }

  #connect(): void {
    this.#around.cancel(this.#timer);
    if (this.#closed || this.#socket) return;
    if (this.state.phase !== 'connecting') this.#set({ phase: this.state.hello ? 'offline' : 'connecting' });
    const socket = this.#around.open();
    this.#socket = socket;
    const greeting = this.#around.after(GREETING_MS, () => {
      if (this.#socket === socket && this.state.phase !== 'live') socket.close();
    });
    socket.addEventListener('message', (message) => {
      if (this.#socket === socket) this.#take(socket, String(message.data), greeting);
    });
    socket.addEventListener('close', (event) => {
      this.#around.cancel(greeting);
      if (this.#socket === socket) this.#lost(event.code);
    });
  }

  #take(socket: SocketLike, text: string, greeting: unknown): void {
    const frame = JSON.parse(text) as Frame;
    if (frame.type === 'res' && frame.id) {
      const waiting = this.#waiting.get(frame.id);
      this.#waiting.delete(frame.id);
      if (!waiting) return;
      if (frame.ok) waiting.resolve(frame.payload);
      else waiting.reject(problemOf(frame.error));
      return;
    }
    if (frame.type !== 'event' || !frame.event) return;
    if (frame.event === 'connect.challenge') {
      const nonce = (frame.payload as { nonce: string }).nonce;
      this.#greet(socket, nonce, greeting).catch(() => {
        if (this.#socket === socket) socket.close();
      });
      return;
    }
    if (frame.event === 'feed') {
      // Progress of a run has no number: it is not sent again after a loss.
      const { seq, kind } = frame.payload as { seq?: number; kind?: string };
      if (this.cursor && seq !== undefined) this.cursor = { bootId: this.cursor.bootId, seq: Math.max(seq, this.cursor.seq) };
      if (kind === 'lost') this.#around.onGap();
    }
    this.#around.onEvent({ event: frame.event, payload: frame.payload });
  }

  async #greet(socket: SocketLike, nonce: string, greeting: unknown): Promise<void> {
    const signed = await this.#around.sign(nonce);
    if (this.#socket !== socket) return;
    const hello = (await this.#request('connect', signed)) as Hello;
    this.#around.cancel(greeting);
    const first = this.cursor === null;
    const feed = (await this.#request('console.subscribe', this.cursor ? { after: this.cursor } : {})) as {
      bootId: string; seq: number; resumed: boolean;
    };
    // While resuming, missed items come before or after this answer and move the cursor on from where it was.
    if (!feed.resumed || this.cursor?.bootId !== feed.bootId) this.cursor = { bootId: feed.bootId, seq: feed.seq };
    this.#attempt = 0;
    this.#set({ phase: 'live', hello, retryAt: 0, asOf: this.#around.now() });
    if (!first && !feed.resumed) this.#around.onGap();
  }

  #drop(): void {
    this.#socket = null;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const each of waiting) each.reject(lost());
  }

  #lost(code: number): void {
    const wasLive = this.state.phase === 'live';
    this.#drop();
    if (this.#closed) return;
    if (code === UNPAIRED || code === REVOKED) {
      this.#set({ phase: 'unpaired' });
      return;
    }
    const ms = wait(this.#attempt, this.#around.random());
    this.#attempt += 1;
    const now = this.#around.now();
    this.#set({ phase: 'offline', retryAt: now + ms, ...(wasLive ? { asOf: now } : {}) });
    this.#timer = this.#around.after(ms, () => this.#connect());
  }
}

function lost(): Problem {
  return new Problem({
    code: 'CONNECTION_LOST',
    message: 'The connection ended before the answer came.',
    suggestion: 'Look at what is shown after the reconnect before you try again: the server may have done it.',
    retryable: true,
  });
}

function problemOf(error: Frame['error']): Problem {
  if (!error) return new Problem({ code: 'INTERNAL_ERROR', message: 'The server refused without a reason.' });
  return new Problem({
    code: error.details?.code ?? error.code,
    message: error.message,
    suggestion: error.details?.suggestion,
    retryable: error.retryable,
  });
}
