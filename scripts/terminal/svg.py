"""Draws a terminal session as one animated SVG: no scripts, no fonts or pictures from elsewhere.

Every line is drawn once and becomes visible at its time; the screen scrolls in steps. What is not animated is the end of the
session, so a viewer that asks for reduced motion, or cannot animate, sees the last screen.
"""
import dataclasses
import html
import unicodedata

COLUMNS, ROWS = 118, 27
SIZE, ADVANCE, LEADING, MARGIN, BAR = 13, 7.8, 18, 16, 30
# Seconds: the whole session, the pause before a command, a typed character, and the wait for output at least and at most.
WHOLE, PAUSE, KEY, LEAST, MOST = 30.0, 0.5, 0.035, 0.15, 1.0
# How the time that is left is given to reading: by lines, with a start for each command.
READING_START = 4

STYLE = """
text{font:%dpx ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;white-space:pre;fill:#d6deeb}
.p{fill:#7fdbca}.c{fill:#8b9bb4;font-style:italic}.a{fill:#9ece6a}.d{fill:#f7768e}.h{fill:#7aa2f7}.t{fill:#8b9bb4}
.k{opacity:0;fill:#0f1720}
.l,.k,#s{animation:%.2fs step-end infinite}
@media (prefers-reduced-motion:reduce){.l,.k,#s{animation:none!important}}
""".strip()


@dataclasses.dataclass
class Line:
    """A line of the screen: when it is there and, for a typed command, how long typing takes."""
    text: str
    kind: str
    at: float
    typing: float = 0.0


def width(text):
    """How many columns a text takes; letters of East Asian scripts take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def wrapped(text):
    """A line as a terminal breaks it."""
    parts = [""]
    for letter in text:
        if width(parts[-1] + letter) > COLUMNS:
            parts.append("")
        parts[-1] += letter
    return parts


def kind_of(text):
    for start, kind in (("--- ", "t"), ("+++ ", "t"), ("@@", "h"), ("diff ", "h"), ("deleted file", "t"), ("+", "a"), ("-", "d")):
        if text.startswith(start):
            return kind
    return "o"


def timed(shown):
    """The lines with their times; what typing and waiting leave of the whole is given to reading."""
    rows = [[row for text in step.output for row in wrapped(text)] for step in shown]
    typing = [0.0 if step.comment else min(len(step.text) * KEY, 1.6) for step in shown]
    waits = [0.0 if step.comment else min(max(step.seconds, LEAST), MOST) for step in shown]
    left = WHOLE - sum(typing) - sum(waits) - PAUSE * len(shown)
    if left <= 0:
        raise SystemExit(f"the session is too long for {WHOLE} s")
    weights = [READING_START + len(lines) for lines in rows]
    lines, now = [], 0.0
    for step, output, keys, wait, weight in zip(shown, rows, typing, waits, weights):
        now += PAUSE
        prompt = "# " if step.comment else "$ "
        for part in wrapped(prompt + step.text):
            lines.append(Line(part, "c" if step.comment else "p", now, keys))
        now += keys + wait
        lines.extend(Line(text, kind_of(text), now) for text in output)
        now += left * weight / sum(weights)
    return lines


def percent(seconds):
    return f"{min(seconds, WHOLE) / WHOLE * 100:.2f}%"


def draw(shown, title):
    lines = timed(shown)
    wide, high = round(COLUMNS * ADVANCE + 2 * MARGIN), ROWS * LEADING + BAR + MARGIN
    rules, body = [STYLE % (SIZE, WHOLE)], []
    for number, line in enumerate(lines):
        y = (number + 1) * LEADING
        rules.append(f"#l{number}{{animation-name:l{number}}}@keyframes l{number}{{0%{{opacity:0}}{percent(line.at)}{{opacity:1}}}}")
        if line.text:
            length = f' textLength="{width(line.text) * ADVANCE:.1f}" lengthAdjust="spacingAndGlyphs"'
            body.append(f'<text id="l{number}" class="l {line.kind}" x="0" y="{y}"{length}>{html.escape(line.text)}</text>')
        if line.typing:
            body.append(cover(number, y))
            rules.append(cover_rule(number, line))
    rules.append(scroll_rule(lines))
    end = max(0, len(lines) - ROWS) * LEADING
    described = "\n".join(line.text for line in lines)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{html.escape(title)}</title>', f'<desc id="desc">{html.escape(described)}</desc>',
        "<style>", *rules, "</style>",
        f'<rect width="{wide}" height="{high}" rx="8" fill="#0f1720"/>',
        *(f'<circle cx="{18 + 18 * dot}" cy="15" r="5" fill="#3b4a5f"/>' for dot in range(3)),
        f'<svg x="{MARGIN}" y="{BAR}" width="{wide - 2 * MARGIN}" height="{ROWS * LEADING}" viewBox="0 5 {wide - 2 * MARGIN} {ROWS * LEADING}">',
        f'<g id="s" transform="translate(0 -{end})">', *body, "</g>", "</svg>", "</svg>", ""])


def cover(number, y):
    """A rectangle over a typed line, which moves to the right as if the line were typed."""
    return (f'<rect id="k{number}" class="k" x="{2 * ADVANCE:.1f}" y="{y - LEADING + 5}" width="{COLUMNS * ADVANCE:.0f}" '
            f'height="{LEADING}"/>')


def cover_rule(number, line):
    letters = max(1, len(line.text) - 2)
    steps = min(letters, 40)
    frames = ["0%{opacity:1;transform:translateX(0)}"]
    for step in range(1, steps):
        moved = letters * step / steps * ADVANCE
        frames.append(f"{percent(line.at + line.typing * step / steps)}{{opacity:1;transform:translateX({moved:.0f}px)}}")
    frames.append(f"{percent(line.at + line.typing)}{{opacity:0}}")
    return f"#k{number}{{animation-name:k{number}}}@keyframes k{number}{{{''.join(frames)}}}"


def scroll_rule(lines):
    frames, before = ["0%{transform:translateY(0)}"], 0
    for number, line in enumerate(lines):
        # A screen scrolls when all lines of one moment are there.
        if number + 1 < len(lines) and lines[number + 1].at == line.at:
            continue
        moved = max(0, number + 1 - ROWS) * LEADING
        if moved != before:
            frames.append(f"{percent(line.at)}{{transform:translateY(-{moved}px)}}")
            before = moved
    return "#s{animation-name:s}@keyframes s{" + "".join(frames) + "}"
