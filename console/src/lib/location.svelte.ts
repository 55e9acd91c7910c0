// The address of the page as reactive state. Navigation is by links; every filter is part of the address.

import { address, match, type Route } from './router.ts';

class Place {
  route = $state.raw<Route>(match(location.pathname, location.search));

  start(): void {
    addEventListener('popstate', () => this.#read());
    document.addEventListener('click', (event) => this.#click(event));
  }

  go(to: string, replace = false): void {
    if (to === location.pathname + location.search) return;
    if (replace) history.replaceState(null, '', to);
    else history.pushState(null, '', to);
    const before = this.route.path;
    this.#read();
    if (!replace && before !== this.route.path) scrollTo(0, 0);
  }

  /** Changes parameters of the address; null and the empty text remove one. */
  query(change: Record<string, string | null>): void {
    const all: Record<string, string | null> = Object.fromEntries(this.route.query);
    this.go(address(this.route.path, { ...all, ...change }), true);
  }

  #read(): void {
    this.route = match(location.pathname, location.search);
  }

  #click(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const target = event.target instanceof Element ? event.target.closest('a') : null;
    if (!target || target.target || target.hasAttribute('download') || target.origin !== location.origin) return;
    if (target.getAttribute('href')?.startsWith('#') || target.pathname.startsWith('/download/')) return;
    event.preventDefault();
    this.go(target.pathname + target.search);
  }
}

export const place = new Place();
