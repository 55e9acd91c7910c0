// Numbers, sizes, lengths of time and times of day, written one way everywhere.

const NUMBER = new Intl.NumberFormat('en');

export function count(n: number): string {
  return NUMBER.format(n);
}

/** "1 run", "3 runs". */
export function plural(n: number, one: string, many = one + 's'): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** "once", "twice", "4 times". */
export function times(n: number): string {
  return n === 1 ? 'once' : n === 2 ? 'twice' : `${count(n)} times`;
}

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let value = n / 1000;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0)} ${units[unit]}`;
}

/** A length of time with at most two units: `12 ms`, `4.62 s`, `1 min 4 s`, `5 h 41 min`, `2 d 3 h`. */
export function took(ms: number): string {
  if (ms < 1) return '0 ms';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${trim(seconds.toFixed(2))} s`;
  if (seconds < 60) return `${trim(seconds.toFixed(1))} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return two(Math.floor(whole / 60), 'min', whole % 60, 's');
  const minutes = Math.floor(whole / 60);
  if (minutes < 48 * 60) return two(Math.floor(minutes / 60), 'h', minutes % 60, 'min');
  const hours = Math.floor(minutes / 60);
  return two(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

/** What is left of a wait, with one unit when it is long: `46 h left` is exact enough, `59 s left` is not rounded up. */
export function left(ms: number): string {
  if (ms <= 0) return 'expired';
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 60) return `${seconds} s left`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min left`;
  if (minutes < 10 * 60) return `${two(Math.floor(minutes / 60), 'h', minutes % 60, 'min')} left`;
  const hours = Math.floor(minutes / 60);
  return hours < 72 ? `${hours} h left` : `${Math.floor(hours / 24)} d left`;
}

function two(a: number, unitA: string, b: number, unitB: string): string {
  return b === 0 ? `${a} ${unitA}` : `${a} ${unitA} ${b} ${unitB}`;
}

function trim(number: string): string {
  return number.includes('.') ? number.replace(/\.?0+$/, '') : number;
}

const HM = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const HMS = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const DAY_YEAR = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' });
const LONG_DAY = new Intl.DateTimeFormat('en-GB', { weekday: 'long', day: 'numeric', month: 'long' });
const WEEKDAY = new Intl.DateTimeFormat('en-GB', { weekday: 'short' });

export function clock(at: number): string {
  return HM.format(at);
}

export function clockSeconds(at: number): string {
  return HMS.format(at);
}

export function longDay(at: number): string {
  return LONG_DAY.format(at).replace(',', '');
}

/** The clock today, the date before: `07:42`, `16 Nov 19:20`, `3 Oct 2025`. */
export function when(at: number, now: number = Date.now()): string {
  if (sameDay(at, now)) return HM.format(at);
  if (new Date(at).getFullYear() === new Date(now).getFullYear()) return `${DAY.format(at)} ${HM.format(at)}`;
  return DAY_YEAR.format(at);
}

/** When something ends, beside what is left: `until 09:14`, `until Thu 06:20`, `until 3 Dec 06:20`. */
export function until(at: number, now: number = Date.now()): string {
  if (sameDay(at, now)) return `until ${HM.format(at)}`;
  if (at - now < 6 * 86_400_000) return `until ${WEEKDAY.format(at)} ${HM.format(at)}`;
  return `until ${DAY.format(at)} ${HM.format(at)}`;
}

export function sameDay(a: number, b: number): boolean {
  return dayKey(a) === dayKey(b);
}

/** A key that is equal for two times of one local day. */
export function dayKey(at: number): string {
  const date = new Date(at);
  return `${date.getFullYear()}-${date.getMonth()}-${date.getDate()}`;
}

/** Copied times are absolute. */
export function absolute(at: number): string {
  return new Date(at).toISOString();
}
