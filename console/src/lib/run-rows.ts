// The rows of the list of runs, drawn by hand: a row is made once and written anew when it shows another run, so that a
// frame of scrolling costs a few texts. Once scrolling rests, rows stand in the document in the order in which they are seen,
// which is the order for the keyboard and for screen readers.

import { count, dayKey, plural, took, when } from './format.ts';
import type { RunRow } from './console-methods.ts';
import type { Item } from './runs-list.svelte.ts';
import { runLook } from './status.ts';
import { pieces } from './text.ts';

/** How long nothing is drawn before the rows are put in order. */
const REST_MS = 120;
/** Times that are kept as they are written. */
const MOST_TIMES = 2000;
const SVG = 'http://www.w3.org/2000/svg';

export interface Drawing {
  items: Item[];
  from: number;
  to: number;
  /** The height of a row. */
  height: number;
  /** The line that the keyboard is on; -1 for none. */
  cursor: number;
  now: number;
  phone: boolean;
}

interface Line {
  element: HTMLElement;
  /** Writes what differs from what the row shows. */
  write(item: Item, drawing: Drawing): void;
  isDay: boolean;
  at: number;
  /** What it shows, and what time it was when it was written. */
  item: Item | null;
  written: number | null;
  isCursor: boolean;
}

function make(tag: string, className: string, role = ''): HTMLElement {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (role) element.setAttribute('role', role);
  return element;
}

/** A text that is written only when it differs: writing costs a layout. */
function texts(element: HTMLElement): (text: string) => void {
  const node = element.appendChild(document.createTextNode(''));
  return (text) => {
    if (text !== node.data) node.data = text;
  };
}

/** A name that an agent or a tool gave: its own direction, control characters as chips. */
function names(parent: HTMLElement): (text: string) => void {
  const bdi = parent.appendChild(document.createElement('bdi'));
  const node = bdi.appendChild(document.createTextNode(''));
  let shown = '';
  return (text) => {
    if (text === shown) return;
    shown = text;
    const parts = pieces(text);
    if (parts.length === 1 && parts[0]?.control === false) {
      node.data = text;
      if (bdi.firstChild !== node || bdi.childNodes.length > 1) bdi.replaceChildren(node);
      return;
    }
    bdi.replaceChildren(...parts.map((part) => {
      const span = make('span', part.control ? 'cc' : '');
      span.textContent = part.text;
      return span;
    }));
  };
}

function statuses(cell: HTMLElement): (run: RunRow) => void {
  const svg = cell.appendChild(document.createElementNS(SVG, 'svg'));
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('aria-hidden', 'true');
  const use = svg.appendChild(document.createElementNS(SVG, 'use'));
  const word = cell.appendChild(document.createTextNode(''));
  let shown = '';
  return (run) => {
    const look = runLook(run);
    const key = `${look.tone} ${look.icon} ${look.word}`;
    if (key === shown) return;
    shown = key;
    cell.className = `st ${look.tone}`;
    svg.setAttribute('class', look.spin ? 'spin' : '');
    use.setAttribute('href', `#${look.icon}`);
    word.data = look.word;
  };
}

function length(run: RunRow, now: number): string {
  if (run.durationMs !== null && run.durationMs !== undefined) return took(run.durationMs);
  if (run.endedAt) return took(Date.parse(run.endedAt) - Date.parse(run.startedAt));
  return run.status === 'running' ? took(Math.max(0, now - Date.parse(run.startedAt))) : '';
}

/** Times as they are written, by minute: formatting a date costs more than the rest of a row. */
class Times {
  #day = '';
  readonly #written = new Map<number, string>();

