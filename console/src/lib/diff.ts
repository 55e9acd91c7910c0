// Reads unified diffs for display: files, hunks, numbered lines, changed words. Nothing of a diff is ever HTML.

export interface Mark {
  text: string;
  /** Whether these words differ from the line they replace or were replaced by. */
  changed: boolean;
}

export interface Line {
  kind: 'same' | 'add' | 'del' | 'hunk';
  old: number | null;
  new: number | null;
  marks: Mark[];
}

export type FileKind = 'added' | 'changed' | 'renamed' | 'removed';

export interface FileDiff {
  path: string;
  /** The path before, of a renamed file. */
  from: string | null;
  kind: FileKind;
  added: number;
  removed: number;
  lines: Line[];
}

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$/;
const ABSENT = '/dev/null';

/** Splits a unified diff into its files. */
export function parseDiff(text: string): FileDiff[] {
  const files: FileDiff[] = [];
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  let file: FileDiff | null = null;
  let oldLine = 0;
  let newLine = 0;
  // Lines that a hunk's head has announced and that are still to come. A "---" inside a hunk is a removed line of text.
  let oldLeft = 0;
  let newLeft = 0;
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at] ?? '';
    const inside = oldLeft > 0 || newLeft > 0;
    if (!inside && line.startsWith('--- ') && (lines[at + 1] ?? '').startsWith('+++ ')) {
      file = newFile(name(line), name(lines[at + 1] ?? ''), file);
      if (!files.includes(file)) files.push(file);
      at += 1;
      continue;
    }
    if (!inside) {
      const rename = /^rename (from|to) (.*)$/.exec(line);
      if (rename) {
        if (rename[1] === 'from') {
          file = { path: rename[2] ?? '', from: rename[2] ?? '', kind: 'renamed', added: 0, removed: 0, lines: [] };
          files.push(file);
        } else if (file) file.path = rename[2] ?? '';
        continue;
      }
    }
    const hunk: RegExpExecArray | null = inside ? null : HUNK.exec(line);
    if (hunk && file) {
      oldLine = Number(hunk[1]);
      newLine = Number(hunk[3]);
      oldLeft = hunk[2] === undefined ? 1 : Number(hunk[2]);
      newLeft = hunk[4] === undefined ? 1 : Number(hunk[4]);
      file.lines.push({ kind: 'hunk', old: null, new: null, marks: [{ text: line, changed: false }] });
      continue;
    }
    if (!file || !inside || line.startsWith('\\')) continue;
    const words = [{ text: line.slice(1), changed: false }];
    if (line.startsWith('+')) {
      file.lines.push({ kind: 'add', old: null, new: newLine++, marks: words });
      file.added += 1;
      newLeft -= 1;
    } else if (line.startsWith('-')) {
      file.lines.push({ kind: 'del', old: oldLine++, new: null, marks: words });
      file.removed += 1;
      oldLeft -= 1;
    } else {
      file.lines.push({ kind: 'same', old: oldLine++, new: newLine++, marks: words });
      oldLeft -= 1;
      newLeft -= 1;
    }
  }
  for (const each of files) markWords(each.lines);
  return files;
}

function name(header: string): string {
  const path = header.slice(4).split('\t')[0] ?? '';
  return path === ABSENT ? path : path.replace(/^[ab]\//, '');
}

function newFile(from: string, to: string, before: FileDiff | null): FileDiff {
  if (before && before.kind === 'renamed' && before.lines.length === 0 && before.path === to) return before;
  if (from === ABSENT) return { path: to, from: null, kind: 'added', added: 0, removed: 0, lines: [] };
  if (to === ABSENT) return { path: from, from: null, kind: 'removed', added: 0, removed: 0, lines: [] };
  const renamed = from !== to;
  return { path: to, from: renamed ? from : null, kind: renamed ? 'renamed' : 'changed', added: 0, removed: 0, lines: [] };
}

/** Marks the changed words where as many lines were removed as were added in their place. */
function markWords(lines: Line[]): void {
  let at = 0;
  while (at < lines.length) {
    const removed = run(lines, at, 'del');
    const added = run(lines, at + removed.length, 'add');
    if (removed.length > 0 && removed.length === added.length) {
      removed.forEach((line, index) => {
        const other = added[index];
        if (!other) return;
        const pair = changedWords(line.marks[0]?.text ?? '', other.marks[0]?.text ?? '');
        if (pair) [line.marks, other.marks] = pair;
      });
    }
    at += Math.max(1, removed.length + added.length);
  }
}

function run(lines: Line[], from: number, kind: Line['kind']): Line[] {
  let to = from;
  while (lines[to]?.kind === kind) to += 1;
  return lines.slice(from, to);
}

/** The words that two lines do not share at their beginning and end; nothing when they share too little to compare. */
export function changedWords(a: string, b: string): [Mark[], Mark[]] | null {
  const left = a.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
  const right = b.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head += 1;
  let tail = 0;
  while (tail < left.length - head && tail < right.length - head && left.at(-1 - tail) === right.at(-1 - tail)) tail += 1;
  const shared = [...left.slice(0, head), ...left.slice(left.length - tail)].join('').trim().length;
  if (shared === 0 || shared * 4 < Math.max(a.length, b.length)) return null;
  const cut = (words: string[]): Mark[] => [
    { text: words.slice(0, head).join(''), changed: false },
    { text: words.slice(head, words.length - tail).join(''), changed: true },
    { text: words.slice(words.length - tail).join(''), changed: false },
  ].filter((mark) => mark.text !== '');
  return [cut(left), cut(right)];
}

/** The sentence about a diff: "Adds 2 lines, changes 1." */
export function summary(files: FileDiff[]): string {
  const added = files.reduce((sum, file) => sum + file.added, 0);
  const removed = files.reduce((sum, file) => sum + file.removed, 0);
  const changed = Math.min(added, removed);
  const parts: string[] = [];
  const lines = (n: number): string => `${n} ${n === 1 ? 'line' : 'lines'}`;
  if (added > changed) parts.push(`adds ${lines(added - changed)}`);
  if (removed > changed) parts.push(`removes ${lines(removed - changed)}`);
  if (changed > 0) parts.push(`changes ${parts.length ? changed : lines(changed)}`);
  if (parts.length === 0) return '';
  const text = parts.join(', ');
  return text[0]?.toUpperCase() + text.slice(1) + '.';
}
