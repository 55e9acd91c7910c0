#!/usr/bin/env python3
"""Checks Cargo.lock against the RustSec advisories kept beside this file. Needs neither network nor packages.

usage: advisories.py [--lock Cargo.lock] [--deny deny.toml] [--database advisories.json]

Exit code 1 when a locked package has an advisory that deny.toml does not list under [advisories] ignore, when a listed
advisory applies to no locked package, or when a listed advisory is a vulnerability (those are never ignored). Each
entry of the list needs a reason that ends with the date of its review, for example "(reviewed 2026-11-17)".

`cargo deny check advisories` reads the same list; `make advisories` runs it as well where its database can be fetched.
"""
import argparse
import json
import pathlib
import re
import sys

from semver import Version, requirement

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Kinds of advisories that may be listed in deny.toml. A vulnerability is fixed or its package replaced.
IGNORABLE = {"unmaintained", "unsound", "notice"}
REVIEWED = re.compile(r"\(reviewed \d{4}-\d{2}-\d{2}\)$")


def locked_packages(text):
    """(name, version) of every package of Cargo.lock that comes from a registry or repository."""
    packages = []
    for block in text.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(name|version|source) = "([^"]*)"$', block, flags=re.M))
        if "name" not in fields or "version" not in fields:
            raise ValueError("Cargo.lock has a package without a name or a version")
        if "source" in fields:
            packages.append((fields["name"], fields["version"]))
    if not packages:
        raise ValueError("Cargo.lock names no packages")
    return packages


def ignored(text):
    """id -> reason, from the inline tables of `ignore` in the [advisories] section of deny.toml."""
    section = re.search(r"^\[advisories\]$(.*?)(?=^\[|\Z)", text, flags=re.M | re.S)
    if not section:
        return {}
    listed = re.search(r"^ignore = \[(.*?)^\]", section[1], flags=re.M | re.S)
    if not listed:
        return {}
    entries = [line.strip() for line in listed[1].splitlines() if line.strip() and not line.strip().startswith("#")]
    found = {}
    for entry in entries:
        match = re.fullmatch(r'\{ id = "(RUSTSEC-\d{4}-\d{4})", reason = "([^"]*)" \},?', entry)
        if not match:
            raise ValueError(f'deny.toml: write {{ id = "RUSTSEC-…", reason = "…" }}, not {entry}')
        found[match[1]] = match[2]
    return found


def applies(advisory, version):
    """Whether a version is neither patched nor unaffected."""
    safe = advisory["patched"] + advisory["unaffected"]
    return not any(requirement(text)(Version.parse(version)) for text in safe)


def check(packages, allowed, database):
    """(problems, notes): what makes the check fail, and what is known and accepted."""
    problems, notes, seen = [], [], set()
    by_name = {}
    for advisory in database["advisories"]:
        by_name.setdefault(advisory["package"], []).append(advisory)
    for name, version in sorted(packages):
        for advisory in by_name.get(name, []):
            if not applies(advisory, version):
                continue
            about = f"{advisory['id']} ({advisory['kind']}, {advisory['date']}): {name} {version}"
            if advisory["id"] not in allowed:
                fix = ", ".join(advisory["patched"]) or "none"
                problems.append(f"{about}; patched versions: {fix}")
            elif advisory["kind"] not in IGNORABLE:
                seen.add(advisory["id"])
                problems.append(f"{about}: a {advisory['kind']} cannot be ignored; update or replace the package")
            else:
                seen.add(advisory["id"])
                notes.append(f"{about}: {allowed[advisory['id']]}")
    for advisory_id, reason in sorted(allowed.items()):
        if advisory_id not in seen:
            problems.append(f"{advisory_id} is ignored in deny.toml but applies to no locked package: remove it")
        if not REVIEWED.search(reason):
            problems.append(f'{advisory_id}: the reason must end with "(reviewed YYYY-MM-DD)"')
    return problems, notes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lock", type=pathlib.Path, default=ROOT / "Cargo.lock")
    parser.add_argument("--deny", type=pathlib.Path, default=ROOT / "deny.toml")
    parser.add_argument("--database", type=pathlib.Path, default=HERE / "advisories.json")
    options = parser.parse_args()
    database = json.loads(options.database.read_text())
    packages = locked_packages(options.lock.read_text())
    problems, notes = check(packages, ignored(options.deny.read_text()), database)
    for note in notes:
        print(f"ignored: {note}")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{len(packages)} locked packages, {len(database['advisories'])} advisories as of {database['as_of']}: "
          f"{len(problems)} problems, {len(notes)} ignored")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
