// One run on its page: its record as far as it was read, live events, and the verification in this browser.

import { hub } from './hub.svelte.ts';
import { Problem, runProblem } from './problem.ts';
import { Reader, type RawFrame, type RunRecord } from './record.ts';
import { checkReceipt, parseKey, trustedKeys, Walker, type RecordKey, type Sealed, type Verdict } from './seam.ts';

const PAGE = 2000;
/** Records that are read first: more than a screen shows. */
const FIRST = 150;
/** Records at the end of a long record that are read first: the end of a run, and its signature. */
const TAIL = 16;
/** The seam is drawn at most this often while it is walked. */
const FRAMES = 60;

export type Checking = 'unchecked' | 'checking' | 'done';

/** Waits until the browser has drawn, or for a moment where it does not draw, as in a tab that is not seen. */
function drawn(): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, 100);
    requestAnimationFrame(() => setTimeout(() => {
      clearTimeout(timer);
      resolve();
    }));
  });
}

export class RunPage {
  record = $state.raw<RunRecord | null>(null);
  problem = $state.raw<Problem | null>(null);
  slow = $state(false);
  total = $state(0);
  /** How the run ended, where its record is long and not yet read to its end. */
  end = $state.raw<RunRecord['finished']>(null);
  checking = $state<Checking>('unchecked');
  verdict = $state.raw<Verdict | null>(null);
  /** Records up to which the walk has come. */
  walked = $state(0);
  tookMs = $state(0);
  sealed = $state.raw<Sealed | null>(null);
  key = $state.raw<RecordKey | null>(null);
  readonly id: string;
  #reader = new Reader();
  #reading = false;
  #again = false;
  /** The keys that the pinned one leads to. */
  #keys: RecordKey[] = [];
  #gone = false;

  constructor(id: string) {
    this.id = id;
  }

  stop(): void {
    this.#gone = true;
  }

  /** Reads what the record has gained. */
  async read(): Promise<void> {
    if (this.#reading) {
      this.#again = true;
      return;
    }
    this.#reading = true;
    const timer = setTimeout(() => (this.slow = this.record === null), 150);
    try {
      let from = this.#reader.record.records + 1;
      for (;;) {
        const page = await hub.call('runs.record', { runId: this.id, from, limit: from === 1 ? FIRST : PAGE });
        if (this.#gone) return;
        this.total = page.total;
        this.#reader.take(page.frames);
        this.record = this.#reader.record;
        this.problem = null;
        if (!page.next || page.frames.length === 0) break;
        if (from === 1) await this.#readEnd(page.next, page.total);
        // What was read is drawn before more is asked for: a page of a long record keeps the main thread busy.
        await drawn();
        if (this.#gone) return;
        from = page.next;
      }
    } catch (error) {
      this.problem = runProblem(error);
    } finally {
      clearTimeout(timer);
      this.slow = false;
      this.#reading = false;
    }
    if (this.#again) {
      this.#again = false;
      await this.read();
    }
  }

  /** A run that has ended is not shown as running while its record is being read. */
  async #readEnd(next: number, total: number): Promise<void> {
    const tail = await hub.call('runs.record', { runId: this.id, from: Math.max(next, total - TAIL + 1), limit: TAIL });
    const reader = new Reader();
    reader.take(tail.frames);
    this.end = reader.record.finished;
  }

  /** Recomputes every hash and signature of the record here, and follows the receipt to the signed root of the ledger. */
  async verify(): Promise<void> {
    if (this.checking === 'checking') return;
    const key = parseKey(hub.identity?.recordKey ?? '');
    if (!key) {
      this.problem = new Problem({ code: 'NO_PINNED_KEY', message: 'This browser has no key to verify with.', suggestion: 'Pair it again with: toolyard console' });
      return;
    }
    this.key = key;
    this.checking = 'checking';
    this.walked = 0;
    this.sealed = null;
    try {
      this.#keys = hub.has('keys.chain') ? await trustedKeys(key, (await hub.call('keys.chain', {})).changes) : [key];
      await this.#walk(new Walker(this.id, this.#keys));
    } catch (error) {
      this.problem = runProblem(error);
      this.checking = 'unchecked';
    }
  }

  async #walk(walker: Walker): Promise<void> {
    let from = 1;
    let spent = 0;
    for (;;) {
      const page = await hub.call('runs.record', { runId: this.id, from, limit: PAGE });
      if (this.#gone) return;
      const step = Math.max(1, Math.ceil(page.total / FRAMES));
      const begun = performance.now();
      const intact = await this.#page(walker, page.frames, step);
      spent += performance.now() - begun;
      if (!intact || !page.next || page.frames.length === 0) break;
      from = page.next;
    }
    this.tookMs = spent;
    this.walked = walker.verdict.records;
    const whole = this.#against(walker.verdict);
    if (!whole.broken) await this.#seal(walker, whole);
    this.verdict = whole;
    this.checking = 'done';
  }

  async #page(walker: Walker, frames: RawFrame[], step: number): Promise<boolean> {
    for (const frame of frames) {
      if (!(await walker.step(frame))) return false;
      if (frame.seq % step === 0) {
        this.walked = frame.seq;
        await new Promise((resolve) => requestAnimationFrame(resolve));
      }
    }
    return true;
  }

  /** A record that ends before what this page has already shown was cut off. */
  #against(verdict: Verdict): Verdict {
    const known = this.#reader.record.records;
    if (!verdict.broken && verdict.records < known) {
      return { ...verdict, broken: { seq: verdict.records + 1, problem: `Record ${verdict.records + 1} is missing: the record had ${known} records when it was shown here.` } };
    }
    return verdict;
  }

  async #seal(walker: Walker, verdict: Verdict): Promise<void> {
    if (!this.record?.finished || !hub.has('runs.prove') || !this.key) return;
    let sealed: Sealed | null = null;
    try {
      const receipt = await hub.call('runs.prove', { id: this.id });
      sealed = await checkReceipt(receipt, this.#keys);
    } catch {
      // No receipt yet: the ledger is written within half a second of a run's end. The verdict then says so.
      return;
    }
    if (sealed && (sealed.seq !== walker.verdict.records || sealed.head !== walker.verdict.head)) {
      verdict.broken = { seq: sealed.seq, problem: `The ledger holds another end of this run: record ${sealed.seq}.` };
      return;
    }
    this.sealed = sealed;
  }
}
