// Reads the record of a run: frames of the store become rows of the waterfall. What the rows say is what the record says.

import type { Json } from '../types/methods.ts';
import type { Effects } from './console-methods.ts';
import { throughDoor } from './text.ts';

export const KIND = {
  started: 1, asked: 2, confirmed: 3, call: 4, result: 5, refused: 6, retry: 7, note: 8, cancel: 9, paused: 10, settled: 11, finished: 12, checkpoint: 13,
} as const;

export interface RawFrame {
  seq: number;
  kind: number;
  payload: string;
  chain: string;
}

interface Outcome {
  st: string;
  b: number;
  us: number;
  e?: { code: string; message: string; suggestion?: string } | null;
  fx?: Effects | null;
}

export interface Started {
  runId: string;
  kind: string;
  plan?: { goal: string; steps: { id: string; tool: string; dependsOn?: string[] }[] } | null;
  planHash?: string | null;
  policyHash: string;
  caller: { [key: string]: Json };
  startedAt: string;
  parentRunId?: string | null;
  previewHash?: string | null;
  title?: string | null;
  executorVersion: string;
}

export interface Confirmed {
  decision: string;
  by: string;
  door?: string | null;
  at: string;
  scope?: string;
  previewHash?: string | null;
  grantId?: string | null;
}

export type RowKind = 'mark' | 'call' | 'wait' | 'group';

export interface Row {
  kind: RowKind;
  /** Numbers of the records that the row stands for. */
  first: number;
  last: number;
  /** Records of the row when they are not neighbours. */
  seqs: number[];
  name: string;
  /** Whether the name is a tool's, and shown in mono. */
  tool: boolean;
  small: string;
  knot: 'plain' | 'signature' | 'ask';
  start: number;
  end: number;
  bar: 'read' | 'write' | 'fail' | 'person' | 'wait' | 'live' | '';
  failed: boolean;
  /** Attempts that failed before this one. */
  tries: number;
  /** Places in time of failed tries, for ticks. */
  ticks: number[];
  callId: string;
  stepId: string;
  child: boolean;
  /** Of a group: the rows below it. */
  children: Row[];
  error: string;
}

export interface Change {
  kind: 'added' | 'changed' | 'renamed' | 'removed';
  path: string;
  from: string | null;
  callId: string;
  seq: number;
}

export interface RunRecord {
  started: Started | null;
  rows: Row[];
  changes: Change[];
  approvals: Confirmed[];
  calls: number;
  failed: number;
  records: number;
  signatures: number;
  finished: { at: number; status: string; error: { code: string; message: string } | null; message: string } | null;
  /** Calls whose fate is unknown, when the run waits for somebody to settle them. */
  doubt: { callIds: string[]; message: string } | null;
  /** How the effects differ from the preview that was approved; null where they do not, or where nothing was bound. */
  deviation: Deviation | null;
}

/** Lines like "create Notes/New.md": predicted and not done, and done without being predicted. */
export interface Deviation {
  missing: string[];
  unexpected: string[];
}

export function decode(payload: string): unknown {
  const bytes = Uint8Array.from(atob(payload), (char) => char.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(bytes));
}

function mark(seq: number, name: string, small: string, at: number, change: Partial<Row> = {}): Row {
  return {
    kind: 'mark', first: seq, last: seq, seqs: [seq], name, tool: false, small, knot: 'plain', start: at, end: at, bar: '', failed: false, tries: 0, ticks: [],
    callId: '', stepId: '', child: false, children: [], error: '', ...change,
  };
}

/** Takes frames in order, page by page, and keeps what the page shows of them; the bytes themselves are let go. */
export class Reader {
  record: RunRecord = {
    started: null, rows: [], changes: [], approvals: [], calls: 0, failed: 0, records: 0, signatures: 0, finished: null, doubt: null, deviation: null,
  };
  #flat: Row[] = [];
  #open = new Map<string, Row>();
  #retries = new Map<string, number[]>();
  #asked: Row | null = null;
  #now = 0;

