#!/usr/bin/env python3
"""What a node answers when something around it is wrong: each with a code, a message that names what is wrong, and what to do.

- The database: unreachable, a wrong or missing password, TLS required, no such database, role or right, read-only, tables of
  a newer version, asynchronous replication, an address that cannot be read.
- The bucket: missing, unreachable, without a database.
- The configuration: a node's name, a name that another node has, an address, keys of another cluster.
- What is refused in a cluster, and nodes that nobody knows.

Every situation is tried with `nodes list`, `doctor` and `up`. Nothing is lost: afterwards the record verifies.

    tests/cluster/failures.py PROGRAM
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request

from operations import free_port, restart
from takeover import TOKEN, Node, Postgres, until


class Situation:
    """A node that is configured wrongly, or whose surroundings are wrong."""

    def __init__(self, program, folder, name):
        self.node = Node(program, folder, name, os.path.join(folder, "vault"), "postgres://unused")

    def write(self, url, more=""):
        with open(os.path.join(self.node.home, "config.toml"), "w") as file:
            file.write(f'[node]\nname = "w"\n[store]\nurl = "{url}"\n{more}\n[knowledge]\nenabled = false\n[context]\nenabled = false\n')

    def up(self):
        """What `up` answers where it does not start."""
        args = [self.node.program, "--home", self.node.home, "--vault", self.node.vault, "up", "--port", "0", "--token", TOKEN, "--json"]
        done = subprocess.run(args, env=self.node.env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)["error"]


def says(situation, what, code, words, doctor=True):
    """The same reason from every command, with what to do about it."""
    answers = {"nodes list": situation.node.run("nodes", "list")["error"], "up": situation.up()}
    for command, error in answers.items():
        assert error["code"] == code and error.get("suggestion"), (what, command, error)
        assert all(word in error["message"] + " " + error["suggestion"] for word in words), (what, command, error)
    if doctor:
        checked = json.dumps(situation.node.run("doctor"))
        assert all(word in checked for word in words), (what, checked)
    print(f"{what}: {answers['up']['code']}: {answers['up']['message']}\n    {answers['up']['suggestion']}", flush=True)


def admit(postgres, lines):
    """Replaces pg_hba.conf."""
    path = os.path.join(postgres.dir, "data", "pg_hba.conf")
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    postgres.sql("postgres", "SELECT pg_reload_conf()")


def database(program, postgres, folder):
    wrong, port = Situation(program, folder, "database"), free_port()
    postgres.sql("postgres", f"ALTER SYSTEM SET listen_addresses = '127.0.0.1'")
    postgres.sql("postgres", f"ALTER SYSTEM SET port = {port}")
    name, _ = postgres.database()
    # The class starts the server without addresses, which has precedence over its file.
    restart(postgres, port)
    postgres.sql = lambda database, sql: subprocess.run([os.path.join(postgres.programs, "psql"), "-h", postgres.dir, "-p", str(port), "-U", "toolyard", "-d", database, "-qAtc", sql], check=True, capture_output=True, text=True).stdout.strip()
    at = lambda user, database=name, options="": f"postgres://{user}@127.0.0.1:{port}/{database}{options}"

    wrong.write(f"postgres://toolyard@127.0.0.1:{free_port()}/x")
    says(wrong, "nothing listens", "STORE_UNAVAILABLE", ["refused", "no server listens there"])
    wrong.write("mysql://db/x")
    says(wrong, "another database's address", "STORE_UNAVAILABLE", ["must begin with postgres://"])
    wrong.write(at("toolyard", "nosuch"))
    says(wrong, "no such database", "STORE_UNAVAILABLE", ["nosuch", "create the database first"])
    wrong.write(at("nobody"))
    says(wrong, "no such user", "STORE_UNAVAILABLE", ["nobody", "create this user"])

    postgres.sql("postgres", "CREATE ROLE locked LOGIN PASSWORD 'right'")
    postgres.sql("postgres", "CREATE ROLE weak LOGIN")
    admit(postgres, ["local all all trust", "host all locked 127.0.0.1/32 scram-sha-256", "hostssl all tls 127.0.0.1/32 trust", "host all toolyard,weak 127.0.0.1/32 trust", "host replication toolyard 127.0.0.1/32 trust", "local replication all trust"])
    wrong.write(at("locked:s3cret-that-is-wrong"))
    says(wrong, "a wrong password", "STORE_UNAVAILABLE", ["password", "correct the user and the password"])
    assert "s3cret" not in json.dumps(wrong.up()), "the password is shown"
    wrong.write(at("locked"))
    says(wrong, "no password", "STORE_UNAVAILABLE", ["password", "TOOLYARD_STORE_URL"])
    wrong.write(at("tls"))
    says(wrong, "TLS required", "STORE_UNAVAILABLE", ["no encryption", "sslmode=verify-full"])
    wrong.write(at("weak"))
    says(wrong, "a user without rights", "STORE_UNAVAILABLE", ["CREATE on the database"], doctor=False)

    wrong.write(at("toolyard"))
    assert wrong.node.run("nodes", "list") == {"nodes": []}
    postgres.sql("postgres", f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    says(wrong, "read-only", "STORE_UNAVAILABLE", ["takes no writes", "primary"])
    postgres.sql("postgres", f"ALTER DATABASE {name} RESET default_transaction_read_only")
    postgres.sql("postgres", f"ALTER DATABASE {name} SET synchronous_commit = off")
    says(wrong, "not durable", "STORE_UNAVAILABLE", ["synchronous_commit"])
    postgres.sql("postgres", f"ALTER DATABASE {name} RESET synchronous_commit")

    for key in ("version", "oldest"):
        postgres.sql(name, f"UPDATE toolyard.meta SET value = '900' WHERE key = '{key}'")
    says(wrong, "tables of a newer version", "STORE_UNAVAILABLE", ["newer Toolyard", "version 900", "install"], doctor=False)
    postgres.sql(name, "DELETE FROM toolyard.meta WHERE key IN ('version', 'oldest')")
    postgres.sql(name, "DROP SCHEMA toolyard CASCADE")

    receiver = subprocess.Popen([os.path.join(postgres.programs, "pg_receivewal"), "-h", postgres.dir, "-p", str(port), "-U", "toolyard", "-D", folder, "--no-sync"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until("nothing replicates", lambda: postgres.sql("postgres", "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "1")
        says(wrong, "asynchronous replication", "STORE_UNAVAILABLE", ["asynchronously", "store.allowAsyncReplication"])
        wrong.write(at("toolyard"), "allowAsyncReplication = true")
        assert "error" not in wrong.node.run("nodes", "list")
        assert "warning" in json.dumps(wrong.node.run("doctor")), "the doctor says it all the same"
    finally:
        receiver.terminate()
        receiver.wait()
    return at("toolyard")


def surroundings(program, postgres, folder, url):
    wrong = Situation(program, folder, "surroundings")
    wrong.node.env |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_ALLOW_HTTP": "true"}
    wrong.write(url, 'bucket = "s3://nosuch/blobs"')
    says(wrong, "a bucket that cannot be reached", "STORE_UNAVAILABLE", ["nosuch", "store.bucket", "AWS_ENDPOINT_URL"], doctor=False)
    wrong.write(url, 'bucket = "gs://nosuch/blobs"')
    says(wrong, "an address that is no bucket's", "CONFIG_INVALID", ["s3://"], doctor=False)
    with open(os.path.join(wrong.node.home, "config.toml"), "w") as file:
        file.write('[store]\nbucket = "s3://b/x"\n')
    error = wrong.up()
    assert error["code"] == "CONFIG_INVALID" and "store.url" in error["message"] and error["suggestion"], error
    secret = os.path.join(folder, "secret")
    wrong.write(url, f'secretFile = "{secret}"')
    error = wrong.up()
    assert "is not there" in error["message"] and "another node" in error["suggestion"], error
    print(f"no secret file: {error['code']}: {error['message']}", flush=True)


def serving(program, folder, url):
    """Two nodes: names, what a cluster refuses, and a vault that only one of them has."""
    def home(name, more=""):
        at = Situation(program, folder, name)
        at.write(url, more)
        path = os.path.join(at.node.home, "config.toml")
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace('name = "w"', f'name = "{name}"'))
        return at

    def run(node, *args):
        """Without a vault on the command line."""
        done = subprocess.run([program, "--home", node.home, "--json", *args], env=node.env, capture_output=True, text=True, timeout=120)
        return json.loads(done.stdout)

    def up(node, *more):
        args = [program, "--home", node.home, *more, "up", "--port", "0", "--token", TOKEN, "--json"]
        node.process = subprocess.Popen(args, env=node.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        node.at = json.loads(node.process.stdout.readline())["url"]

    has, other, same = home("has"), home("other"), home("same")
    a, b = has.node, other.node
    try:
        up(a, "--vault", a.vault)
        up(b)
        until("the nodes never told what they have", lambda: {node["name"]: node.get("vault") for node in run(b, "nodes", "list")["nodes"]} == {"has": a.vault, "other": None})
        for node, name in ((a, "has"), (b, "other")):
            request = urllib.request.Request(node.at + "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert f'toolyard_node_info{{node="{name}",epoch="' in answer.read().decode(), name
        create = ("call", "vault.createFile", "--args", '{"path": "n.md", "content": "x"}')
        assert a.run(*create)["status"] == "ok"
        error = run(b, *create)["error"]
        assert error["code"] == "UNAVAILABLE" and "node has (http://" in error["message"] and "vault.path" in error["suggestion"], error
        assert not os.path.exists(os.path.join(b.home, "vault")), "a second vault was made"
        assert run(b, "call", "util.slugifyTitle", "--args", '{"title": "A b"}')["status"] == "ok", "this tool needs no vault"
        for command in ("drain", "fence"):
            error = b.run("nodes", command, "nosuch")["error"]
            assert error["code"] == "NOT_FOUND" and error["suggestion"], error
        for args in (("backup", "--out", os.path.join(folder, "backup")), ("keys", "rotate"), ("migrate", "--to", "sqlite")):
            error = run(b, *args)["error"]
            assert error["suggestion"] and error["code"] not in ("INTERNAL_ERROR", "NOT_FOUND"), (args, error)
            print(f"{args[0]}: {error['code']}: {error['message']}\n    {error['suggestion']}", flush=True)
        with open(os.path.join(same.node.home, "config.toml")) as file:
            text = file.read()
        with open(os.path.join(same.node.home, "config.toml"), "w") as file:
            file.write(text.replace('name = "same"', 'name = "has"'))
        error = same.up()
        assert "has" in error["message"] and error["suggestion"], error
        print(f"a name that another node has: {error['code']}: {error['message']}\n    {error['suggestion']}", flush=True)
        a.process.kill()
        a.process.wait()
        until("the dead node is still called live", lambda: "not serving" in json.dumps(run(b, *create)))
        error = run(b, *create)["error"]
        assert error["code"] == "UNAVAILABLE" and error["retryable"] and "node has" in error["message"], error
        up(a, "--vault", a.vault)
        until("the vault is not back", lambda: "call the tool at node has" in json.dumps(run(b, *create)))
        assert a.run("call", "vault.readFile", "--args", '{"path": "n.md"}')["status"] == "ok"
        assert b.run("runs", "verify")["ok"]
        print("a vault that one node has: refused elsewhere with that node's name, dead or alive", flush=True)
    finally:
        for node in (a, b):
            if node.process and node.process.poll() is None:
                node.process.kill()
                node.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    given = parser.parse_args()
    program, folder = os.path.abspath(given.program), tempfile.mkdtemp(prefix="toolyard-failures-")
    os.makedirs(os.path.join(folder, "vault"))
    postgres = Postgres()
    try:
        url = database(program, postgres, folder)
        surroundings(program, postgres, folder, url)
        serving(program, folder, url)
        shutil.rmtree(folder)
    except BaseException:
        print(f"kept: {folder}", file=sys.stderr)
        raise
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
