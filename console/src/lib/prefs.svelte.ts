// What this browser prefers: theme, density, single-key shortcuts. No secret is kept here.

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'toolyard-preferences';

interface Kept {
  theme?: Theme;
  dense?: boolean;
  keys?: boolean;
  /** When Now was last looked at, for "While you were away". */
  seenAt?: number;
  /** The hash of the push subscription that Toolyard was last told of; empty where this browser is not told. */
  pushTold?: string;
}

function read(): Kept {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}') as Kept;
  } catch {
    return {};
  }
}

class Preferences {
  theme = $state<Theme>('system');
  dense = $state(false);
  keys = $state(true);
  seenAt = $state(0);
  pushTold = '';

  constructor() {
    const kept = read();
    this.theme = kept.theme ?? 'system';
    this.dense = kept.dense ?? false;
    this.keys = kept.keys ?? true;
    this.seenAt = kept.seenAt ?? 0;
    this.pushTold = kept.pushTold ?? '';
    this.apply();
  }

  /** Shows the preferences and keeps them. */
  apply(): void {
    const root = document.documentElement;
    if (this.theme === 'system') delete root.dataset.theme;
    else root.dataset.theme = this.theme;
    if (this.dense) root.dataset.density = 'dense';
    else delete root.dataset.density;
    localStorage.setItem(KEY, JSON.stringify({ theme: this.theme, dense: this.dense, keys: this.keys, seenAt: this.seenAt, pushTold: this.pushTold }));
  }

  /** Changes between light and dark, starting from what is shown. */
  toggleTheme(): void {
    const dark = this.theme === 'dark' || (this.theme === 'system' && matchMedia('(prefers-color-scheme: dark)').matches);
    this.theme = dark ? 'light' : 'dark';
    this.apply();
  }
}

export const prefs = new Preferences();