  take(frames: RawFrame[]): void {
    for (const frame of frames) {
      if (frame.seq <= this.record.records) continue;
      this.#frame(frame);
      this.record.records = frame.seq;
    }
    this.record = { ...this.record, rows: grouped(this.#flat) };
  }

  #frame(frame: RawFrame): void {
    const value = decode(frame.payload) as Record<string, never>;
    switch (frame.kind) {
      case KIND.started: return this.#started(frame.seq, value as unknown as Started);
      case KIND.asked: return this.#ask(frame.seq, value as unknown as { message: string; at: string });
      case KIND.confirmed: return this.#confirmed(frame.seq, value as unknown as Confirmed);
      case KIND.call: return this.#call(frame.seq, value as unknown as CallFrame);
      case KIND.result: return this.#result(frame.seq, value as unknown as { c: string; o: Outcome });
      case KIND.refused: return this.#refused(frame.seq, value as unknown as RefusedFrame);
      case KIND.retry: return this.#retry(frame.seq, value as unknown as { s: string; n: number; at: string; w: string });
      default: return this.#rest(frame.seq, frame.kind, value);
    }
  }

  #started(seq: number, value: Started): void {
    this.record.started = value;
    this.#now = Date.parse(value.startedAt);
    const parts = [value.planHash ? `plan ${hex4(value.planHash)}` : '', `policy ${hex4(value.policyHash)}`].filter(Boolean);
    this.#flat.push(mark(seq, 'Run started', parts.join(', '), this.#now));
  }

  #ask(seq: number, value: { message: string; at: string }): void {
    const at = Date.parse(value.at);
    this.#asked = mark(seq, 'Asked', value.message, at, { kind: 'wait', knot: 'ask', bar: 'person' });
    this.#flat.push(this.#asked);
  }

  #confirmed(seq: number, value: Confirmed): void {
    this.record.approvals.push(value);
    const at = Date.parse(value.at);
    const word = value.decision === 'denied' ? 'denied' : 'allowed';
    const who = [value.by.replace(/^uid:/, 'user '), value.door ? throughDoor(value.door) : ''].filter(Boolean).join(', ');
    if (this.#asked) {
      Object.assign(this.#asked, { name: `Asked, ${word}`, small: who, last: seq, end: at });
      this.#asked.seqs.push(seq);
      this.#asked = null;
    } else this.#flat.push(mark(seq, word === 'allowed' ? 'Allowed' : 'Denied', who, at, { knot: 'ask' }));
    this.#now = Math.max(this.#now, at);
  }

  #call(seq: number, value: CallFrame): void {
    const at = value.at / 1000;
    this.record.calls += 1;
    const ticks = this.#retries.get(value.s) ?? [];
    const row = mark(seq, value.t, label(value), at, {
      kind: 'call', tool: true, bar: value.r === 'read-only' ? 'read' : 'write', callId: value.c, stepId: value.s, child: Boolean(value.i), tries: value.n - 1, ticks,
      end: at,
    });
    if (value.n > 1) {
      const before = this.#flat.findLast((each) => each.kind === 'call' && each.stepId === value.s && each.failed);
      if (before) {
        // Attempts of one step are one row: the bar runs from the first to the last, with a tick for each failed try.
        this.#flat.splice(this.#flat.indexOf(before), 1);
        Object.assign(row, { start: before.start, first: before.first, seqs: [...before.seqs, seq], ticks: [...before.ticks, before.end] });
        row.small = `${value.n} tries`;
      }
    }
    row.bar = row.bar === 'read' || row.bar === 'write' ? row.bar : 'live';
    this.#open.set(value.c, row);
    this.#flat.push(row);
    this.#now = Math.max(this.#now, at);
  }

  #result(seq: number, value: { c: string; o: Outcome }): void {
    const row = this.#open.get(value.c);
    if (!row) return;
    this.#open.delete(value.c);
    row.last = Math.max(row.last, seq);
    row.seqs.push(seq);
    this.#outcome(row, value.o, seq);
  }

  #outcome(row: Row, outcome: Outcome, seq: number): void {
    const begun = outcome.b / 1000;
    if (row.seqs.length <= 2) row.start = begun;
    row.end = begun + outcome.us / 1000;
    this.#now = Math.max(this.#now, row.end);
    const error = outcome.e ?? null;
    if (outcome.st !== 'ok') {
      row.failed = outcome.st !== 'skipped';
      row.error = error ? `${error.code}: ${error.message}` : outcome.st;
      row.small = [row.small, error?.code ?? outcome.st].filter(Boolean).join(', ');
      row.bar = 'fail';
      this.record.failed += 1;
    }
    this.#changes(outcome.fx ?? null, row.callId, seq);
  }

  #changes(effects: Effects | null, callId: string, seq: number): void {
    if (!effects) return;
    const add = (kind: Change['kind'], path: string, from: string | null = null): void => {
      this.record.changes.push({ kind, path, from, callId, seq });
    };
    effects.created?.forEach((each) => add('added', each.path));
    effects.modified?.forEach((each) => add('changed', each.path));
    effects.deleted?.forEach((each) => add('removed', each.path));
    effects.renamed?.forEach((each) => add('renamed', each.to, each.from));
  }

  #refused(seq: number, value: RefusedFrame): void {
    const at = value.o.b / 1000;
    const row = mark(seq, value.t, '', at, { kind: 'call', tool: true, callId: value.c, stepId: value.s });
    this.#outcome(row, value.o, seq);
    this.#flat.push(row);
  }

  #retry(seq: number, value: { s: string; n: number; at: string; w: string }): void {
    const known = this.#retries.get(value.s) ?? [];
    this.#retries.set(value.s, [...known, Date.parse(value.w)]);
    const row = this.#flat.findLast((each) => each.stepId === value.s && each.kind === 'call');
    if (row) {
      row.seqs.push(seq);
      row.last = seq;
    }
  }

  #rest(seq: number, kind: number, value: Record<string, unknown>): void {
    const at = typeof value.at === 'string' ? Date.parse(value.at) : this.#now;
    this.#now = Math.max(this.#now, at);
    const text = (key: string): string => (typeof value[key] === 'string' ? (value[key] as string) : '');
    if (kind === KIND.note) {
      const deviation = (value.payload as { deviation?: Deviation } | null | undefined)?.deviation;
      if (deviation) this.record.deviation = deviation;
      this.#flat.push(mark(seq, 'Note', text('message'), at, { failed: Boolean(deviation) }));
    }
    else if (kind === KIND.cancel) this.#flat.push(mark(seq, 'Cancelled', [text('by'), text('reason')].filter(Boolean).join(': '), at));
    else if (kind === KIND.paused) {
      this.record.doubt = { callIds: (value.callIds as string[] | undefined) ?? [], message: text('message') };
      this.#flat.push(mark(seq, 'Paused', text('message'), at, { knot: 'ask' }));
    } else if (kind === KIND.settled) {
      this.record.doubt = null;
      this.#flat.push(mark(seq, 'Settled', [text('choice'), text('by')].filter(Boolean).join(', '), at, { knot: 'ask' }));
    } else if (kind === KIND.finished) {
      const error = (value.error as { code: string; message: string } | null | undefined) ?? null;
      const status = text('status');
      this.record.finished = { at, status, error, message: text('message') };
      this.#flat.push(mark(seq, status === 'finished' ? 'Run finished' : `Run ${status}`, error?.code ?? '', at, { failed: status === 'failed' }));
    } else if (kind === KIND.checkpoint) {
      this.record.signatures += 1;
      this.#flat.push(mark(seq, 'Signed', '', this.#now, { knot: 'signature' }));
    }
  }
}

