#!/usr/bin/env python3
"""Two real Toolyards on one PostgreSQL: one is killed, or stopped and continued, while it runs a plan.

- A plan of appends runs on node A. A is killed with SIGKILL at a seeded random moment: B takes the run over and finishes it;
  every append is in the file exactly once (0 lost, 0 repeated), or the run is paused and says why.
- A is stopped with SIGSTOP for longer than its time to live and continued: B takes the run over, A writes nothing more and
  ends by itself.
- State is moved from SQLite to PostgreSQL and back.
- Afterwards `runs verify` on B checks the record of both nodes.

    tests/cluster/takeover.py PROGRAM [--rounds N] [--seed N]
"""

import argparse
import glob
import json
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STEPS = 400
PATIENCE = 120
TOKEN = "test-token-of-16-chars"


def demote():
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)


class Postgres:
    """A server in a temporary folder, on a Unix socket."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="toolyard-pg")
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.dir, user.pw_uid, user.pw_gid)
        os.chmod(self.dir, 0o755)
        self.programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        data = os.path.join(self.dir, "data")
        initdb = [os.path.join(self.programs, "initdb"), "--auth=trust", "-U", "toolyard", "-E", "UTF8", "--locale=C", "-D", data]
        subprocess.run(initdb, check=True, preexec_fn=demote, cwd=self.dir, stdout=subprocess.DEVNULL)
        server = [os.path.join(self.programs, "postgres"), "-D", data, "-k", self.dir, "-c", "listen_addresses="]
        self.process = subprocess.Popen(server, preexec_fn=demote, cwd=self.dir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until("PostgreSQL never answered", lambda: subprocess.run([os.path.join(self.programs, "pg_isready"), "-q", "-h", self.dir]).returncode == 0)
        self.number = 0

    def database(self):
        self.number += 1
        name = f"yard{self.number}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return name, f"postgres://toolyard@{self.dir.replace('/', '%2F')}/{name}"

    def sql(self, database, sql):
        psql = [os.path.join(self.programs, "psql"), "-h", self.dir, "-U", "toolyard", "-d", database, "-qAtc", sql]
        return subprocess.run(psql, check=True, capture_output=True, text=True).stdout.strip()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def until(what, is_so):
    began = time.monotonic()
    while True:
        answer = is_so()
        if answer:
            return answer
        if time.monotonic() - began > PATIENCE:
            raise SystemExit(f"FAILED: {what}")
        time.sleep(0.02)


class Node:
    def __init__(self, program, folder, name, vault, url):
        self.home, self.vault, self.program = os.path.join(folder, name), vault, program
        os.makedirs(self.home)
        with open(os.path.join(self.home, "config.toml"), "w") as file:
            file.write(f'[store]\nurl = "{url}"\n[node]\nname = "{name}"\n[knowledge]\nenabled = false\n[context]\nenabled = false\n')
        self.env = {"PATH": "/usr/bin:/bin", "HOME": self.home, "USER": "tester"}
        self.process = None

    def up(self):
        args = [self.program, "--home", self.home, "--vault", self.vault, "up", "--port", "0", "--token", TOKEN, "--json"]
        self.process = subprocess.Popen(args, env=self.env, stdout=subprocess.PIPE, stderr=open(self.home + ".log", "w"), text=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("FAILED: a node did not start: " + open(self.home + ".log").read())
        return json.loads(line)

    def run(self, *args):
        done = subprocess.run([self.program, "--home", self.home, "--vault", self.vault, "--json", *args], env=self.env, capture_output=True, text=True, timeout=PATIENCE)
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise SystemExit(f"FAILED: {args}: {done.stdout} {done.stderr}")

    def begin(self, *args):
        return subprocess.Popen([self.program, "--home", self.home, "--vault", self.vault, "--json", *args], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def plan():
    step = lambda i: {"id": f"s{i}", "tool": "vault.writeFile", "args": {"path": "log.md", "content": f"append {i}\n", "mode": "append"}, "dependsOn": [f"s{i - 1}"] if i else []}
    return {"version": "1.0", "goal": "count", "riskLevel": "writes", "steps": [step(i) for i in range(STEPS)]}


def lines(vault):
    try:
        with open(os.path.join(vault, "log.md")) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def round_of(program, postgres, how, draw):
    folder = tempfile.mkdtemp(prefix="toolyard-cluster-")
    vault = os.path.join(folder, "vault")
    os.makedirs(vault)
    database, url = postgres.database()
    a, b = Node(program, folder, "a", vault, url), Node(program, folder, "b", vault, url)
    client = None
    try:
        a.up()
        b.up()
        listed = {node["name"]: node["state"] for node in b.run("nodes", "list")["nodes"]}
        assert listed == {"a": "live", "b": "live"}, listed
        path = os.path.join(folder, "plan.json")
        with open(path, "w") as file:
            json.dump(plan(), file)
        client = a.begin("plan", "run", path, "--yes")
        # Well before the end: the plan goes on between the look at the file and the signal.
        at = draw.randrange(1, STEPS // 2)
        until("the plan never began", lambda: len(lines(vault)) >= at)
        began = time.monotonic()
        a.process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        taken = until("nobody took the run over", lambda: postgres.sql(database, "SELECT holder_node FROM toolyard.runs WHERE holder_node = 'b' OR status >= 2"))
        took = time.monotonic() - began
        zombie_from = postgres.sql(database, "SELECT max(epoch) FROM toolyard.nodes WHERE node = 'a' AND serves")
        if how == "stop":
            a.process.send_signal(signal.SIGCONT)
        status = until("the run never ended", lambda: postgres.sql(database, "SELECT status FROM toolyard.runs WHERE status >= 2"))
        if how == "stop":
            ended = until("the zombie went on", lambda: a.process.poll() is not None and "ended")
            assert ended and a.process.returncode != 0, "a node that was fenced ends with an error"
        # 2 is paused: a call whose outcome a person must decide about. The vault's writes can always be reconciled.
        assert status == "3", f"status {status}"
        found = lines(vault)
        assert found == [f"append {i}" for i in range(STEPS)], found
        report = b.run("runs", "verify")
        assert report["ok"] and report["runs"] >= 1, report
        epochs = postgres.sql(database, "SELECT count(*) FROM toolyard.nodes WHERE node = 'a'")
        assert epochs == "0", "the dead node was fenced"
        return took, at, taken or zombie_from
    finally:
        for process in [client, a.process, b.process]:
            if process and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        if sys.exc_info()[0] is None:
            shutil.rmtree(folder)
        else:
            print(f"kept: {folder}", file=sys.stderr)


def migration(program, postgres):
    """State moves to PostgreSQL and back; it verifies in every place, and the place it left refuses to serve."""
    folder = tempfile.mkdtemp(prefix="toolyard-cluster-")
    vault = os.path.join(folder, "vault")
    os.makedirs(vault)
    _, url = postgres.database()
    node = Node(program, folder, "m", vault, url)
    config = os.path.join(node.home, "config.toml")
    shared = open(config).read()
    alone = shared.split("[node]")[1].join(["[node]", ""])

    def keep_state(text):
        with open(config, "w") as file:
            file.write(text)

    try:
        keep_state(alone)
        for number in range(5):
            call = {"path": f"n{number}.md", "content": "x" * (100_000 if number == 2 else 10)}
            assert node.run("call", "vault.createFile", "--args", json.dumps(call), "--idempotency-key", str(number))["status"] == "ok"
        before = node.run("runs", "verify")
        assert before["ok"] and before["runs"] == 5, before
        there = node.run("migrate", "--to", url)
        assert there["runs"] == 5 and there["facts"] > 0 and there["ledgerEntries"] > 0, there
        refused = node.run("call", "util.slugifyTitle", "--args", '{"title": "x"}')
        assert "moved" in json.dumps(refused), refused
        keep_state(shared)
        verified = node.run("runs", "verify")
        assert verified["ok"] and verified["runs"] == 5 and verified["facts"] == before["facts"], verified
        assert node.run("call", "vault.createFile", "--args", '{"path": "later.md", "content": "y"}')["status"] == "ok"
        back = node.run("migrate", "--to", "sqlite")
        assert back["runs"] == 6 and back["runsThereAlready"] == 5, back
        refused = node.run("runs", "list")
        assert "moved" in json.dumps(refused), refused
        keep_state(alone)
        verified = node.run("runs", "verify")
        assert verified["ok"] and verified["runs"] == 6, verified
        print("moved to PostgreSQL and back: 6 runs, verified in every place", flush=True)
        shutil.rmtree(folder)
    except BaseException:
        print(f"kept: {folder}", file=sys.stderr)
        raise


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=2026)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    postgres = Postgres()
    try:
        migration(os.path.abspath(given.program), postgres)
        for number in range(given.rounds):
            for how in ["kill", "stop"]:
                took, at, _ = round_of(os.path.abspath(given.program), postgres, how, draw)
                print(f"{how} after {at} of {STEPS} steps: taken over after {took:.1f} s, 0 lost, 0 repeated", flush=True)
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
