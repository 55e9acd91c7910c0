// Short messages about what was done, with one way back. Errors are never toasts.

export interface Toast {
  id: number;
  text: string;
  link?: { label: string; href: string };
}

const SHOWN_MS = 6000;

class Toasts {
  list = $state<Toast[]>([]);
  #next = 1;

  say(text: string, link?: Toast['link']): void {
    const id = this.#next;
    this.#next += 1;
    this.list.push(link ? { id, text, link } : { id, text });
    setTimeout(() => this.drop(id), SHOWN_MS);
  }

  drop(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id);
  }
}

export const toasts = new Toasts();
