// The keyboard of the console: keys that work everywhere, and those that the page on top registers.

import { Keys, takesText, type Bindings } from './keys.ts';
import { place } from './location.svelte.ts';

const PLACES: Record<string, string> = { n: '/', r: '/runs', p: '/plans', t: '/tools', k: '/notes', c: '/connect', s: '/settings' };

const pages: Bindings[] = [];

interface Everywhere {
  palette(): void;
  help(): void;
  enabled(): boolean;
}

export function installKeys(everywhere: Everywhere): void {
  const keys = new Keys();
  $effect(() => {
    const listen = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.isComposing) return;
      const name = keys.name(event, performance.now());
      if (name === 'mod+k') {
        event.preventDefault();
        everywhere.palette();
        return;
      }
      if (!name || name.startsWith('mod+') || document.querySelector('dialog[open]')) return;
      if (takesText(document.activeElement)) {
        if (name === 'Escape' && document.activeElement instanceof HTMLElement) document.activeElement.blur();
        return;
      }
      if (!everywhere.enabled()) return;
      const target = name.startsWith('g ') ? PLACES[name.slice(2)] : undefined;
      const action = target ? () => place.go(target) : name === '?' ? everywhere.help : pages.at(-1)?.[name];
      if (!action) return;
      // Enter and Space belong to the control that has the focus.
      if ((name === 'Enter' || name === ' ') && document.activeElement?.matches('a, button, input, summary')) return;
      event.preventDefault();
      action();
    };
    addEventListener('keydown', listen);
    return () => removeEventListener('keydown', listen);
  });
}

/** Keys of the page that is shown; they go when the page goes. */
export function pageKeys(bindings: Bindings): void {
  $effect(() => {
    pages.push(bindings);
    return () => {
      const at = pages.lastIndexOf(bindings);
      if (at >= 0) pages.splice(at, 1);
    };
  });
}
