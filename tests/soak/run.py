#!/usr/bin/env python3
"""Drives a real Toolyard with a mixed load and looks at its memory, descriptors and disk.

Reads, writes that succeed, plans, searches, memories and reconnects, at a fixed rate of calls. Prints one JSON line and
ends with 1 when a limit is broken: private memory (Private_Dirty + Swap) at the end within 10 % of what it was after the
warm-up (25 % in less than ten minutes, where the store and its caches still fill), as many descriptors, the store within its retention, no failed call.

    tests/soak/run.py PROGRAM [--minutes N] [--rate CALLS_PER_SECOND]
"""

import argparse
import concurrent.futures
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

WORKERS = 8
# The newest thousand recalls and extractions are kept in memory. So many are made before memory is looked at for the first
# time: a store that fills up is no leak, and one that goes on growing is.
KEPT_IN_MEMORY = 1000
# Small, so that runs are pruned while others end even in a short soak.
RETENTION_MEGABYTES = 16
# How much memory may grow after the warm-up, in a soak of at least `LONG_SECONDS` and in a shorter one. At 100 calls a second
# the store reaches its retention after more than two minutes only, so a short soak measures caches that still fill as well.
LONG_SECONDS = 600
GROWTH, SHORT_GROWTH = 1.1, 1.25
WORDS = "river stone ledger morning review garden meeting travel music letter report sensor backup idea draft".split()


class Connection:
    """The local socket of a running Toolyard."""

    def __init__(self, home):
        self.home = home
        self.number = 0
        self.connect()

    def connect(self):
        state = os.path.join(self.home, "state")
        with open(os.path.join(state, "local.secret")) as file:
            secret = file.read()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.path.join(state, "toolyard.sock"))
        self.lines = self.socket.makefile("r")
        self.send({"secret": secret})

    def close(self):
        self.lines.close()
        self.socket.close()

    def send(self, message):
        self.socket.sendall((json.dumps(message) + "\n").encode())

    def method(self, name, params):
        self.number += 1
        self.send({"id": self.number, "method": name, "params": params})
        while True:
            line = self.lines.readline()
            if not line:
                raise RuntimeError("the server hung up")
            message = json.loads(line)
            if "event" not in message:
                return message

    def tool(self, name, args):
        answer = self.method("tools.call", {"name": name, "args": args})
        return answer.get("result", {}).get("result", {}).get("ok") is True


