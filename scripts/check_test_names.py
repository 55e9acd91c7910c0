#!/usr/bin/env python3
"""Checks that every test that SECURITY.md and docs/specification.md name as `path/to/file.rs::test_name` exists, and that
each row of a table in SECURITY.md names at least one."""
import pathlib, re, sys

root = pathlib.Path(__file__).resolve().parent.parent
PAGES = ["SECURITY.md", "docs/specification.md"]
NAMED = re.compile(r"`([\w./-]+\.(?:rs|py|sh|mjs))::(\w+)`")


def has_test(path, name):
    """Whether a file holds the test: a Rust function under a test attribute (or expanded by a macro), or a Python one."""
    text = path.read_text()
    return re.search(rf"\b(?:fn|def)\s+{name}\b", text) is not None


def problems(page):
    for number, line in enumerate((root / page).read_text().splitlines(), 1):
        for file, test in NAMED.findall(line):
            path = root / file
            if not path.is_file():
                yield number, f"{file}: no such file"
            elif not has_test(path, test):
                yield number, f"{file}::{test}: no such test"


def rows_without_test(page):
    heading = ""
    for number, line in enumerate((root / page).read_text().splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or set("".join(cells)) <= set("-: "):
            heading = heading if line.startswith("|") else ""
            continue
        if not heading:
            heading = line
            continue
        if cells[-1:] and "shown by" in heading and "::" not in cells[-1]:
            yield number, "the row names no test"


if __name__ == "__main__":
    bad = [(page, *found) for page in PAGES for found in problems(page)]
    bad += [("SECURITY.md", *found) for found in rows_without_test("SECURITY.md")]
    for page, number, text in bad:
        print(f"{page}:{number}: {text}")
    named = sum(len(NAMED.findall((root / page).read_text())) for page in PAGES)
    print(f"named tests: {named - len(bad)} passed, {len(bad)} failed")
    sys.exit(1 if bad or not named else 0)
