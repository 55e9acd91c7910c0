#!/usr/bin/env python3
"""Builds the test programs that `cargo test` would build and runs several of them at a time.

    scripts/run_tests.py [--cached] [--at-once N] [CARGO TEST ARGUMENTS] [-- ARGUMENTS OF THE TEST PROGRAMS]

`cargo test` runs one test program after another. Most tests wait for a process, a disk or a deadline, so a machine is idle
for most of that time. The output of a program is shown when it fails, a line when it succeeds. Documentation tests are not
among them; `cargo test --doc` runs those. With `--cached`, a program that passed is not run again until something changes
that it can read (`test_cache.py`); the line says "cached".
"""
import concurrent.futures, json, os, pathlib, subprocess, sys, threading, time
import test_cache

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Test programs that run at once, for each processor; each runs as many of its tests at once as the machine has processors.
PROGRAMS_PER_PROCESSOR = 2
# A test program that takes longer than this hangs, and is ended.
LONGEST_SECONDS = 3600


def parse(arguments):
    """Whether passed programs are left out, how many run at once, cargo's arguments and those of the programs."""
    at_once = PROGRAMS_PER_PROCESSOR * (os.cpu_count() or 1)
    is_cached = arguments[:1] == ["--cached"]
    arguments = arguments[is_cached:]
    if arguments[:1] == ["--at-once"]:
        at_once, arguments = int(arguments[1]), arguments[2:]
    if "--" not in arguments:
        return is_cached, at_once, arguments, []
    cut = arguments.index("--")
    return is_cached, at_once, arguments[:cut], arguments[cut + 1 :]


def build(cargo_arguments):
    """The test programs: what cargo calls them, the program and the folder that it runs in. `None` if a build fails."""
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "test", "--no-run", "--message-format=json-render-diagnostics", *cargo_arguments]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        return None
    programs = []
    for line in built.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message.get("executable"):
            folder = pathlib.Path(message["manifest_path"]).parent
            target = message["target"]
            programs.append((f"{folder.name} {'/'.join(target['kind'])} {target['name']}", message["executable"], folder))
    return programs


class Durations:
    """How long each program took the last time, kept beside the programs: the longest are started first."""

    def __init__(self, programs):
        self.file = pathlib.Path(programs[0][1]).parent.parent / "test-durations.json" if programs else None
        try:
            self.seconds = json.loads(self.file.read_text())
        except (OSError, ValueError, AttributeError):
            self.seconds = {}

    def order(self, programs):
        size = lambda program: os.path.getsize(program[1])
        return sorted(programs, key=lambda program: (-self.seconds.get(program[0], 1e9), -size(program)))

    def keep(self, finished):
        self.seconds.update(finished)
        try:
            self.file.write_text(json.dumps(self.seconds, indent=1, sort_keys=True))
        except OSError as error:
            print(f"the durations are not kept: {error}", file=sys.stderr)


def run(program, arguments):
    """Whether it succeeded, what it said and how long it took."""
    name, executable, folder = program
    environment = dict(os.environ, CARGO_MANIFEST_DIR=str(folder))
    start = time.monotonic()
    try:
        ended = subprocess.run(
            [executable, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONGEST_SECONDS,
        )
        succeeded, said = ended.returncode == 0, ended.stdout
    except subprocess.TimeoutExpired as late:
        succeeded, said = False, (late.stdout or b"") + f"\nended after {LONGEST_SECONDS} s\n".encode()
    return succeeded, said.decode(errors="replace"), time.monotonic() - start


def keep(cache, arguments):
    """Keeps what passed, unless a file was changed while the tests ran: they may have read either version."""
    now = test_cache.surroundings(arguments) + test_cache.checkout_hash(os.environ.get("TESTED_CHECKOUT", ROOT), cache.hashes)
    if now == cache.common:
        cache.keep()
    else:
        print("files were changed while the tests ran: what passed is not remembered", file=sys.stderr)


def main():
    is_cached, at_once, cargo_arguments, arguments = parse(sys.argv[1:])
    programs = build(cargo_arguments)
    if programs is None:
        return 1
    if not programs:
        print("cargo built no test program", file=sys.stderr)
        return 1
    durations, finished, failed = Durations(programs), {}, []
    printing, begun = threading.Lock(), time.monotonic()
    cache = test_cache.Cache(programs, arguments, os.environ.get("TESTED_CHECKOUT", ROOT)) if is_cached else None
    keys = {program[0]: cache.key(program[1]) for program in programs} if cache else {}
    left_out = [program for program in programs if cache and cache.has_passed(program[0], keys[program[0]])]
    for program in left_out:
        print(f"{program[0]}: cached, nothing that it reads has changed since it passed", flush=True)
    to_run = [program for program in programs if program not in left_out]

    def one(program):
        succeeded, said, seconds = run(program, arguments)
        with printing:
            summary = [line for line in said.splitlines() if line.startswith("test result:")]
            print(f"{program[0]}: {summary[-1] if summary else 'no result'} [{seconds:.1f} s]", flush=True)
            if not succeeded:
                failed.append(program[0])
                print(said, flush=True)
        finished[program[0]] = round(seconds, 1)
        if cache:
            with printing:
                cache.note(program[0], keys[program[0]], succeeded)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, durations.order(to_run)))
    durations.keep(finished)
    if cache:
        keep(cache, arguments)
    cached = f", {len(left_out)} cached" if is_cached else ""
    print(f"{len(programs)} test programs in {time.monotonic() - begun:.0f} s, {len(failed)} failed{cached}")
    for name in sorted(failed):
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
