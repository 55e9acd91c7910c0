#!/usr/bin/env python3
"""Breaks a cluster while it works, and counts what became of the work.

    chaos.py PROGRAM [--nodes N] [--seed S] [--report FILE] [--kills K] [--failovers F] [--stops S] [--stop-seconds T]
             [--partitions P] [--splits P] [--skews C] [--fulls D]

Every node runs in a network namespace of its own, so this needs root. Clients start plans and make keyed calls through the
balancer. Each step appends a line to a file outside the cluster. Meanwhile, in an order that the seed decides:

    kill       a node is killed (SIGKILL) and started again
    failover   the database's primary is killed, the standby promoted, and a new standby made
    stop       a node is stopped (SIGSTOP) and continued: what it writes afterwards is counted
    partition  packets between a node and the database are dropped (nft)
    split      packets between a node and the other nodes are dropped
    skew       a node runs with a wrong clock (faketime)
    full       the disk of the primary or of the standby is full, and then is not

At the end every acknowledged plan must have ended or be paused for a person, no line may be missing from a plan that
finished, no line may be there twice, every pause must be explained by a fault, and every run must verify. Prints one JSON
line; --report writes it with every pause and every fault to a file. Exits with 1 if a rule does not hold.
"""

import argparse
import collections
import json
import math
import os
import random
import shutil
import sys
import tempfile
import threading
import time

from client import Gateway, Refused
from cluster import Cluster
from faults import Faults
from judge import STEPS, judge, settle
from network import Network
from parts import CANNOT_RUN, CannotRun

PLANNERS = 6
CALLERS = 2
# Each client begins something this often, and a step takes this long: so runs are under way at every moment.
EVERY_SECONDS = 0.3
STEP_MS = 80
# The bar for the time from the kill of a node until others hold its runs.
TAKE_OVER_P99 = 5.0


class ChaosCluster(Cluster):
    """A cluster whose nodes have namespaces of their own, and whose database servers have disks of their own."""

    def __init__(self, program, nodes, folder, disk_mb):
        super().__init__(program, nodes, folder)
        self.network, self.disk_mb = Network(), disk_mb
        self.host = self.network.host

    def place(self, number):
        return self.network.join(number)

    def stop(self):
        super().stop()
        self.network.stop()


class Load:
    """Clients that start plans and make calls until they are stopped."""

    def __init__(self, cluster):
        self.cluster, self.stop, self.lock = cluster, threading.Event(), threading.Lock()
        self.acknowledged, self.tried, self.errors = {}, 0, collections.Counter()
        self.calls_done, self.in_doubt, self.given_up, self.last_acknowledged = [], [], [], 0.0
        work = [self.plan_worker] * PLANNERS + [self.call_worker] * CALLERS
        self.workers = [threading.Thread(target=each, args=(number,), daemon=True) for number, each in enumerate(work)]
        for worker in self.workers:
            worker.start()

    def plan(self, name, number):
        # Every other plan uses the tool that may be repeated.
        tool = "effects__append_once" if number % 2 else "effects__append"
        steps = [{"id": "s%d" % step, "tool": tool, "args": {"id": "%s/s%d" % (name, step), "ms": STEP_MS},
                  "dependsOn": ["s%d" % (step - 1)] if step else []} for step in range(STEPS)]
        return {"version": "1.0", "goal": name, "riskLevel": "writes", "steps": steps}

    def plan_worker(self, worker):
        connection, number = None, 0
        while not self.stop.wait(EVERY_SECONDS):
            name = "plan-%d-%d" % (worker, number)
            number += 1
            with self.lock:
                self.tried += 1
            try:
                connection = connection or Gateway(self.cluster.balancer.port, self.cluster.token)
                begun = connection.call("plans.run", {"plan": self.plan(name, number), "detach": True})
                with self.lock:
                    self.acknowledged[name], self.last_acknowledged = begun["runId"], time.time()
            except Refused as refused:
                self.errors[json.loads(str(refused)).get("code", "?")] += 1
            except OSError:
                self.errors["connection"] += 1
                if connection:
                    connection.close()
                connection = None

    def call_worker(self, worker):
        """Calls with an idempotency key, asked for again with the same key until there is an answer."""
        number, name = 0, None
        while name or not self.stop.wait(EVERY_SECONDS):
            if name is None:
                name, number, tries = "call-%d-%d" % (worker, number), number + 1, 0
            arguments = {"id": name, "ms": STEP_MS}
            status, body = self.cluster.call("effects__append", arguments, name, 20)
            if status == 200 and (body or {}).get("ok"):
                self.calls_done.append(name)
            elif "IN_DOUBT" in json.dumps(body):
                self.in_doubt.append(name)
            else:
                tries += 1
                self.errors["call %s" % (status or "connection")] += 1
                time.sleep(0.3)
                if tries < 200:
                    continue
                self.given_up.append(name)
            name = None

    def end(self):
        self.stop.set()
        for worker in self.workers:
            worker.join(90)


