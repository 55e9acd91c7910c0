#!/usr/bin/env python3
"""Makes the packages of a build: tarball, .deb, npm packages, Python wheel and OCI image, with checksums.

usage: make.py FOLDER_OF_PROGRAMS OUT [--target TRIPLE] [--form NAME ...] [--sbom FILE]

The same programs and the same commit give the same bytes: SOURCE_DATE_EPOCH, or the time of the commit, is the only time
in a package.
"""
import argparse
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import content
import forms
from targets import TARGETS, Target

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Build:
    folder: Path
    target: Target
    version: str
    epoch: int
    programs: dict
    documents: dict


def epoch():
    """The time that packages carry."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    commit = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True)
    return int(commit.stdout)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", choices=sorted(TARGETS), default="x86_64-unknown-linux-gnu")
    parser.add_argument("--form", choices=sorted(forms.FORMS), action="append")
    parser.add_argument("--sbom", type=Path, help="a bill of materials that is put beside the packages")
    given = parser.parse_args(arguments)
    target = TARGETS[given.target]
    programs = content.programs(given.folder)
    content.check_glibc(programs, target)
    build = Build(given.folder, target, content.version_of(given.folder), epoch(), programs,
                  content.documents(given.folder, ROOT))
    given.out.mkdir(parents=True, exist_ok=True)
    made = {}
    for form in given.form or forms.FORMS:
        print(f"package: {form}", file=sys.stderr)
        made |= forms.FORMS[form](build)
    if given.sbom:
        made[f"toolyard-{build.version}.cdx.json"] = given.sbom.read_bytes()
    for name, body in made.items():
        (given.out / name).write_bytes(body)
    sums = "".join(f"{hashlib.sha256(body).hexdigest()}  {name}\n" for name, body in sorted(made.items()))
    (given.out / "SHA256SUMS").write_text(sums)
    for name, body in sorted(made.items()):
        print(f"{len(body):>12}  {given.out / name}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except content.Problem as problem:
        sys.exit(f"package: {problem}")