def one(connection, rng, worker, number):
    """One call of the mix; whether it did what it should."""
    kind = number % 20
    words = " ".join(rng.choice(WORDS) for _ in range(3))
    if kind < 9:
        return connection.tool("vault.readFile", {"path": "Seed/%d.md" % rng.randrange(50)})
    if kind < 13:
        path = "Soak/%d-%d.md" % (worker, number % 40)
        args = {"path": path, "content": words, "collisionStrategy": "overwrite"}
        return connection.tool("vault.writeFile", args)
    if kind == 13:
        return connection.tool("vault.searchText", {"query": rng.choice(WORDS)})
    if kind == 14:
        # The same few memories again and again: what people keep may take memory, and is no leak.
        text = "The %s is number %d" % (WORDS[number // 20 % len(WORDS)], number // 20 % len(WORDS))
        return connection.tool("memory_store", {"text": text})
    if kind == 15:
        return connection.tool("memory_recall", {"query": words})
    if kind == 16:
        steps = [{"id": "s", "tool": "util.slugifyTitle", "args": {"title": words}}]
        plan = {"version": "1.0", "goal": "soak", "riskLevel": "read-only", "steps": steps}
        answer = connection.method("plans.run", {"plan": plan})
        return answer.get("result", {}).get("status") == "finished"
    if kind == 17:
        connection.close()
        connection.connect()
        return True
    return connection.tool("util.slugifyTitle", {"title": words})


def fill(home, worker):
    """A worker's share of the memories and recalls that are made before the soak begins."""
    rng, connection = random.Random(worker), Connection(home)
    for number in range(KEPT_IN_MEMORY // WORKERS + 1):
        if not (one(connection, rng, worker, 20 * number + 14) and one(connection, rng, worker, 20 * number + 15)):
            raise RuntimeError("a memory could not be kept or recalled")
    connection.close()


def work(home, worker, rate, stop, counts, times):
    rng = random.Random(worker)
    connection = Connection(home)
    began, number = time.monotonic(), 0
    while not stop.is_set():
        due = began + number * WORKERS / rate
        pause = due - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        started = time.monotonic()
        ok = one(connection, rng, worker, number)
        times.append(time.monotonic() - started)
        counts["calls" if ok else "failed"] += 1
        number += 1
    connection.close()


def private_bytes(pid):
    total = 0
    with open("/proc/%d/smaps_rollup" % pid) as file:
        for line in file:
            if line.startswith(("Private_Dirty:", "Swap:")):
                total += int(line.split()[1]) * 1024
    return total


def ledger_bytes(home):
    """The ledger also proves runs that were removed, so retention does not count it and it grows."""
    database = sqlite3.connect("file:%s?mode=ro" % os.path.join(home, "state", "toolyard.db"), uri=True)
    try:
        return database.execute("SELECT coalesce(sum(length(payload) + length(chain)), 0) FROM ledger").fetchone()[0]
    finally:
        database.close()


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def middle_of_looks(pid, seconds):
    memory, open_files = [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        memory.append(private_bytes(pid))
        open_files.append(descriptors(pid))
        time.sleep(0.25)
    return statistics.median(memory), statistics.median(open_files)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=500)
    options = parser.parse_args()
    seconds = options.minutes * 60
    look = min(15.0, seconds / 6)
    warm_up = min(60.0, seconds / 3)

    folder = tempfile.mkdtemp(prefix="toolyard-soak-")
    home, vault = os.path.join(folder, "home"), os.path.join(folder, "vault")
    os.makedirs(os.path.join(vault, "Seed"))
    os.makedirs(home)
    for number in range(50):
        with open(os.path.join(vault, "Seed", "%d.md" % number), "w") as file:
            file.write("# Seed %d\n\n%s\n" % (number, " ".join(WORDS)))
    with open(os.path.join(home, "config.toml"), "w") as file:
        file.write("[retention]\nmaxMegabytes = %d\n[policy.approval]\nmode = \"yolo\"\n" % RETENTION_MEGABYTES)
    command = [options.program, "--home", home, "--vault", vault]
    # A program that was just built counts as private memory until its file is on the disk.
    os.sync()
    server = subprocess.Popen(command + ["up", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True)
    failed = []
    try:
        if not json.loads(server.stdout.readline())["ready"]:
            sys.exit("the server is not ready")
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(fill, [home] * WORKERS, range(WORKERS)))
        stop = threading.Event()
        counts = [{"calls": 0, "failed": 0} for _ in range(WORKERS)]
        times = [[] for _ in range(WORKERS)]
        threads = [
            threading.Thread(target=work, args=(home, n, options.rate, stop, counts[n], times[n])) for n in range(WORKERS)
        ]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        # Caches fill, and the store reaches its retention, before memory is looked at for the first time.
        time.sleep(warm_up - look)
        first_memory, first_files = middle_of_looks(server.pid, look)
        while time.monotonic() - began < seconds - look:
            time.sleep(1)
            # What the running Toolyard does once an hour, often enough to be seen here.
            subprocess.run(command + ["prune", "--json"], capture_output=True, check=True)
            time.sleep(min(5, max(0, seconds - look - (time.monotonic() - began))))
        last_memory, last_files = middle_of_looks(server.pid, look)
        stop.set()
        for thread in threads:
            thread.join()
        elapsed = time.monotonic() - began
        stats = json.loads(subprocess.run(command + ["store", "stats", "--json"], capture_output=True, check=True).stdout)
        ledger = ledger_bytes(home)
        used = stats["usedBytes"] - ledger
        verified = json.loads(subprocess.run(command + ["runs", "verify", "--json"], capture_output=True).stdout)
        checked = json.loads(subprocess.run(command + ["store", "check", "--json"], capture_output=True).stdout)
        all_times = sorted(t for some in times for t in some)
        report = {
            "soak": "mixed",
            "seconds": round(elapsed),
            "calls": sum(c["calls"] for c in counts),
            "failed": sum(c["failed"] for c in counts),
            "callsPerSecond": round(sum(c["calls"] for c in counts) / elapsed, 1),
            "p50Ms": round(all_times[len(all_times) // 2] * 1000, 2),
            "p99Ms": round(all_times[len(all_times) * 99 // 100] * 1000, 2),
            "privateMegabytesAfterWarmUp": round(first_memory / 1e6, 2),
            "privateMegabytesAtEnd": round(last_memory / 1e6, 2),
            "descriptorsAfterWarmUp": first_files,
            "descriptorsAtEnd": last_files,
            "usedMegabytes": round(used / 1e6, 2),
            "ledgerMegabytes": round(ledger / 1e6, 2),
            "verified": verified.get("ok"),
            "checked": checked.get("ok"),
        }
        if report["failed"]:
            failed.append("calls failed")
        growth = GROWTH if seconds >= LONG_SECONDS else SHORT_GROWTH
        if last_memory > growth * first_memory:
            failed.append(f"memory grew by more than {growth - 1:.0%}")
        if last_files > first_files + WORKERS:
            failed.append("descriptors grew")
        if used > 1.25 * RETENTION_MEGABYTES * 1_000_000:
            failed.append("the store outgrew its retention")
        if not (report["verified"] and report["checked"]):
            failed.append("the record does not hold: %s" % json.dumps(verified.get("firstBad")))
        report["failedLimits"] = failed
        print(json.dumps(report))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
