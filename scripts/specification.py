#!/usr/bin/env python3
"""Writes docs/specification.md from docs/reference/specification.tsv and from the tests that name its rows.

A Rust test names rows with the attribute `#[shows("002-3.1-04")]` (crates/shows); a suite of `make test-external` names
them in a comment `shows: 003-1-01`. A row that no test names is "not yet", or "decided" where the table names a decision
page. With --check the page is compared instead of written, and every path in the table must exist.
"""
import collections, pathlib, re, subprocess, sys

root = pathlib.Path(__file__).resolve().parent.parent
TABLE, PAGE = root / "docs/reference/specification.tsv", root / "docs/specification.md"
ROW = r"\d{3}-[\d.]+-\d+"
ATTRIBUTE = re.compile(r"#\[(?:\w+::)?shows\(([^)]*)\)\]\s*(?:#\[[^\n]*\]\s*|///[^\n]*\s*)*(?:pub(?:\(\w+\))?\s+)?(?:async\s+)?fn\s+(\w+)")
COMMENT = re.compile(rf"(?://|#) shows: ((?:{ROW}(?:, )?)+)")
PATH = re.compile(r"`((?:crates|tests|scripts|examples|docs|schema)/[\w./-]+)`")


def tracked(*patterns):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--", *patterns], capture_output=True, text=True, check=True)
    return listed.stdout.split("\0")[:-1]


def shown():
    """The tests of each row, as the texts that the page links."""
    tests = collections.defaultdict(list)
    for name in tracked("*.rs"):
        for rows, test in ATTRIBUTE.findall((root / name).read_text()):
            for row in re.findall(ROW, rows):
                tests[row].append(f"`{name}::{test}`")
    for name in tracked("tests/*.mjs", "tests/*.sh", "tests/*.py", "tests/**/*.mjs", "tests/**/*.sh", "tests/**/*.py"):
        for rows in COMMENT.findall((root / name).read_text()):
            for row in re.findall(ROW, rows):
                tests[row].append(f"`{name}`")
    return tests


def table():
    """The lines of the table: a heading as one text, a row as its cells."""
    for line in TABLE.read_text().splitlines():
        if line.startswith("##"):
            yield line
        elif line and not line.startswith("#"):
            yield (line.split("\t") + [""])[:4]


def status(tests, decision):
    if tests:
        return "done"
    return f"[decided]({decision})" if decision else "not yet"


def page():
    tests, body, counts, document = shown(), [], {}, ""
    for line in table():
        if isinstance(line, str):
            if not line.startswith("###"):
                document = line[3:]
                counts[document] = collections.Counter()
            body += ["", line, ""]
            if line.startswith("###"):
                body += ["| id | statement | where | shown by | status |", "| --- | --- | --- | --- | --- |"]
            continue
        row, statement, where, decision = line
        found = status(tests[row], decision)
        counts[document]["decided" if found.startswith("[") else found] += 1
        body.append(f"| {row} | {statement} | {where} | {', '.join(sorted(set(tests[row]))) or '—'} | {found} |")
    return "\n".join([*head(counts), *body]) + "\n"


def head(counts):
    lines = [
        "# The specification, statement by statement", "",
        "<!-- Written by scripts/specification.py from docs/reference/specification.tsv and the tests; `make docs` writes it again. -->", "",
        "Toolyard is built from five specification documents, numbered 000 to 004. Each statement in them has a row here: what",
        "the statement asks for, where the code for it lives, which tests show it, and its status.", "",
        "- **id**: document, section, number. Sections follow the order of the document.",
        "- **shown by**: the tests that name the row with `#[shows(…)]`. A suite of `make test-external` is named by its file.",
        "- **status**: `done` if at least one test shows the row, `not yet` if none does, `decided` with a link if Toolyard",
        "  differs from the statement on purpose and the page gives the reason.", "",
        "| document | done | decided | not yet | rows |", "| --- | --- | --- | --- | --- |",
    ]
    total = collections.Counter()
    for document, count in counts.items():
        lines.append(f"| {document} | {count['done']} | {count['decided']} | {count['not yet']} | {sum(count.values())} |")
        total += count
    return [*lines, f"| all | {total['done']} | {total['decided']} | {total['not yet']} | {sum(total.values())} |"]


def problems():
    """Rows that tests name and the table lacks, rows that stand twice, and paths that do not exist."""
    rows = [line for line in table() if not isinstance(line, str)]
    ids = collections.Counter(row[0] for row in rows)
    yield from (f"{row}: stands {count} times" for row, count in ids.items() if count > 1)
    yield from (f"{row}: named by {', '.join(tests)}, and not in the table" for row, tests in shown().items() if row not in ids)
    for row, _, where, decision in rows:
        for path in PATH.findall(where):
            if not (root / path).exists():
                yield f"{row}: {path}: no such file"
        if decision and not (PAGE.parent / decision).is_file():
            yield f"{row}: {decision}: no such page"


if __name__ == "__main__":
    bad = list(problems())
    for problem in bad:
        print(f"docs/reference/specification.tsv: {problem}")
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        bad.append("drift")
        print("docs/specification.md is out of date: run make docs")
    sys.exit(1 if bad else 0)
