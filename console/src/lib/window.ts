// Which rows of a long list are drawn. Rows have one height, so a row's place is its number times that height, and a list of
// 100,000 rows is an offset and about forty elements.

export interface Window {
  from: number;
  to: number;
  /** Height above the first drawn row. */
  before: number;
  /** Height of the whole list. */
  height: number;
}

const SPARE = 2;
/** However tall the screen is, no more rows than this are drawn. */
const MOST = 56;

/** `top` is how far the beginning of the list lies above the top of the viewport; negative when it is below. */
export function windowOf(count: number, row: number, top: number, viewport: number): Window {
  const height = count * row;
  const first = Math.max(0, Math.min(count, Math.floor(top / row)) - SPARE);
  const last = Math.min(count, Math.ceil((top + viewport) / row) + SPARE, first + MOST);
  return { from: first, to: Math.max(first, last), before: first * row, height };
}
