// Text from agents and tools is text. Characters that change how a name reads are shown as chips, never obeyed.

export interface Piece {
  /** The text to show. */
  text: string;
  /** Set for a control character, which is shown as its code point. */
  control: boolean;
}

// Controls of C0 and C1 (line feed and tab belong to ordinary text), directional overrides and isolates, zero-width and
// other invisible characters, tags.
const CONTROL = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u061C\u115F\u1160\u180E\u200B\u200C\u200E\u200F\u202A-\u202E\u2060-\u206F\u3164\uFEFF\uFFA0\u{E0000}-\u{E007F}]/u;

/** Splits text into plain runs and control characters, so that the latter can be shown as chips. */
export function pieces(text: string): Piece[] {
  if (!CONTROL.test(text)) return [{ text, control: false }];
  const found: Piece[] = [];
  let plain = '';
  for (const char of text) {
    if (CONTROL.test(char)) {
      if (plain) found.push({ text: plain, control: false });
      plain = '';
      found.push({ text: codePoint(char), control: true });
    } else plain += char;
  }
  if (plain) found.push({ text: plain, control: false });
  return found;
}

function codePoint(char: string): string {
  return 'U+' + (char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
}

/** A reason without the name of the tool before it, where the tool stands beside it anyway. */
export function withoutTool(reason: string, tool: string): string {
  return reason.startsWith(`${tool}: `) ? reason.slice(tool.length + 2) : reason;
}

/** The last part of a path, and the folder before it. */
export function splitPath(path: string): { folder: string; name: string } {
  const cut = path.lastIndexOf('/');
  return { folder: path.slice(0, cut + 1), name: path.slice(cut + 1) };
}

/** A hash in groups of four, as it is read aloud: `3f9a 11c8 … 77c2`. */
export function shortHash(hash: string): string {
  const hex = hash.replace(/^[a-z0-9]+[:-]/, '');
  if (hex.length <= 16) return groups(hex);
  return `${groups(hex.slice(0, 8))} … ${hex.slice(-4)}`;
}

export function groups(hex: string): string {
  return hex.match(/.{1,4}/g)?.join(' ') ?? '';
}

/** The first and last characters of an id, for places where the whole does not fit. */
export function shortId(id: string): string {
  return id.length <= 14 ? id : `${id.slice(0, 8)}…${id.slice(-4)}`;
}

/** A principal in words: who sits at the machine has no name but a number. */
export function person(principal: string): string {
  const user = /^uid:(\d+)$/.exec(principal);
  return user ? `the person at this machine (user ${user[1]})` : principal;
}

const DOORS: Record<string, string> = { cli: 'on the command line', gateway: 'through the gateway', http: 'over HTTP', mcp: 'over MCP', bridge: 'through the bridge', console: 'in the console', hooks: 'through hooks', script: 'by a script', internal: 'by Toolyard itself' };

/** The way in, in words: `over MCP`. */
export function throughDoor(door: string): string {
  return DOORS[door] ?? `through ${door}`;
}
