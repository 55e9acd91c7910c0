// Where the bars of a run's calls lie. A wait of more than 20 times the median call is folded into one narrow column, so that
// hours of waiting for a person do not squash the seconds in which something happened.

export interface Span {
  start: number;
  end: number;
  /** A wait can be folded; work is always drawn at its length. */
  wait: boolean;
}

export interface Fold {
  /** Time that the fold covers. */
  from: number;
  to: number;
  /** Share of the width, 0 to 1. */
  x: number;
  width: number;
}

export interface Scale {
  begin: number;
  end: number;
  folds: Fold[];
  /** The place of a moment, 0 to 1. */
  at(time: number): number;
  /** Moments for the axis, with their places. */
  ticks: { x: number; label: number; afterFold: boolean }[];
}

const FOLD_FACTOR = 20;
const FOLD_WIDTH = 0.1;
/** What all folds together may take of the width. */
const FOLDS_MOST = 0.4;

export function scale(spans: Span[]): Scale {
  const begin = Math.min(...ends(spans, 'start'));
  const end = Math.max(...ends(spans, 'end'), begin + 1);
  const gaps = idle(spans, begin, end);
  const work = spans.filter((span) => !span.wait).map((span) => span.end - span.start).sort((a, b) => a - b);
  const median = work[Math.floor(work.length / 2)] ?? 0;
  const folded = gaps.filter((gap) => gap.to - gap.from > Math.max(median * FOLD_FACTOR, 1000));
  const each = folded.length === 0 ? 0 : Math.min(FOLD_WIDTH, FOLDS_MOST / folded.length);
  const hidden = folded.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const drawn = Math.max(1, end - begin - hidden);
  const room = 1 - each * folded.length;
  const folds: Fold[] = [];
  let before = 0;
  for (const gap of folded) {
    const x = ((gap.from - begin - before) / drawn) * room + each * folds.length;
    folds.push({ from: gap.from, to: gap.to, x, width: each });
    before += gap.to - gap.from;
  }
  const at = (time: number): number => {
    let passed = 0;
    let columns = 0;
    for (const fold of folds) {
      if (time >= fold.to) {
        passed += fold.to - fold.from;
        columns += fold.width;
      } else if (time > fold.from) {
        return fold.x + fold.width * ((time - fold.from) / (fold.to - fold.from));
      }
    }
    return Math.min(1, Math.max(0, ((time - begin - passed) / drawn) * room + columns));
  };
  return { begin, end, folds, at, ticks: ticks(begin, end, folds, drawn, at) };
}

function ends(spans: Span[], key: 'start' | 'end'): number[] {
  return spans.length === 0 ? [0] : spans.map((span) => span[key]);
}

/** The stretches in which no call worked. */
function idle(spans: Span[], begin: number, end: number): { from: number; to: number }[] {
  const work = spans.filter((span) => !span.wait).sort((a, b) => a.start - b.start);
  const gaps: { from: number; to: number }[] = [];
  let reached = begin;
  for (const span of work) {
    if (span.start > reached) gaps.push({ from: reached, to: span.start });
    reached = Math.max(reached, span.end);
  }
  if (end > reached) gaps.push({ from: reached, to: end });
  return gaps;
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000,
  1_800_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000];

function ticks(begin: number, end: number, folds: Fold[], drawn: number, at: (time: number) => number): Scale['ticks'] {
  const step = STEPS.find((each) => drawn / each <= 5) ?? Math.ceil(drawn / 5);
  const found: Scale['ticks'] = [{ x: 0, label: 0, afterFold: false }];
  let part = begin;
  let afterFold = false;
  const stretch = (from: number, to: number): void => {
    for (let time = from + step; time < to; time += step) {
      const x = at(time);
      const crowded = found.some((tick) => Math.abs(tick.x - x) < 0.09) || folds.some((fold) => Math.abs(fold.x + fold.width / 2 - x) < 0.13);
      if (!crowded && x < 0.96) found.push({ x, label: time - from, afterFold });
    }
  };
  for (const fold of folds) {
    stretch(part, fold.from);
    part = fold.to;
    afterFold = true;
  }
  stretch(part, end);
  return found;
}