def percentile(values, share):
    """The smallest value that is not exceeded by this share of the values."""
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3) if ordered else None


def spread(values):
    return {"count": len(values), "p50": percentile(values, 0.5), "p99": percentile(values, 0.99),
            "max": percentile(values, 1)}


def rules(report, take_overs):
    return [
        (report["lost"] == 0, "none lost"),
        (report["repeated"] == 0, "none repeated"),
        (report["failed"] == 0 and report["callsUnanswered"] == 0, "no plan failed, every call was answered"),
        (report["verified"], "every run verifies: %s" % report["runsVerified"]),
        (report["finished"] > 0, "%d plans finished" % report["finished"]),
        (report["pausedUnexplained"] == 0, "every one of %d pauses is explained" % report["paused"]),
        (report["zombies"]["rows"] == 0, "no rows of %d nodes that were stopped, fenced and continued" % report["zombies"]["stopped"]),
        (not take_overs or report["takeOver"]["p99"] < TAKE_OVER_P99, "taken over within %s s" % report["takeOver"]["p99"]),
    ]


def run(options, folder):
    say = lambda text: print(text, file=sys.stderr, flush=True)
    cluster = ChaosCluster(options.program, options.nodes, folder, options.disk_mb)
    try:
        cluster.start(say)
        load, began = Load(cluster), time.monotonic()
        faults = Faults(cluster, load, random.Random(options.seed), options)
        faults.watch_records()
        time.sleep(2)
        todo = faults.order()
        for number, kind in enumerate(todo, 1):
            if time.monotonic() - began > options.seconds:
                say("stopped after %d of %d faults: the time is over" % (number - 1, len(todo)))
                break
            fault = faults.inject(number, kind)
            say("%d/%d %s: %.1f s %s; %d plans" % (number, len(todo), fault.describe(), fault.ended - fault.began,
                                                   json.dumps(fault.detail), len(load.acknowledged)))
            time.sleep(faults.rng.uniform(0.2, 1.5))
        load.end()
        found = settle(cluster)
        counts, effects, notes, pauses = judge(cluster, load, faults, found)
        verified = cluster.nodes[0].command("runs", "verify", may_fail=True)
        notes += ["does not verify: %s" % json.dumps(bad) for bad in verified.get("badRuns", [])]
        report = {
            "seed": options.seed, "faults": dict(collections.Counter(fault.kind for fault in faults.done)),
            "seconds": round(time.monotonic() - began), "load": [round(each, 1) for each in os.getloadavg()],
            "plans": load.tried, "acknowledged": len(load.acknowledged), "effects": sum(effects.count.values()),
            "calls": len(load.calls_done), "callsInDoubt": len(load.in_doubt),
            "callsUnanswered": counts["unanswered"],
            "finished": counts["finished"], "failed": counts["failed"], "lost": counts["lost"],
            "repeated": counts["repeated"], "paused": len(pauses),
            "pausedUnexplained": sum(not pause["isExplained"] for pause in pauses),
            "pausedByFault": dict(collections.Counter(
                (call["fault"] or "no fault").split(" ")[0] for pause in pauses for call in pause["calls"])),
            "zombies": {"stopped": len(faults.zombies), "rows": sum(each["rows"] for each in faults.zombies),
                        "effects": sum(each["effects"] for each in faults.zombies),
                        "ended": sum(each["ends"] for each in faults.zombies)},
            "takeOver": spread(faults.take_overs), "backAfterPromotion": spread(faults.promotions),
            "restarts": len(faults.restarts), "refusals": dict(load.errors),
            "verified": verified.get("ok", False), "runsVerified": verified.get("runs"),
        }
        if options.report:
            full = dict(report, pauses=pauses, notes=notes,
                        history=[dict(fault.detail, fault=fault.describe(), began=fault.began, ended=fault.ended)
                                 for fault in faults.done])
            with open(options.report, "w") as file:
                json.dump(full, file, indent=1)
        for note in notes[:20]:
            say(note)
        for pause in pauses:
            say(json.dumps(pause))
        print(json.dumps(report))
        judged = rules(report, faults.take_overs)
        for holds, text in judged:
            print(("ok  " if holds else "FAILED  ") + text)
        return all(holds for holds, _ in judged)
    finally:
        cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--nodes", type=int, default=3)
    for kind, count in (("kills", 3), ("failovers", 1), ("stops", 1), ("partitions", 1), ("splits", 1), ("skews", 1),
                        ("fulls", 1)):
        parser.add_argument("--" + kind, type=int, default=count)
    parser.add_argument("--stop-seconds", type=float, default=8)
    parser.add_argument("--disk-mb", type=int, default=1024, help="size of each database server's disk")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no fault after this time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", help="write everything that was found to this file")
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
