// The time, as state that moves once a second while somebody looks and never in a hidden tab.

class Clock {
  now = $state(Date.now());

  start(): void {
    setInterval(() => {
      if (document.visibilityState === 'visible') this.now = Date.now();
    }, 1000);
  }
}

export const time = new Clock();
