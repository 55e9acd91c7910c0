#!/usr/bin/env python3
"""Fails every write, sync, rename and allocation of Toolyard once, and looks whether its promises hold.

The program runs under strace, which makes the Nth system call of a kind fail with ENOSPC or EIO. So the seam is the one
between the program and the kernel, and SQLite's own writes are covered as well as ours: store, journal, blobs, vault,
context store. A workload is run once to count its calls of each kind; then it is run again for each of them.

After each failure the home is opened without faults, and:
- what was answered as done is there (nothing acknowledged is lost),
- a file is as it was before or as it was to become (nothing is half visible),
- `runs verify` and `store check` find nothing wrong.

    tests/faults/run.py PROGRAM [--every N] [--errors ENOSPC,EIO]
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

KINDS = ["pwrite64", "fsync", "fdatasync", "rename", "renameat", "renameat2", "ftruncate", "fallocate", "linkat", "unlinkat"]
BEFORE = "before\n"
LARGE = "large and dull " * 6000


def workloads():
    plan = {
        "version": "1.0",
        "goal": "fault",
        "riskLevel": "writes",
        "steps": [
            {"id": "a", "tool": "vault.writeFile", "args": {"path": "a.md", "content": "after a\n", "collisionStrategy": "overwrite"}},
            {"id": "b", "tool": "vault.writeFile", "args": {"path": "b.md", "content": "after b\n", "collisionStrategy": "overwrite"}, "dependsOn": ["a"]},
        ],
    }
    return {
        "write": (["call", "vault.writeFile", "--args", json.dumps({"path": "a.md", "content": "after a\n", "collisionStrategy": "overwrite"})], None),
        "large": (["call", "vault.writeFile", "--args", json.dumps({"path": "a.md", "content": LARGE, "collisionStrategy": "overwrite"})], None),
        "plan": (["plan", "run", "PLAN", "--yes"], plan),
        "memory": (["call", "memory_store", "--args", json.dumps({"text": "The kettle is on the third shelf"})], None),
        "index": (["vault", "index"], None),
    }


class Place:
    """A home and a vault that are there before the fault."""

    def __init__(self, program, seed=None):
        self.folder = tempfile.mkdtemp(prefix="toolyard-faults-")
        self.home, self.vault = os.path.join(self.folder, "home"), os.path.join(self.folder, "vault")
        self.command = [program, "--home", self.home, "--vault", self.vault, "--in-process", "--json"]
        if seed:
            shutil.copytree(seed.home, self.home)
            shutil.copytree(seed.vault, self.vault)
        else:
            os.makedirs(self.vault)
            for name in ["a.md", "b.md"]:
                with open(os.path.join(self.vault, name), "w") as file:
                    file.write(BEFORE)
            self.run(["call", "util.slugifyTitle", "--args", "{\"title\": \"Before\"}"])

    def run(self, args, trace=None):
        before = ["strace", "-f", "-qq", "-o", os.path.join(self.folder, "trace")] + trace if trace else []
        done = subprocess.run(before + self.command + args, capture_output=True, text=True, timeout=120)
        try:
            answer = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else {}
        except ValueError:
            answer = {}
        return done.returncode, answer

    def plan(self, plan):
        path = os.path.join(self.folder, "plan.json")
        with open(path, "w") as file:
            json.dump(plan, file)
        return path

    def content(self, name):
        with open(os.path.join(self.vault, name)) as file:
            return file.read()

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def count(program, seed, args, plan):
    """How often the workload makes each kind of call."""
    place = Place(program, seed)
    args = [place.plan(plan) if arg == "PLAN" else arg for arg in args]
    place.run(args, ["-e", "trace=" + ",".join(KINDS)])
    counts = {}
    with open(os.path.join(place.folder, "trace")) as file:
        for line in file:
            found = re.match(r"\d+\s+(\w+)\(", line)
            if found:
                counts[found.group(1)] = counts.get(found.group(1), 0) + 1
    place.remove()
    return counts


def check(place, name, code, answer):
    """What is wrong after a fault, if anything."""
    problems = []
    acknowledged = code == 0 and (answer.get("ok") is True or answer.get("status") == "finished")
    for file in ["a.md", "b.md"]:
        wanted = {"write": "after a\n", "large": LARGE}.get(name, "after %s" % file.replace(".md", "\n"))
        found = place.content(file)
        if found not in (BEFORE, wanted):
            problems.append("%s is half written: %d bytes" % (file, len(found)))
        touched = file == "a.md" and name in ("write", "large") or name == "plan"
        if acknowledged and touched and found != wanted:
            problems.append("%s was acknowledged and is not there" % file)
    for args in [["store", "check"], ["runs", "verify"]]:
        after_code, report = place.run(args)
        if after_code != 0 or report.get("ok") is not True:
            problems.append("%s: %s" % (" ".join(args), json.dumps(report)[:400]))
    if acknowledged and answer.get("runId"):
        shown, run = place.run(["runs", "show", answer["runId"]])
        if shown != 0:
            problems.append("run %s was acknowledged and is not on record" % answer["runId"])
    if acknowledged and name == "memory":
        _, recalled = place.run(["call", "memory_recall", "--args", "{\"query\": \"kettle\"}"])
        if "third shelf" not in json.dumps(recalled):
            problems.append("the memory was acknowledged and is not there")
    # A home that met a fault goes on.
    _, again = place.run(["call", "util.slugifyTitle", "--args", "{\"title\": \"After\"}"])
    if again.get("ok") is not True:
        problems.append("the home does not work any more: %s" % json.dumps(again)[:300])
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--every", type=int, default=1, help="only every Nth point")
    parser.add_argument("--errors", default="ENOSPC,EIO")
    parser.add_argument("--only", help="one workload")
    options = parser.parse_args()
    if not shutil.which("strace"):
        sys.exit("strace is missing: install it, it makes the system calls fail")
    seed = Place(options.program)
    points, refused, problems = 0, 0, []
    for name, (args, plan) in workloads().items():
        if options.only and name != options.only:
            continue
        counts = count(options.program, seed, args, plan)
        for kind, total in sorted(counts.items()):
            for number in range(1, total + 1, options.every):
                for error in options.errors.split(","):
                    place = Place(options.program, seed)
                    these = [place.plan(plan) if arg == "PLAN" else arg for arg in args]
                    inject = "inject=%s:error=%s:when=%d" % (kind, error, number)
                    code, answer = place.run(these, ["-e", "trace=" + kind, "-e", inject])
                    points += 1
                    refused += code != 0
                    for problem in check(place, name, code, answer):
                        problems.append("%s, %s %d fails with %s: %s" % (name, kind, number, error, problem))
                        print(problems[-1], file=sys.stderr)
                    place.remove()
        print("%s: %s" % (name, counts), file=sys.stderr)
    seed.remove()
    print(json.dumps({"faults": points, "refused": refused, "problems": len(problems)}))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
