// What Tool Search saved, day by day, as the bars of the Tools page.

import type { SavedDay } from './console-methods.ts';

export interface SavedBar {
  date: string;
  bytes: number;
  x: number;
  y: number;
  height: number;
  today: boolean;
}

const DAYS = 14;
const PITCH = 23;
const BASE = 62;
const TALLEST = 46;
const DAY_MS = 86_400_000;

/** The last two weeks, with the days on which nothing was listed. */
export function savedBars(days: SavedDay[], now: number): SavedBar[] {
  const known = new Map(days.map((day) => [day.date, Math.max(0, day.total.savedBytes)]));
  const dates = Array.from({ length: DAYS }, (_, at) => new Date(now - (DAYS - 1 - at) * DAY_MS).toISOString().slice(0, 10));
  const most = Math.max(1, ...dates.map((date) => known.get(date) ?? 0));
  return dates.map((date, at) => {
    const bytes = known.get(date) ?? 0;
    // A day with something has a bar that can be seen.
    const height = bytes === 0 ? 0 : Math.max(2, (bytes / most) * TALLEST);
    return { date, bytes, x: 2 + at * PITCH, y: BASE - height, height, today: at === DAYS - 1 };
  });
}