interface CallFrame {
  c: string; s: string; t: string; n: number; at: number; r: string; h: string; p?: string;
  a?: { [key: string]: Json };
  i?: { index: number; itemName: string; itemValue: Json } | null;
}

interface RefusedFrame {
  c: string; s: string; t: string; n: number; o: Outcome;
}

const PATHS = ['path', 'toPath', 'fromPath', 'file', 'uri', 'url', 'query', 'name'];

function label(call: CallFrame): string {
  // The calls of a loop share a preview; their paths tell them apart.
  if (call.p && !call.i) return call.p;
  for (const key of PATHS) {
    const value = call.a?.[key];
    if (typeof value === 'string') return value;
  }
  if (call.i) return call.p ?? (typeof call.i.itemValue === 'string' ? call.i.itemValue : `${call.i.itemName} ${call.i.index}`);
  return '';
}

function hex4(hash: string): string {
  return hash.replace(/^[a-z0-9]+:/, '').slice(0, 4);
}

/** The greatest value; a loop may have more rows than a function may have arguments. */
function most(rows: Row[], value: (row: Row) => number): number {
  return rows.reduce((found, row) => Math.max(found, value(row)), -Infinity);
}

/** Neighbouring calls of one loop become a group with its rows below it. */
export function grouped(flat: Row[]): Row[] {
  const rows: Row[] = [];
  for (let at = 0; at < flat.length; at += 1) {
    const row = flat[at];
    if (!row) continue;
    let to = at + 1;
    while (row.child && flat[to]?.child && flat[to]?.stepId === row.stepId) to += 1;
    if (to - at < 3) {
      rows.push(row.child ? { ...row, child: false } : row);
      continue;
    }
    const children = flat.slice(at, to);
    const done = children.filter((each) => !each.failed).length;
    const failed = children.some((each) => each.failed);
    rows.push({
      ...row, kind: 'group', child: false, children, small: `${done} of ${children.length}`, first: row.first, last: most(children, (each) => each.last),
      seqs: [], start: -most(children, (each) => -each.start), end: most(children, (each) => each.end), failed: false, bar: failed && done === 0 ? 'fail' : row.bar === 'fail' ? 'write' : row.bar,
      callId: '', error: '', ticks: [], tries: 0,
    });
    at = to - 1;
  }
  return rows;
}
