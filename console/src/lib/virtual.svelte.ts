// Keeps the drawn part of a list in step with the page's scrolling.

import { windowOf, type Window } from './window.ts';

export class Virtual {
  window = $state.raw<Window>({ from: 0, to: 0, before: 0, height: 0 });
  readonly #element: () => HTMLElement | undefined;
  readonly #count: () => number;
  readonly #row: () => number;
  #queued = false;

  constructor(element: () => HTMLElement | undefined, count: () => number, row: () => number) {
    this.#element = element;
    this.#count = count;
    this.#row = row;
    $effect(() => {
      this.#count();
      this.#row();
      this.measure();
      const onScroll = (): void => {
        if (this.#queued) return;
        this.#queued = true;
        requestAnimationFrame(() => {
          this.#queued = false;
          this.measure();
        });
      };
      addEventListener('scroll', onScroll, { passive: true });
      addEventListener('resize', onScroll, { passive: true });
      return () => {
        removeEventListener('scroll', onScroll);
        removeEventListener('resize', onScroll);
      };
    });
  }

  measure(): void {
    const element = this.#element();
    const top = element ? -element.getBoundingClientRect().top : 0;
    const next = windowOf(this.#count(), this.#row(), top, innerHeight);
    const now = this.window;
    if (next.from !== now.from || next.to !== now.to || next.height !== now.height || next.before !== now.before) this.window = next;
  }

  /** Scrolls so that a row can be seen. */
  reveal(at: number, headroom = 80): void {
    const element = this.#element();
    if (!element) return;
    const row = this.#row();
    const begin = element.getBoundingClientRect().top + scrollY;
    const y = begin + at * row;
    if (y < scrollY + headroom) scrollTo(0, y - headroom);
    else if (y + row > scrollY + innerHeight - headroom) scrollTo(0, y + row - innerHeight + headroom);
  }
}

/** The height of a row in the present density, as the style sheet has it. */
export function rowHeight(): number {
  return Number.parseFloat(getComputedStyle(document.documentElement).getPropertyValue('--row')) || 36;
}
