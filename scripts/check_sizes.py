#!/usr/bin/env python3
"""No Rust file has over 600 lines, and no function of crates/*/src over 80 (see AGENTS.md).

A function's lines are those with code on them, from its `fn` to its closing brace, as clippy counts them. Whatever is over
is printed, and the exit code is 1. LONG names what is long on purpose.
"""
import re
import sys
from pathlib import Path

from count_maps import without_text

ROOT = Path(__file__).resolve().parent.parent
MOST_IN_FILE = 600
MOST_IN_FUNCTION = 80
# What is long on purpose: a list that is read from top to bottom, and would be harder to follow in pieces.
LONG = {
    "crates/toolyard/src/wiring.rs": ("open", "puts the parts of a process together, in the order in which they need each other"),
    "crates/toolyard/src/commands/up.rs": ("run", "starts a server, waits, and stops it in the reverse order"),
}
FUNCTION = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?(?:(?:const|async|unsafe|extern \"s\")\s+)*fn\s+(\w+)", re.M)


def functions(code):
    """The functions with a body: name, first line, number of lines."""
    for found in FUNCTION.finditer(code):
        at, depth = found.end(), 0
        while at < len(code):
            letter = code[at]
            if letter == ";" and depth == 0:
                break
            if letter in "([{":
                depth += 1
            elif letter in ")]}":
                depth -= 1
                if depth == 0 and letter == "}":
                    first = code.count("\n", 0, found.start(1)) + 1
                    body = code[found.start(1) : at + 1]
                    yield found.group(1), first, sum(1 for line in body.splitlines() if line.strip())
                    break
            at += 1


def main():
    over = []
    for path in sorted([*ROOT.glob("crates/**/*.rs"), *ROOT.glob("bench/**/*.rs"), *ROOT.glob("fuzz/fuzz_targets/*.rs")]):
        text = path.read_text()
        name = path.relative_to(ROOT)
        lines = text.count("\n")
        if lines > MOST_IN_FILE:
            over.append(f"{name}: {lines} lines, at most {MOST_IN_FILE}")
        if not re.match(r"crates/[^/]+/src/", str(name)):
            continue
        for function, first, length in functions(without_text(text)):
            if length > MOST_IN_FUNCTION and LONG.get(str(name), ("",))[0] != function:
                over.append(f"{name}:{first}: {function} has {length} lines, at most {MOST_IN_FUNCTION}")
    print("\n".join(over) if over else "every file and function is within its size")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
