import assert from 'node:assert/strict';
import test from 'node:test';
import { Connection, type SocketLike, type State, type Surroundings } from '../src/lib/connection.ts';

/** A socket whose server is the test. */
class FakeSocket implements SocketLike {
  sent: { id: string; method: string; params: Record<string, unknown> }[] = [];
  #message: ((event: { data: unknown }) => void)[] = [];
  #close: ((event: { code: number }) => void)[] = [];

  send(text: string): void {
    this.sent.push(JSON.parse(text) as never);
  }

  close(code = 1006): void {
    for (const listener of this.#close) listener({ code });
  }

  addEventListener(type: 'message' | 'close', listener: never): void {
    if (type === 'message') this.#message.push(listener);
    else this.#close.push(listener);
  }

  say(frame: unknown): void {
    for (const listener of this.#message) listener({ data: JSON.stringify(frame) });
  }

  async answer(payload: unknown): Promise<void> {
    const request = this.sent.at(-1);
    this.say({ type: 'res', id: request?.id, ok: true, payload });
    await settle();
  }
}

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const HELLO = { server: { bootId: 'b1' }, methods: [], device: { rights: 'owner' }, console: 'x' };

function setUp(): { connection: Connection; sockets: FakeSocket[]; states: State[]; events: unknown[]; gaps: () => number; timers: { ms: number; act: () => void }[] } {
  const sockets: FakeSocket[] = [];
  const states: State[] = [];
  const events: unknown[] = [];
  const timers: { ms: number; act: () => void }[] = [];
  let gaps = 0;
  const around: Surroundings = {
    open: () => {
      const socket = new FakeSocket();
      sockets.push(socket);
      return socket;
    },
    sign: async (nonce) => ({ deviceId: 'd', signature: `signed ${nonce}` }),
    now: () => 1000,
    random: () => 0.5,
    after: (ms, act) => {
      const timer = { ms, act };
      timers.push(timer);
      return timer;
    },
    cancel: () => undefined,
    onState: (state) => states.push(state),
    onEvent: (event) => events.push(event),
    onGap: () => {
      gaps += 1;
    },
  };
  return { connection: new Connection(around), sockets, states, events, gaps: () => gaps, timers };
}

async function greet(socket: FakeSocket | undefined, feed: unknown): Promise<void> {
  socket?.say({ type: 'event', event: 'connect.challenge', payload: { nonce: 'n1' } });
  await settle();
  await socket?.answer(HELLO);
  await socket?.answer(feed);
}

test('the nonce is signed, then the feed is asked for', async () => {
  const { connection, sockets } = setUp();
  connection.start();
  await greet(sockets[0], { bootId: 'b1', seq: 7, resumed: false });
  assert.deepEqual(sockets[0]?.sent.map((frame) => frame.method), ['connect', 'console.subscribe']);
  assert.equal(sockets[0]?.sent[0]?.params.signature, 'signed n1');
  assert.equal(connection.state.phase, 'live');
  assert.deepEqual(connection.cursor, { bootId: 'b1', seq: 7 });
});

test('while offline a call fails at once and nothing is queued', async () => {
  const { connection, sockets } = setUp();
  connection.start();
  await assert.rejects(connection.call('approvals.answer', {}), { code: 'OFFLINE' });
  await greet(sockets[0], { bootId: 'b1', seq: 0, resumed: false });
  assert.equal(sockets[0]?.sent.length, 2);
});

test('a call in flight when the socket closes is refused, and not sent again', async () => {
  const { connection, sockets, timers } = setUp();
  connection.start();
  await greet(sockets[0], { bootId: 'b1', seq: 0, resumed: false });
  const call = connection.call('approvals.answer', { id: 'q' });
  sockets[0]?.close(1006);
  await assert.rejects(call, { code: 'CONNECTION_LOST' });
  timers.at(-1)?.act();
  await greet(sockets[1], { bootId: 'b1', seq: 0, resumed: true });
  assert.deepEqual(sockets[1]?.sent.map((frame) => frame.method), ['connect', 'console.subscribe']);
});

test('after a loss the feed resumes behind the last item, without a gap', async () => {
  const { connection, sockets, events, gaps, timers } = setUp();
  connection.start();
  await greet(sockets[0], { bootId: 'b1', seq: 7, resumed: false });
  sockets[0]?.say({ type: 'event', event: 'feed', payload: { seq: 8 } });
  assert.equal(events.length, 1);
  sockets[0]?.close(1012);
  assert.equal(connection.state.phase, 'offline');
  timers.at(-1)?.act();
  await greet(sockets[1], { bootId: 'b1', seq: 8, resumed: true });
  assert.deepEqual(sockets[1]?.sent[1]?.params, { after: { bootId: 'b1', seq: 8 } });
  assert.equal(gaps(), 0);
});

test('another process means that what is visible is fetched again', async () => {
  const { connection, sockets, gaps, timers } = setUp();
  connection.start();
  await greet(sockets[0], { bootId: 'b1', seq: 7, resumed: false });
  sockets[0]?.close(1006);
  timers.at(-1)?.act();
  await greet(sockets[1], { bootId: 'b2', seq: 1, resumed: false });
  assert.equal(gaps(), 1);
  assert.deepEqual(connection.cursor, { bootId: 'b2', seq: 1 });
});

test('a forgotten or revoked device does not try again', () => {
  for (const code of [4401, 1008]) {
    const { connection, sockets, timers } = setUp();
    connection.start();
    const before = timers.length;
    sockets[0]?.close(code);
    assert.equal(connection.state.phase, 'unpaired');
    assert.equal(timers.length, before);
  }
});

test('somebody who looks does not wait for the timer', () => {
  const { connection, sockets } = setUp();
  connection.start();
  sockets[0]?.close(1006);
  connection.now();
  assert.equal(sockets.length, 2);
});
