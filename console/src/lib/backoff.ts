// How long to wait before the next attempt to connect: doubling from 0.8 s to 15 s, with jitter, so that a restarted server is
// not met by every browser in the same moment.

export const SHORTEST = 800;
export const LONGEST = 15_000;

/** The wait before attempt `attempt` (the first is 0); `random` is in [0, 1). */
export function wait(attempt: number, random: number): number {
  const most = Math.min(LONGEST, SHORTEST * 2 ** Math.min(attempt, 10));
  // Between half and all of it: never under the shortest wait.
  return Math.max(SHORTEST, Math.round(most / 2 + (most / 2) * random));
}
