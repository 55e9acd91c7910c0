#!/usr/bin/env python3
"""Two real Toolyards on one PostgreSQL share one configuration, kept as versions in the database.

- The first node's file becomes version 1. A node whose file says something else uses version 1 and says which keys it ignores.
- A change at one node is a new version, and the other node works with it without a restart.
- MCP servers that one node adds and removes come and go at the other.
- Versions are listed, shown and restored; of changes at the same time none is lost.
- Settings of a node itself stay in its file. Secrets are not readable in the database.
- An address that shows wrong credentials at both nodes is locked out at both.

    tests/cluster/settings.py PROGRAM
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from takeover import Node, Postgres, until

SECRET = "C4N4RY-of-a-server"
SHARED_TOKEN = "a-token-of-all-nodes"

SERVER = r"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {}
    if asked["method"] == "initialize":
        answer = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if asked["method"] == "tools/list":
        answer = {"tools": [{"name": "hello", "description": "Says hello.", "inputSchema": {"type": "object"}}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


class Configured(Node):
    def __init__(self, program, folder, name, vault, url, more):
        super().__init__(program, folder, name, vault, url)
        with open(os.path.join(self.home, "config.toml"), "a") as file:
            file.write(more)

    def up(self, *more):
        args = [self.program, "--home", self.home, "--vault", self.vault, "up", "--port", "0", "--json", *more]
        self.process = subprocess.Popen(args, env=self.env, stdout=subprocess.PIPE, stderr=open(self.home + ".log", "w"), text=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("FAILED: a node did not start: " + open(self.home + ".log").read())
        self.url = json.loads(line)["url"]

    def fails(self, *args):
        """The error of a command that must fail."""
        answer = self.run(*args)
        assert "error" in answer, answer
        return answer["error"]

    def version(self):
        return self.run("config", "versions")["versions"][0]["version"]

    def in_use(self):
        """What each node works with, by name."""
        return {node["name"]: node for node in self.run("nodes", "list")["nodes"]}

    def takes(self, version):
        return until(f"{self.name()} never used version {version}", lambda: self.in_use()[self.name()].get("configVersion") == version)

    def name(self):
        return os.path.basename(self.home)

    def create(self, path):
        call = json.dumps({"path": path, "content": "x"})
        done = subprocess.run([self.program, "--home", self.home, "--vault", self.vault, "--json", "call", "vault.createFile", "--args", call], env=self.env, capture_output=True, text=True, timeout=60)
        answer = json.loads(done.stdout)
        return (answer.get("error") or {}).get("code") or answer["status"], answer

    def show(self, credential, address="203.0.113.9"):
        """The status with which a request with a credential is answered, from an address behind a proxy."""
        request = urllib.request.Request(self.url + "/metrics", headers={"Authorization": f"Bearer {credential}", "X-Forwarded-For": address})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code


def file_of(node):
    with open(os.path.join(node.home, "config.toml")) as file:
        return file.read()


def settings(program, postgres, folder):
    vault = os.path.join(folder, "vault")
    os.makedirs(vault)
    server = os.path.join(folder, "server.py")
    with open(server, "w") as file:
        file.write(SERVER)
    database, url = postgres.database()
    shared = f'[gateway]\nallowedOrigins = ["https://one.example"]\ntrustedProxies = ["127.0.0.1"]\ntoken = "{SHARED_TOKEN}"\n'
    a = Configured(program, folder, "a", vault, url, shared)
    b = Configured(program, folder, "b", vault, url, '[policy]\ndeny = ["vault.createFile"]\n')
    c = None
    try:
        a.up()
        until("version 1 was never made", lambda: a.in_use()["a"].get("configVersion") == 1)
        first = a.run("config", "versions")["versions"]
        assert len(first) == 1 and first[0]["node"] == "a" and first[0]["by"] == "tester", first
        assert set(first[0]["changed"]) == {"context.enabled", "gateway.allowedOrigins", "gateway.token", "gateway.trustedProxies"}, first
        # Another file: the version is used, and the node says what it ignores.
        b.up()
        b.takes(1)
        assert b.run("config", "versions")["ignored"] == ["policy.deny"], b.run("config", "versions")
        log = open(b.home + ".log").read()
        assert "policy.deny" in log and "config push" in log, log
        doctor = json.dumps(b.run("doctor"))
        assert "policy.deny" in doctor and "version 1" in doctor, doctor
        assert b.create("one.md")[0] == "ok", b.create("one.md")
        shown = b.run("config", "show")
        assert shown["version"] == 1 and shown["config"]["gateway"]["allowedOrigins"] == ["https://one.example"], shown
        assert shown["config"]["node"]["name"] == "b" and SHARED_TOKEN not in json.dumps(shown), shown
        # A change at one node reaches the other without a restart.
        made = b.run("config", "set", "policy.deny", '["vault.createFile"]')
        assert made["version"] == 2 and made["applied"] == ["policy.deny"] and made["needsRestart"] == [], made
        began = time.monotonic()
        until("the other node never used the new policy", lambda: a.create("two.md")[0] == "POLICY_DENIED")
        took = time.monotonic() - began
        assert b.create("two.md")[0] == "POLICY_DENIED"
        assert "deny" not in file_of(a), "the file of the other node was left alone"
        # A node's own settings stay in its file, and one that is read at a start is named.
        made = a.run("config", "set", "log.level", "info")
        assert made["version"] == 2 and "level" in file_of(a) and "level" not in file_of(b), made
        made = a.run("config", "set", "engine.maxCalls", "100")
        assert made["version"] == 3 and made["needsRestart"] == ["engine.maxCalls"], made
        b.takes(3)
        assert b.in_use()["b"]["needsRestart"] == ["engine.maxCalls"], b.in_use()
        wrong = a.fails("config", "set", "policy.denied", "[]")
        assert wrong["code"] == "CONFIG_INVALID" and a.version() == 3, wrong
        servers(a, b, server, postgres, database)
        # Back to version 1.
        made = a.run("config", "rollback", "1")
        assert "policy.deny" in made["changed"], made
        until("the other node never used the old policy", lambda: b.create(f"{time.monotonic()}.md")[0] == "ok")
        newest = a.run("config", "versions")["versions"][0]
        assert newest["restores"] == 1 and newest["version"] == made["version"], newest
        assert "deny" not in a.run("config", "show", "--at", "1")["config"]["policy"]
        assert a.run("config", "show", "--at", "2")["config"]["policy"]["deny"] == ["vault.createFile"]
        assert a.fails("config", "rollback", "77")["code"] == "NOT_FOUND"
        # What a file says is made the cluster's.
        version = b.version()
        would = b.run("config", "push", "--dry-run")
        assert "policy.deny" in would["changed"] and b.version() == version, would
        pushed = b.run("config", "push")
        assert pushed["version"] == version + 1, pushed
        until("the pushed policy was never used", lambda: a.create(f"{time.monotonic()}.md")[0] == "POLICY_DENIED")
        a.run("config", "rollback", "1")
        at_once(a, b)
        guesses(a, b, postgres, database)
        # A third node needs nothing but the database: even the token comes from there.
        c = Configured(program, folder, "c", vault, url, "")
        c.up()
        c.takes(c.version())
        assert c.show(SHARED_TOKEN, "203.0.113.11") == 200
        assert c.run("config", "versions")["ignored"] == [], c.run("config", "versions")
        assert a.run("runs", "verify")["ok"]
        print(f"one configuration: a change at one node was used by the other after {took:.1f} s", flush=True)
    finally:
        for node in [a, b, c]:
            if node and node.process and node.process.poll() is None:
                node.process.kill()
                node.process.wait()


def servers(a, b, server, postgres, database):
    """An MCP server that one node adds is there at the other; its secret is not readable in the database."""
    patch = {"mcp": {"servers": {"s": {"command": "python3", "args": [server], "env": {"KEY": SECRET}, "sandbox": {"enabled": False}}}}}
    path = os.path.join(a.home, "patch.json")
    with open(path, "w") as file:
        json.dump(patch, file)
    a.run("config", "patch", path)
    there = lambda node: [s["status"] for s in node.run("mcp", "servers")["servers"] if s["name"] == "s"]
    until("the server never came to the other node", lambda: there(b) in (["healthy"], ["degraded"]))
    facts = postgres.sql(database, "SELECT encode(value, 'escape') FROM toolyard.facts WHERE space = 'config'")
    assert facts and SECRET not in facts and SHARED_TOKEN not in facts, "a secret is readable in the database"
    assert SECRET not in json.dumps(a.run("config", "show", "--at", str(a.version())))
    b.run("config", "unset", "mcp.servers.s")
    until("the server never left", lambda: there(a) == [] and there(b) == [])


def at_once(a, b):
    """Changes at two nodes at the same time: each is made, or refused and made again. None is lost."""
    def change(node, number):
        for _ in range(50):
            answer = node.run("config", "set", f"policy.groups.g{number}", '["vault.readFile"]')
            if "error" not in answer:
                return
            assert answer["error"]["code"] == "CONFLICT", answer
        raise SystemExit("FAILED: a change was never made")

    before = a.version()
    threads = [threading.Thread(target=change, args=(node, number)) for number, node in enumerate([a, b] * 3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    groups = a.run("config", "show", "--at", str(a.version()))["config"]["policy"]["groups"]
    assert sorted(groups) == [f"g{number}" for number in range(6)], groups
    assert a.version() == before + 6, (before, a.version())


def guesses(a, b, postgres, database):
    """Ten wrong credentials, five at each node."""
    for _ in range(5):
        assert [a.show("wrong"), b.show("wrong")] == [401, 401]
    # The right credential would start the count again, so it is shown after the lockout only.
    sql = "SELECT count(*) FROM toolyard.facts WHERE space = 'guesses' AND encode(value, 'escape') LIKE '%lockedUntil%'"
    until("the wrong credentials were never counted together", lambda: postgres.sql(database, sql) == "1")
    until("the address was never locked out everywhere", lambda: [a.show(SHARED_TOKEN), b.show(SHARED_TOKEN)] == [429, 429])
    assert [a.show(SHARED_TOKEN, "203.0.113.10"), b.show(SHARED_TOKEN, "203.0.113.10")] == [200, 200]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    given = parser.parse_args()
    postgres = Postgres()
    folder = tempfile.mkdtemp(prefix="toolyard-settings-")
    try:
        settings(os.path.abspath(given.program), postgres, folder)
        shutil.rmtree(folder)
    except BaseException:
        print(f"kept: {folder}", file=sys.stderr)
        raise
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
