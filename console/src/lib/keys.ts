// Keyboard: single keys, and `g` followed by a letter. Keys are ignored inside fields.

export type Action = () => void;

export interface Bindings {
  [key: string]: Action;
}

/** How long a `g` waits for its letter. */
const SEQUENCE_MS = 1200;

export interface Press {
  key: string;
  ctrlKey: boolean;
  metaKey: boolean;
  altKey: boolean;
}

/** Turns key presses into actions. Bindings are looked up as `mod+k`, `g n`, `/`, `Escape`, … */
export class Keys {
  #pendingAt = -Infinity;

  /** The binding that a press belongs to, or null. */
  name(press: Press, now: number): string | null {
    if (press.altKey) return null;
    if (press.ctrlKey || press.metaKey) return `mod+${press.key.toLowerCase()}`;
    if (now - this.#pendingAt < SEQUENCE_MS) {
      this.#pendingAt = -Infinity;
      return `g ${press.key}`;
    }
    if (press.key === 'g') {
      this.#pendingAt = now;
      return null;
    }
    return press.key;
  }
}

/** Whether an element takes text, so that single keys belong to it. */
export function takesText(element: Element | null): boolean {
  if (!element) return false;
  const inner = element.shadowRoot?.activeElement;
  if (inner) return takesText(inner);
  return element.matches('input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]:not([contenteditable=false])');
}
