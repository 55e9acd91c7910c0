#!/usr/bin/env python3
"""A crate whose manifest says `doctest = false` has no documentation tests.

`cargo test --doc` starts rustdoc for every crate that may have some, and rustdoc reads the whole crate each time. Two crates
have documentation tests; the other manifests say so. This fails when one of those gets a code block that rustdoc would run.
"""
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOC = re.compile(r"^\s*//[/!] ?(.*)$")
# What rustdoc does not run.
OTHER = {"text", "ignore", "json", "jsonc", "toml", "sh", "console", "sql", "js", "javascript", "html", "http", "python"}


def blocks(source):
    """The first lines of code blocks in documentation comments that rustdoc would run: line number and text."""
    is_open, before = False, ""
    for number, line in enumerate(source.splitlines(), 1):
        found = DOC.match(line)
        text = found.group(1) if found else None
        if text is None:
            is_open, before = False, ""
            continue
        if text.lstrip().startswith(("```", "~~~")):
            words = set(re.split(r"[\s,{}.]+", text.strip().strip("`~"))) - {""}
            if not is_open and not words & OTHER:
                yield number, text
            is_open = not is_open
        elif not is_open and text.startswith("    ") and not before.strip():
            yield number, text
        before = text


def without_tests(root):
    """The folders of the crates that have no documentation tests by their manifests."""
    for manifest in sorted(root.glob("crates/*/Cargo.toml")):
        library = tomllib.loads(manifest.read_text()).get("lib", {})
        if library.get("doctest") is False and (manifest.parent / "src/lib.rs").is_file():
            yield manifest.parent


def main(root=ROOT):
    wrong = []
    for folder in without_tests(root):
        for file in sorted(folder.glob("src/**/*.rs")):
            source = file.read_text()
            if re.search(r"#!?\[\s*doc\s*=\s*include_str", source):
                wrong.append(f"{file.relative_to(root)}: documentation from a file may have tests")
            wrong += [f"{file.relative_to(root)}:{number}: {text.strip()}" for number, text in blocks(source)]
    for line in wrong:
        print(f"{line}\n  rustdoc would run this: remove `doctest = false` from the crate's manifest, or mark it as text", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
