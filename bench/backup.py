#!/usr/bin/env python3
"""Measures what a backup costs those who call meanwhile: p99 of calls at a fixed rate to a running Toolyard with a large store,
alone and while `toolyard backup` copies it, in alternating spans. Prints one JSON line: `bench`, `figures`, `target` and
`met`.

usage: backup.py PROGRAM [--megabytes N] [--rate CALLS_PER_SECOND] [--rounds N] [--dir FOLDER] [--strict]
"""
import argparse
import base64
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "soak"))
from run import Connection

WORKERS = 8
# Size of the notes that fill the store; smaller than what is kept as a file beside the database.
NOTE_BYTES = 600_000
# p99 while a backup runs, against p99 without one.
MOST = 2.0
# A span without a backup takes at least this long.
SHORTEST_SPAN = 5.0


def fill(home, megabytes):
    """Writes notes that do not compress, until the store has this size."""
    connection, rng, number = Connection(home), random.Random(1), 0
    database = os.path.join(home, "state")

    def size():
        return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(database) for name in names)

    while size() < megabytes * 1_000_000:
        for _ in range(20):
            text = base64.b64encode(rng.randbytes(NOTE_BYTES * 3 // 4)).decode()
            args = {"path": "Fill/%d.md" % (number % 8), "content": text, "collisionStrategy": "overwrite"}
            if not connection.tool("vault.writeFile", args):
                sys.exit("the store could not be filled")
            number += 1
    connection.close()
    return size()


def call(connection, worker, number):
    kind = number % 4
    if kind == 0:
        args = {"path": "Load/%d-%d.md" % (worker, number % 40), "content": "load %d" % number, "collisionStrategy": "overwrite"}
        return connection.tool("vault.writeFile", args)
    if kind == 1:
        return connection.tool("vault.readFile", {"path": "Seed.md"})
    return connection.tool("util.slugifyTitle", {"title": "Load %d" % number})


def load(home, worker, rate, stop, taken, failed):
    connection, began, number = Connection(home), time.monotonic(), 0
    while not stop.is_set():
        # A call that is due while another one is late is measured from the time at which it was due.
        due = began + number * WORKERS / rate
        pause = due - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        if not call(connection, worker, number):
            failed.append(number)
        taken.append((due, time.monotonic() - due))
        number += 1
    connection.close()


def p99(times):
    return sorted(times)[len(times) * 99 // 100] * 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=tempfile.gettempdir())
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="toolyard-backup-", dir=options.dir)
    home, vault = os.path.join(folder, "home"), os.path.join(folder, "vault")
    os.makedirs(home)
    os.makedirs(vault)
    with open(os.path.join(vault, "Seed.md"), "w") as file:
        file.write("# Seed\n")
    with open(os.path.join(home, "config.toml"), "w") as file:
        file.write('[policy.approval]\nmode = "yolo"\n')
    command = [options.program, "--home", home, "--vault", vault]
    server = subprocess.Popen(command + ["up", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        if not json.loads(server.stdout.readline())["ready"]:
            sys.exit("the server is not ready")
        store_bytes = fill(home, options.megabytes)
        stop, failed = threading.Event(), []
        taken = [[] for _ in range(WORKERS)]
        threads = [threading.Thread(target=load, args=(home, n, options.rate, stop, taken[n], failed)) for n in range(WORKERS)]
        for thread in threads:
            thread.start()
        time.sleep(2)
        spans = {"alone": [], "backup": []}
        for number in range(options.rounds):
            out = os.path.join(folder, "backup%d" % number)
            began = time.monotonic()
            subprocess.run(command + ["backup", "--out", out, "--json"], stdout=subprocess.DEVNULL, check=True)
            ended = time.monotonic()
            spans["backup"].append((began, ended))
            shutil.rmtree(out)
            time.sleep(1)
            began = time.monotonic()
            time.sleep(max(SHORTEST_SPAN, ended - spans["backup"][-1][0]))
            spans["alone"].append((began, time.monotonic()))
        stop.set()
        for thread in threads:
            thread.join()
        everything = [item for some in taken for item in some]
        within = lambda span: [seconds for due, seconds in everything if span[0] <= due < span[1]]
        alone = [p99(within(span)) for span in spans["alone"]]
        backup = [p99(within(span)) for span in spans["backup"]]
        ratio = statistics.median(backup) / statistics.median(alone)
        calls = len(everything)
        elapsed = max(due for due, _ in everything) - min(due for due, _ in everything)
        figures = {
            "ratio": round(ratio, 3),
            "p99AloneMs": round(statistics.median(alone), 2),
            "p99BackupMs": round(statistics.median(backup), 2),
            "backupSeconds": round(statistics.median(b - a for a, b in spans["backup"]), 2),
            "storeMegabytes": round(store_bytes / 1e6),
            "callsPerSecond": round(calls / elapsed, 1),
            "failed": len(failed),
        }
        met = ratio <= MOST and not failed
        print(json.dumps({"bench": "backup-load", "figures": figures, "target": "ratio <= %g" % MOST, "met": met}))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if options.strict and not met else 0)


if __name__ == "__main__":
    main()