  of(text: string, now: number): string {
    const at = Date.parse(text);
    const day = dayKey(now);
    if (day !== this.#day || this.#written.size >= MOST_TIMES) this.#written.clear();
    this.#day = day;
    const minute = Math.floor(at / 60_000);
    let written = this.#written.get(minute);
    if (written === undefined) this.#written.set(minute, (written = when(at, now)));
    return written;
  }
}
const times = new Times();

/** The goal of a run, as a link that is stretched over the row. */
function goals(cell: HTMLElement): (run: RunRow) => void {
  const link = cell.appendChild(document.createElement('a'));
  const tag = make('span', 'tag');
  tag.textContent = 'call';
  const gap = document.createTextNode(' ');
  const title = names(link);
  // What a call was about. A plan has a goal, which says it.
  const about = make('span', 'about');
  about.append(' ');
  const subject = names(about);
  let shown = '';
  return (run) => {
    if (run.runId !== shown) link.setAttribute('href', `/runs/${(shown = run.runId)}`);
    const isCall = run.kind === 'call';
    if (isCall !== (tag.parentNode === link)) {
      if (isCall) link.prepend(tag, gap);
      else link.replaceChildren(...[...link.childNodes].filter((node) => node !== tag && node !== gap));
    }
    title(run.title);
    const text = isCall ? (run.subject ?? '') : '';
    subject(text);
    if ((text !== '') !== (about.parentNode === link)) {
      if (text) link.append(about);
      else about.remove();
    }
  };
}

/** A row of a wide window: a cell for each column. */
function wideLine(): Line {
  const element = make('div', 'row run-row', 'row');
  const cell = (className: string): HTMLElement => element.appendChild(make('span', className, 'cell'));
  const status = statuses(cell('st'));
  const goal = goals(cell('goal'));
  const agent = names(cell('who'));
  const door = texts(cell('who c-door'));
  const started = texts(cell('num c-at'));
  const lasted = texts(cell('num c-took'));
  const calls = texts(cell('num c-calls'));
  const failed = texts(cell('num c-failed'));
  const files = texts(cell('num c-files'));
  return {
    element, isDay: false, at: -1, item: null, written: null, isCursor: false,
    write(item, { now }) {
      if (!('run' in item)) return;
      const { run } = item;
      status(run);
      goal(run);
      agent(run.agent ?? '');
      door(run.door ?? '');
      started(times.of(run.startedAt, now));
      lasted(length(run, now));
      calls(run.calls === undefined ? '' : count(run.calls));
      failed(run.failed ? count(run.failed) : '');
      files(run.changed === undefined ? '' : count(run.changed));
    },
  };
}

/** A row of a phone: the goal and how long it took; below, the status, who and when, and what changed. */
function phoneLine(): Line {
  const element = make('div', 'row run-row', 'row');
  const cell = (className: string): HTMLElement => element.appendChild(make('span', className, 'cell'));
  const meta = cell('c-st');
  const status = statuses(meta.appendChild(make('span', 'st')));
  const about = meta.appendChild(make('span', 'onphone small dim'));
  const agent = names(about);
  const started = texts(about);
  const goal = goals(cell('goal'));
  const lasted = texts(cell('num c-took'));
  const changed = cell('c-delta small');
  const changes = texts(changed);
  return {
    element, isDay: false, at: -1, item: null, written: null, isCursor: false,
    write(item, { now }) {
      if (!('run' in item)) return;
      const { run } = item;
      const at = times.of(run.startedAt, now);
      status(run);
      agent(run.agent ?? '');
      started(run.agent ? `, ${at}` : at);
      goal(run);
      lasted(length(run, now));
      changed.classList.toggle('faint', !run.failed && !run.changed);
      changed.classList.toggle('del', Boolean(run.failed));
      changes(run.failed ? `${count(run.failed)} failed` : run.changed ? plural(run.changed, 'file') : run.changed === 0 ? 'none' : '');
    },
  };
}

function dayLine(): Line {
  const element = make('div', 'day', 'row');
  const text = texts(element.appendChild(make('div', 'line', 'cell')));
  return { element, isDay: true, at: -1, item: null, written: null, isCursor: false, write: (item) => { if ('day' in item) text(item.day); } };
}

export class RunRows {
  readonly #body: HTMLElement;
  #lines: Line[] = [];
  /** Rows that are not needed at present. */
  #spare: Line[] = [];
  #height = 0;
  #phone = false;
  #rest: ReturnType<typeof setTimeout> | undefined;

  constructor(body: HTMLElement) {
    this.#body = body;
  }

  draw(drawing: Drawing): void {
    const { items, from, to, phone } = drawing;
    if (phone !== this.#phone) this.#clear(phone);
    const kept = new Map(this.#lines.map((line) => [line.at, line]));
    const wanted: (Line | null)[] = [];
    for (let at = from; at < to; at += 1) {
      const line = kept.get(at);
      const fits = line !== undefined && line.isDay === ('day' in (items[at] ?? {}));
      if (fits) kept.delete(at);
      wanted.push(fits ? line : null);
    }
    const free = [...kept.values(), ...this.#spare];
    this.#lines = wanted.map((line, index) => line ?? take(free, 'day' in (items[from + index] ?? {}), phone));
    for (const line of free) if (line.element.parentNode) line.element.remove();
    this.#spare = free;
    this.#place(drawing);
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => this.#order(), REST_MS);
  }

  /** A narrow window has other rows than a wide one. */
  #clear(phone: boolean): void {
    this.#phone = phone;
    this.#lines = [];
    this.#spare = [];
    this.#body.replaceChildren();
  }

  /** A row that stands where it belongs is not moved: focus and selection stay in it. */
  #order(): void {
    let next: Element | null = null;
    for (const { element } of this.#lines.toReversed()) {
      if (element.nextElementSibling !== next) this.#body.insertBefore(element, next);
      next = element;
    }
  }

  #place(drawing: Drawing): void {
    const { items, from, height, cursor, now } = drawing;
    for (const [index, line] of this.#lines.entries()) {
      const item = items[from + index];
      if (!item) continue;
      const { element } = line;
      const at = from + index;
      if (line.item !== item || line.written !== now) {
        line.write(item, drawing);
        [line.item, line.written] = [item, now];
      }
      const isMoved = line.at !== at;
      line.at = at;
      if (isMoved || height !== this.#height) element.style.transform = `translateY(${at * height}px)`;
      const isCursor = at === cursor && !line.isDay;
      if (isCursor !== line.isCursor) {
        line.isCursor = isCursor;
        element.classList.toggle('cursor', isCursor);
        if (isCursor) element.setAttribute('aria-current', 'true');
        else element.removeAttribute('aria-current');
      }
      if (element.parentNode !== this.#body) this.#body.append(element);
    }
    this.#height = height;
  }
}

/** A row of the kind that is free, or a new one. */
function take(free: Line[], isDay: boolean, phone: boolean): Line {
  const found = free.findIndex((line) => line.isDay === isDay);
  const [line] = found >= 0 ? free.splice(found, 1) : [];
  return line ?? (isDay ? dayLine() : phone ? phoneLine() : wideLine());
}
