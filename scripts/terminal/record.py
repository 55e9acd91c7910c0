#!/usr/bin/env python3
"""Records the terminal session in the README: record.py PROGRAM SVG [--check]

The commands of session.py are run with PROGRAM in a temporary home; svg.py draws what they printed. With --check nothing is
written: it fails if a new recording differs from SVG in more than ids, hashes, times and temporary paths.
"""
import html
import pathlib
import re
import sys

import session
import svg

TITLE = "A terminal session: a person denies an agent's call, undoes a coding agent's command, and verifies the record"
VARIES = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"sha256:[0-9a-f]{64}"), "HASH"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"[\w ]+ left, until \d\d:\d\d:\d\d"), " LEFT"),
    (re.compile(r"\S*/toolyard-\w+/"), "FOLDER/"),
    (re.compile(r"\buid:\d+"), "USER"),
    # How many entries the runs have in the ledger depends on when they were sealed.
    (re.compile(r"\b\d+ (?=ledger entries|runs|records|kept heads)"), "N "),
    (re.compile(r" {2,}"), "  "),
]


def essence(text):
    """A session without what differs from one recording to the next; lines are joined, because ids break them anew."""
    joined = text.replace("\n", "")
    for pattern, name in VARIES:
        joined = pattern.sub(name, joined)
    return joined


def described(drawn):
    found = re.search(r'<desc id="desc">(.*?)</desc>', drawn, re.S)
    if not found:
        raise SystemExit("the recording has no description: make it again with `make terminal-session`")
    return html.unescape(found.group(1))


def main(words):
    check = "--check" in words
    places = [word for word in words if word != "--check"]
    if len(places) != 2:
        raise SystemExit("usage: record.py PROGRAM SVG [--check]")
    program, target = places[0], pathlib.Path(places[1])
    drawn = svg.draw(session.record(program), TITLE)
    if not check:
        target.write_text(drawn)
        print(f"{target}: {len(drawn)} bytes")
        return
    kept, made = essence(described(target.read_text())), essence(described(drawn))
    if kept != made:
        raise SystemExit(f"{target} is out of date: run `make terminal-session`\nkept: {kept}\nmade: {made}")
    print(f"{target} shows what the program prints")


if __name__ == "__main__":
    main(sys.argv[1:])
