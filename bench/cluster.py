#!/usr/bin/env python3
"""Measures a cluster on this machine. Each benchmark prints one JSON line, as toolyard-bench does.

    bench/cluster.py NAME [--programs FOLDER] [--rounds N] [--kills N] [--clients N] [--nodes N] [--seed S] [--strict]

    steps     a durable step against a bare commit on the same PostgreSQL server
    foreach   durable loops, 16 and 64 wide, against sequential steps
    notify    what hints to other nodes cost appends
    dbos      steps a second against DBOS (from PyPI) on the same server
    events    how late ten nodes hear what one of them records
    takeover  a node is killed, again and again: how long until others hold its runs
    clients   connected clients of ten nodes in namespaces of their own, one node killed
    all       all of them

FOLDER has the programs toolyard and toolyard-bench; without it, those of the profile `quick` are taken. PostgreSQL and
haproxy come from apt, moto and DBOS from PyPI. `takeover` and `clients` need root, for the namespaces.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(os.path.dirname(HERE), "examples", "cluster")
sys.path.insert(0, EXAMPLE)
sys.dont_write_bytecode = True

from chaos import ChaosCluster  # noqa: E402
from parts import CANNOT_RUN, CannotRun, Haproxy, Postgres, need_programs  # noqa: E402

ON_A_SERVER = ["steps", "foreach", "notify", "dbos", "events"]
TAKE_OVER_P99 = 5
# A balancer needs two descriptors for each client.
CLIENTS_PER_BALANCER = 5000
DISK_MB = 1024


def print_line(name, figures, target, met):
    print(json.dumps({"bench": "cluster-" + name, "figures": figures, "target": target, "met": met}), flush=True)
    return met


def on_a_server(name, options, folder):
    """A benchmark of toolyard-bench on a PostgreSQL server without a standby: the shortest commit that there is."""
    need_programs({"postgres": "postgresql"})
    os.chmod(folder, 0o755)
    server = Postgres("postgres", folder)
    try:
        server.create()
        server.start()
        url = "postgres://toolyard@127.0.0.1:%d/postgres" % server.port
        command = [options.bench, "cluster-" + name, "--url", url, "--rounds", str(options.rounds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(done.stdout, end="", flush=True)
        if done.returncode:
            raise RuntimeError("toolyard-bench failed")
        return json.loads(done.stdout)["met"]
    finally:
        server.end(signal.SIGINT)


def takeover(options, folder):
    """Kills by the script of the chaos: plans are under way all the time, and are judged afterwards."""
    report = os.path.join(folder, "report.json")
    command = [sys.executable, os.path.join(EXAMPLE, "chaos.py"), options.toolyard, "--kills", str(options.kills),
               "--seed", str(options.seed), "--report", report]
    for other in ("failovers", "stops", "partitions", "splits", "skews", "fulls"):
        command += ["--" + other, "0"]
    done = subprocess.run(command, stdout=sys.stderr)
    if done.returncode == CANNOT_RUN:
        raise CannotRun("see above")
    with open(report) as file:
        found = json.load(file)
    spread = found["takeOver"]
    figures = {"p50Seconds": spread["p50"], "p99Seconds": spread["p99"], "maxSeconds": spread["max"],
               "takeOvers": spread["count"], "kills": found["faults"].get("kill", 0), "lost": found["lost"],
               "repeated": found["repeated"], "paused": found["paused"],
               "pausedUnexplained": found["pausedUnexplained"], "load": found["load"][0]}
    met = done.returncode == 0 and spread["p99"] is not None and spread["p99"] < TAKE_OVER_P99
    return print_line("takeover", figures, "p99Seconds < %d, lost <= 0, repeated <= 0" % TAKE_OVER_P99, met)


class CrowdedCluster(ChaosCluster):
    """A cluster with as many balancers as its clients need."""

    def add_balancers(self, clients):
        self.balancers = [self.balancer]
        while len(self.balancers) * CLIENTS_PER_BALANCER < clients:
            balancer = Haproxy(self.folder, self.nodes, "haproxy%d" % len(self.balancers))
            self.parts.append(balancer)
            balancer.start()
            self.balancers.append(balancer)


def clients(options, folder):
    cluster = CrowdedCluster(options.toolyard, options.nodes, folder, DISK_MB)
    lines = os.path.join(folder, "acknowledged.txt")
    try:
        cluster.start(lambda text: print(text, file=sys.stderr, flush=True))
        cluster.add_balancers(options.clients)
        addresses = ",".join("127.0.0.1:%d" % balancer.port for balancer in cluster.balancers)
        command = [options.bench, "cluster-clients", "--url", "%s@%s" % (cluster.token, addresses), "--clients",
                   str(options.clients), "--data", lines]
        herd = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if herd.stdout.readline().strip() != "kill":
                raise RuntimeError("the clients did not connect")
            # The whole machine is gone, with what accepts connections for the node.
            victim = cluster.nodes[-1]
            victim.relay.send(signal.SIGKILL)
            victim.end(signal.SIGKILL)
            herd.stdin.write("killed\n")
            herd.stdin.flush()
            found = json.loads(herd.stdout.readline())
        finally:
            herd.kill()
            herd.wait()
        with open(cluster.effects) as file:
            effects = {line.strip() for line in file}
        with open(lines) as file:
            lost = sum(line.strip() not in effects for line in file if line.strip())
        figures = dict(found["figures"], lost=lost, nodes=options.nodes)
        return print_line("clients", figures, found["target"] + ", lost <= 0", bool(found["met"]) and lost == 0)
    finally:
        cluster.stop()


def find_programs(options):
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.expanduser("~/.cache/toolyard/target")
    folder = os.path.abspath(options.programs or os.path.join(target, "quick"))
    options.toolyard, options.bench = os.path.join(folder, "toolyard"), os.path.join(folder, "toolyard-bench")
    for program in (options.toolyard, options.bench):
        if not os.access(program, os.X_OK):
            raise CannotRun("%s is missing: cargo build --profile quick -p toolyard -p toolyard-bench" % program)


def measure(name, options):
    folder = tempfile.mkdtemp(prefix="toolyard-bench-")
    try:
        if name in ON_A_SERVER:
            return on_a_server(name, options, folder)
        return takeover(options, folder) if name == "takeover" else clients(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ON_A_SERVER + ["takeover", "clients"]
    parser.add_argument("name", choices=names + ["all"])
    parser.add_argument("--programs", help="folder with toolyard and toolyard-bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--clients", type=int, default=10000)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    options = parser.parse_args()
    try:
        find_programs(options)
        met = [measure(name, options) for name in (names if options.name == "all" else [options.name])]
    except CannotRun as missing:
        print("bench: cannot run: %s" % missing, file=sys.stderr)
        return CANNOT_RUN
    return 1 if options.strict and not all(met) else 0


if __name__ == "__main__":
    sys.exit(main())
