#!/usr/bin/env python3
"""Starts a cluster on this machine: PostgreSQL with a synchronous standby, moto as the bucket, nodes of Toolyard, haproxy.

    cluster.py PROGRAM [--nodes N] [--folder FOLDER] [--check]

Runs until it is interrupted, and stops everything it started. With --check it makes calls through the balancer, kills a
node meanwhile, shows that calls go on, and ends. Everything listens on loopback. Exits with 77 if a program of others is
missing and cannot be installed.
"""

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time

from parts import BUCKET, CANNOT_RUN, CannotRun, Haproxy, Moto, Node, Postgres, need_moto, need_programs, request

CHECK_SECONDS = 20


class Cluster:
    """Everything, in the order in which it starts."""

    # The address of everything but the nodes.
    host = "127.0.0.1"
    disk_mb = None

    def __init__(self, program, nodes, folder):
        self.program, self.count, self.folder = os.path.abspath(program), nodes, folder
        self.token = secrets.token_hex(16)
        self.effects = os.path.join(folder, "effects.txt")
        self.parts = []

    def start(self, say=print):
        need_programs()
        moto_place = need_moto()
        os.chmod(self.folder, 0o755)
        open(self.effects, "a").close()
        self.primary, self.standby = [
            Postgres(name, self.folder, self.host, self.disk_mb) for name in ("postgres_a", "postgres_b")]
        self.parts += [self.primary, self.standby]
        self.primary.create()
        self.primary.start()
        self.primary.sql("create database toolyard")
        self.standby.copy_from(self.primary)
        self.standby.start()
        self.primary.require_standby(self.standby.name)
        say("PostgreSQL: primary on port %d, synchronous standby on port %d" % (self.primary.port, self.standby.port))
        self.moto = Moto(self.folder, self.host)
        self.parts.append(self.moto)
        self.moto.start(moto_place)
        say("bucket: s3://%s at %s (moto)" % (BUCKET, self.moto.url))
        self.nodes = [self.node(number) for number in range(1, self.count + 1)]
        for node in self.nodes:
            if node.relay:
                self.parts.append(node.relay)
                node.relay.start()
            self.parts.append(node)
            node.start()
            node.wait_tools()
            say("%s: %s" % (node.name, node.url))
        self.balancer = Haproxy(self.folder, self.nodes)
        self.parts.append(self.balancer)
        self.balancer.start()
        say("balancer: %s" % self.balancer.url)
        say("token: %s" % self.token)

    def store_url(self):
        """Both servers: after a failover, nodes find the one that takes writes."""
        hosts = ",".join("%s:%d" % (server.host, server.port) for server in (self.primary, self.standby))
        return "postgres://toolyard@%s/toolyard?target_session_attrs=read-write" % hosts

    def node(self, number):
        environment = self.moto.environment()
        return Node(number, self.folder, self.program, self.token, self.store_url(), environment, self.effects,
                    self.place(number))

    def place(self, _number):
        """The namespace and address of a node; None for this machine's own."""
        return None

    def fail_over(self):
        """Kills the primary, promotes the standby, and makes a new standby of what was the primary."""
        self.primary.end(signal.SIGKILL)
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def restore_standby(self):
        self.standby.copy_from(self.primary)
        self.standby.start()
        self.primary.require_standby(self.standby.name)

    def call(self, tool, args, key=None, within=30):
        """A call through the balancer: status and answer."""
        body = {"tool": tool, "args": args}
        if key:
            body["idempotencyKey"] = key
        return request("POST", self.balancer.url + "/tools/invoke", body, self.token, within)

    def stop(self):
        for part in reversed(self.parts):
            if isinstance(part, Node):
                # A second signal: no node waits for the others.
                part.send(signal.SIGCONT)
                part.send(signal.SIGTERM)
                time.sleep(0.1)
                part.send(signal.SIGTERM)
        for part in reversed(self.parts):
            # PostgreSQL takes SIGINT for a fast stop.
            part.end(signal.SIGINT if isinstance(part, Postgres) else signal.SIGTERM)
            if isinstance(part, Postgres):
                part.unmount()


def check(cluster):
    """Calls through the balancer while a node is killed. Prints a line for each rule; whether all hold."""
    lines = []

    def rule(holds, text):
        print(("ok  " if holds else "FAILED  ") + text)
        lines.append(holds)

    status, answer = cluster.call("effects__append", {"id": "first"})
    rule(status == 200 and answer["ok"], "a call through the balancer is answered: %s" % status)
    listed = cluster.nodes[0].command("nodes", "list")["nodes"]
    rule(sorted(node["name"] for node in listed) == [node.name for node in cluster.nodes], "every node is listed")

    counts, stop = {"ok": 0, "failed": 0}, threading.Event()
    gaps, last = [0.0], [time.monotonic()]

    def work(worker):
        number = 0
        while not stop.is_set():
            # A call that got no answer is sent again under the same key.
            key = "check-%d-%d" % (worker, number)
            status, answer = cluster.call("effects__append_once", {"id": key}, key, 5)
            if status == 200 and answer and answer["ok"]:
                counts["ok"] += 1
                gaps[0] = max(gaps[0], time.monotonic() - last[0])
                last[0] = time.monotonic()
                number += 1
            else:
                counts["failed"] += 1
                time.sleep(0.1)

    workers = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(4)]
    for worker in workers:
        worker.start()
    time.sleep(CHECK_SECONDS / 4)
    before = counts["ok"]
    killed = cluster.nodes[-1]
    killed.end(signal.SIGKILL)
    time.sleep(CHECK_SECONDS / 2)
    after = counts["ok"]
    stop.set()
    for worker in workers:
        worker.join()
    rule(before > 0 and after > before, "%d calls before %s was killed, %d after" % (before, killed.name, after - before))
    with open(cluster.effects) as file:
        effects = [line.strip() for line in file if line.startswith("check-")]
    rule(len(effects) == len(set(effects)), "no effect happened twice: %d effects" % len(effects))
    rule(len(effects) >= counts["ok"], "no acknowledged effect is lost: %d acknowledged" % counts["ok"])
    rule(gaps[0] < 10, "the longest time without an answer was %.1f s; %d answers were asked for again"
         % (gaps[0], counts["failed"]))
    killed.start()
    rule(killed.is_ready(), "%s is back" % killed.name)
    return all(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--folder", help="keep everything in this folder, which must not exist")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.folder:
        os.makedirs(options.folder)
    folder = options.folder or tempfile.mkdtemp(prefix="toolyard-cluster-")
    cluster = Cluster(options.program, options.nodes, os.path.abspath(folder))
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    good = True
    try:
        cluster.start(lambda text: print(text, flush=True))
        if options.check:
            good = check(cluster)
        else:
            print("stop with Ctrl-C", flush=True)
            ended.wait()
    except CannotRun as missing:
        print("cluster: cannot run: %s" % missing, file=sys.stderr)
        return CANNOT_RUN
    finally:
        cluster.stop()
        if not options.folder:
            if good:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                print("logs: " + folder, file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
