// Which page an address shows. Paths are matched whole; what follows "?" belongs to the page.

export type PageName =
  | 'pair' | 'now' | 'approve' | 'runs' | 'run' | 'undo' | 'plans' | 'tools' | 'tool' | 'notes' | 'memory' | 'trace' | 'why'
  | 'connect' | 'server' | 'agent' | 'settings' | 'more' | 'missing';

export interface Route {
  page: PageName;
  /** The parameter in the path: an id, or the part of Settings. */
  id: string;
  path: string;
  query: URLSearchParams;
}

const ROUTES: [RegExp, PageName][] = [
  [/^\/$/, 'now'],
  [/^\/pair$/, 'pair'],
  [/^\/approve\/([^/]+)$/, 'approve'],
  [/^\/runs$/, 'runs'],
  [/^\/runs\/([^/]+)\/undo$/, 'undo'],
  [/^\/runs\/([^/]+)$/, 'run'],
  [/^\/plans(?:\/new)?$/, 'plans'],
  [/^\/tools$/, 'tools'],
  [/^\/tools\/(.+)$/, 'tool'],
  [/^\/notes$/, 'notes'],
  [/^\/memory$/, 'memory'],
  [/^\/traces(?:\/([^/]+))?$/, 'trace'],
  [/^\/why$/, 'why'],
  [/^\/connect$/, 'connect'],
  [/^\/servers\/([^/]+)$/, 'server'],
  [/^\/agents\/([^/]+)$/, 'agent'],
  [/^\/settings(?:\/([a-z]+))?$/, 'settings'],
  [/^\/more$/, 'more'],
];

export function match(path: string, search: string): Route {
  const query = new URLSearchParams(search);
  for (const [pattern, page] of ROUTES) {
    const found = pattern.exec(path);
    if (found) return { page, id: decode(found[1] ?? ''), path, query };
  }
  return { page: 'missing', id: '', path, query };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    // A broken escape is shown as it was typed; no id has one.
    return part;
  }
}

/** The address of a path with the parameters that are set; empty ones are left out. */
export function address(path: string, query: Record<string, string | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) search.set(key, value);
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

/** Which entry of the navigation a page belongs to. */
export function section(page: PageName): string {
  switch (page) {
    case 'now': case 'approve': return '/';
    case 'runs': case 'run': case 'undo': return '/runs';
    case 'plans': return '/plans';
    case 'tools': case 'tool': return '/tools';
    case 'notes': case 'memory': case 'trace': case 'why': return '/notes';
    case 'connect': case 'server': case 'agent': return '/connect';
    case 'settings': return '/settings';
    default: return '';
  }
}
