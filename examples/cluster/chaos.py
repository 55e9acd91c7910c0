#!/usr/bin/env python3
"""Breaks a cluster while it works, and counts what became of the work.

    chaos.py PROGRAM [--nodes N] [--kills K] [--failovers F] [--stops S] [--stop-seconds T] [--partitions P] [--seed S]

Clients start plans through the balancer. Each step appends a line to a file outside the cluster. Meanwhile, in an order
that the seed decides, nodes are killed (SIGKILL) and started again, stopped (SIGSTOP) and continued, cut off from the
database, and the database's primary is killed and its standby promoted. At the end every acknowledged plan must have
ended or be paused for a person, no line may be missing from a plan that finished, no line may be there twice, and every
run must verify. Prints one JSON line; exits with 1 if something was lost or repeated.
"""

import argparse
import collections
import json
import os
import random
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time

from client import Gateway, Refused
from cluster import Cluster
from parts import CANNOT_RUN, CannotRun, free_port, wait_for

STEPS = 4
CLIENTS = 4
# Within this time after the last fault every run has ended or is paused.
SETTLE_WITHIN = 180


class Wire(threading.Thread):
    """Passes connections of one node on to one server, and can hold them up as a broken network would: nothing arrives,
    and nobody is told."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.target, self.port, self.is_cut = target, free_port(), False
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.other = {}
        self.start()

    def drop(self, end):
        for each in (end, self.other.pop(end, None)):
            if each is not None:
                self.other.pop(each, None)
                each.close()

    def accept(self):
        near = self.listener.accept()[0]
        try:
            far = socket.create_connection(("127.0.0.1", self.target.port), 1)
        except OSError:
            near.close()
            return
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.other[near], self.other[far] = far, near

    def run(self):
        while True:
            if self.is_cut:
                time.sleep(0.02)
                continue
            ready = select.select([self.listener] + list(self.other), [], [], 0.05)[0]
            for end in ready:
                if self.is_cut:
                    break
                if end is self.listener:
                    self.accept()
                elif end in self.other:
                    try:
                        data = end.recv(65536)
                        if data:
                            self.other[end].sendall(data)
                        else:
                            self.drop(end)
                    except OSError:
                        self.drop(end)


class WiredCluster(Cluster):
    """A cluster whose nodes reach the database over wires that can be cut."""

    def node(self, number):
        wires = [Wire(server) for server in (self.primary, self.standby)]
        node = super().node(number)
        hosts = ",".join("127.0.0.1:%d" % wire.port for wire in wires)
        node.environment["TOOLYARD_STORE_URL"] = "postgres://toolyard@%s/toolyard?target_session_attrs=read-write" % hosts
        node.wires = wires
        return node


class Load:
    """Clients that start plans until they are stopped."""

    def __init__(self, cluster):
        self.cluster, self.stop, self.lock = cluster, threading.Event(), threading.Lock()
        self.acknowledged, self.tried, self.errors = {}, 0, collections.Counter()
        self.workers = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(CLIENTS)]
        for worker in self.workers:
            worker.start()

    def plan(self, name, number):
        # Every other plan uses the tool that may be repeated.
        tool = "effects__append_once" if number % 2 else "effects__append"
        steps = [{"id": "s%d" % step, "tool": tool, "args": {"id": "%s/s%d" % (name, step)},
                  "dependsOn": ["s%d" % (step - 1)] if step else []} for step in range(STEPS)]
        return {"version": "1.0", "goal": name, "riskLevel": "writes", "steps": steps}

    def work(self, worker):
        connection, number = None, 0
        while not self.stop.is_set():
            name = "plan-%d-%d" % (worker, number)
            number += 1
            with self.lock:
                self.tried += 1
            try:
                connection = connection or Gateway(self.cluster.balancer.port, self.cluster.token)
                begun = connection.call("plans.run", {"plan": self.plan(name, number), "detach": True})
                with self.lock:
                    self.acknowledged[name] = begun["runId"]
                time.sleep(0.05)
            except Refused as refused:
                self.errors[json.loads(str(refused)).get("code", "?")] += 1
                time.sleep(0.2)
            except OSError:
                self.errors["connection"] += 1
                if connection:
                    connection.close()
                connection = None
                time.sleep(0.2)

    def end(self):
        self.stop.set()
        for worker in self.workers:
            worker.join(30)


def faults(options, rng):
    """The order of faults."""
    todo = ["kill"] * options.kills + ["failover"] * options.failovers
    todo += ["stop"] * options.stops + ["partition"] * options.partitions
    rng.shuffle(todo)
    return todo


def break_something(cluster, fault, rng, options):
    node = rng.choice(cluster.nodes)
    if fault == "kill":
        node.end(signal.SIGKILL)
        time.sleep(rng.uniform(0.5, 5))
        node.start(wait=False)
    elif fault == "stop":
        node.send(signal.SIGSTOP)
        time.sleep(options.stop_seconds)
        node.send(signal.SIGCONT)
    elif fault == "partition":
        for wire in node.wires:
            wire.is_cut = True
        time.sleep(rng.uniform(1, 10))
        for wire in node.wires:
            wire.is_cut = False
    elif fault == "failover":
        cluster.fail_over()
        time.sleep(rng.uniform(0.5, 2))
        cluster.restore_standby()
    wait_for("every node to be ready", lambda: all([is_ready_again(each) for each in cluster.nodes]), 120)


def is_ready_again(node):
    """A node that was fenced ends by itself, and a service manager would start it again."""
    if not node.is_running():
        node.start(wait=False)
    return node.is_ready()


def every_run(node, cluster):
    """Status of every plan, by its goal."""
    connection, before, found = Gateway(node.port, cluster.token, 30), None, {}
    while True:
        params = {"kind": "plan", "limit": 500}
        if before:
            params["before"] = before
        page = connection.call("runs.list", params)
        for run in page["runs"]:
            found[run["title"]] = run
        before = page.get("next")
        if not before or not page["runs"]:
            connection.close()
            return found


def settle(cluster):
    """Waits until no run is pending or running."""
    give_up = time.monotonic() + SETTLE_WITHIN
    while True:
        try:
            found = every_run(cluster.nodes[0], cluster)
        except (OSError, Refused):
            found = None
        if found is not None and not any(run["status"] in ("pending", "running") for run in found.values()):
            return found
        if time.monotonic() > give_up:
            raise RuntimeError("runs are still open after %d s" % SETTLE_WITHIN)
        time.sleep(0.5)


def judge(cluster, load, found):
    """What became of the work."""
    with open(cluster.effects) as file:
        effects = collections.Counter(line.strip() for line in file)
    result = collections.Counter()
    result["repeated"] = sum(count - 1 for count in effects.values() if count > 1)
    notes = []
    for name in load.acknowledged:
        run = found.get(name)
        if run is None:
            result["lost"] += 1
            notes.append("%s was acknowledged and is not there" % name)
            continue
        result[run["status"]] += 1
        if run["status"] == "finished":
            missing = sum(1 for step in range(STEPS) if not effects["%s/s%d" % (name, step)])
            result["lost"] += missing
            if missing:
                notes.append("%s finished without %d of its effects" % (name, missing))
        elif run["status"] not in ("paused", "cancelled"):
            notes.append("%s: %s" % (name, run["status"]))
    return result, effects, notes


def run(options, folder):
    rng = random.Random(options.seed)
    cluster = WiredCluster(options.program, options.nodes, folder)
    try:
        cluster.start(lambda text: print(text, file=sys.stderr))
        load, began, longest = Load(cluster), time.monotonic(), 0.0
        time.sleep(2)
        todo = faults(options, rng)
        for number, fault in enumerate(todo):
            at = time.monotonic()
            break_something(cluster, fault, rng, options)
            longest = max(longest, time.monotonic() - at)
            print("%d/%d %s: %.1f s; %d plans" % (number + 1, len(todo), fault, time.monotonic() - at,
                                                  len(load.acknowledged)), file=sys.stderr)
            time.sleep(rng.uniform(0.2, 1.5))
        load.end()
        found = settle(cluster)
        result, effects, notes = judge(cluster, load, found)
        verified = cluster.nodes[0].command("runs", "verify")
        report = {"seed": options.seed, "faults": dict(collections.Counter(todo)),
                  "seconds": round(time.monotonic() - began), "plans": load.tried,
                  "acknowledged": len(load.acknowledged), "effects": sum(effects.values()),
                  "finished": result["finished"], "paused": result["paused"], "failed": result["failed"],
                  "lost": result["lost"], "repeated": result["repeated"], "refusals": dict(load.errors),
                  "verified": verified.get("ok", False)}
        for note in notes[:20]:
            print(note, file=sys.stderr)
        print(json.dumps(report))
        rules = [(report["lost"] == 0, "none lost"), (report["repeated"] == 0, "none repeated"),
                 (report["failed"] == 0, "no plan failed"), (report["verified"], "every run verifies"),
                 (report["finished"] > 0, "plans finished")]
        for holds, text in rules:
            print(("ok  " if holds else "FAILED  ") + text)
        print("ok  %d paused" % report["paused"])
        return all(holds for holds, _ in rules)
    finally:
        cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--failovers", type=int, default=1)
    parser.add_argument("--stops", type=int, default=1)
    parser.add_argument("--stop-seconds", type=float, default=8)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder, good = tempfile.mkdtemp(prefix="toolyard-chaos-"), False
    try:
        good = run(options, folder)
    except CannotRun as missing:
        print("chaos: cannot run: %s" % missing, file=sys.stderr)
        return CANNOT_RUN
    finally:
        if good:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print("logs: " + folder, file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
