#!/usr/bin/env python3
"""What operators do with a cluster, with real programs:

- `migrate` is killed with SIGKILL at random moments, in both directions, and run again until it ends: everything is there.
- TLS to the database: `verify-full` with a certificate authority of the test's own; another authority, another name and a
  server without TLS are refused with a message that says so.
- Nodes are drained and replaced one after another while clients call: no call fails.
- Two nodes in network namespaces of their own reach each other at `node.address` (root only; skipped without).

    tests/cluster/operations.py PROGRAM [--seed N] [--only NAME]
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from takeover import TOKEN, Node, Postgres, until

MEMORIES = 30


def home_of(program, folder, name, vault, text):
    """A node whose file has this text."""
    node = Node(program, folder, name, vault, "postgres://unused")
    with open(os.path.join(node.home, "config.toml"), "w") as file:
        file.write(text)
    return node


def configure(node, text):
    with open(os.path.join(node.home, "config.toml"), "w") as file:
        file.write(text)


def tree(folder):
    """The files below a folder, without descriptions that every node builds for itself."""
    files = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            inside = os.path.relpath(path, folder)
            if name in (".abstract.md", ".overview.md", ".lock") and "sessions" not in inside:
                continue
            if "_staging" in inside or "_trash" in inside:
                continue
            with open(path, "rb") as file:
                files[inside] = file.read()
    return files


def migrate_with_kills(node, to, draw):
    """Runs `migrate` and kills it, each time a little later, until it ends by itself."""
    kills, patience = 0, 0.05
    while True:
        args = [node.program, "--home", node.home, "--vault", node.vault, "--json", "migrate", "--to", to]
        process = subprocess.Popen(args, env=node.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = process.communicate(timeout=draw.uniform(patience / 2, patience))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
            kills += 1
            patience *= 1.35
            continue
        answer = json.loads(out)
        assert process.returncode == 0 and "error" not in answer, (answer, err)
        # Again, it says that nothing is left to do, and changes nothing.
        again = subprocess.run(args, env=node.env, capture_output=True, text=True)
        said = json.loads(again.stdout)
        assert again.returncode == 0 and said["doneBefore"] and said["to"] == answer["to"], (said, again.stderr)
        # The last kill may have come after the end of the move, and before its report.
        assert kills or not answer["doneBefore"], answer
        return kills, None if answer["doneBefore"] else answer


def migration(program, postgres, draw):
    folder = tempfile.mkdtemp(prefix="toolyard-operations-")
    vault = os.path.join(folder, "vault")
    os.makedirs(vault)
    _, url = postgres.database()
    own = '[node]\nname = "m"\n[knowledge]\nenabled = false\n'
    alone, shared = own + '[policy]\ndeny = ["vault.deleteFile"]\n', own + f'[store]\nurl = "{url}"\n'
    node = home_of(program, folder, "m", vault, alone)
    for number in range(40):
        call = {"path": f"n{number}.md", "content": "x" * (100_000 if number % 10 == 2 else 10) + str(number)}
        assert node.run("call", "vault.createFile", "--args", json.dumps(call), "--idempotency-key", str(number))["status"] == "ok"
    for number in range(MEMORIES):
        stored = node.run("call", "memory_store", "--args", json.dumps({"text": f"The number {number} is written on door {number * 7}."}))
        assert stored["status"] == "ok", stored
    before, files = node.run("runs", "verify"), tree(os.path.join(node.home, "context"))
    runs = 40 + MEMORIES
    assert before["ok"] and before["runs"] == runs and len(files) > MEMORIES / 2, (before, len(files))
    kills, there = migrate_with_kills(node, url, draw)
    assert there is None or (there["runs"] == runs and there["contextFiles"] > 0), there
    configure(node, shared)
    verified = node.run("runs", "verify")
    assert verified["ok"] and verified["runs"] == runs and verified["facts"] > before["facts"], (before, verified)
    recalled = node.run("call", "memory_recall", "--args", '{"query": "What is written on the door of number 7?"}')
    assert recalled["status"] == "ok" and "49" in json.dumps(recalled), recalled
    checked = node.run("store", "check")
    assert checked["ok"] and checked["runs"] >= runs and checked["blobs"] > 0, checked
    stats = node.run("store", "stats")
    assert stats["runs"] == checked["runs"] and stats["databaseBytes"] > 0 and stats["facts"] > 0, stats
    refused = node.run("backup", "--out", os.path.join(folder, "backup"))
    assert "PostgreSQL" in json.dumps(refused), refused
    # In the cluster one memory more is stored, and the policy is changed.
    more = node.run("call", "memory_store", "--args", '{"text": "The lighthouse is painted green."}')
    assert more["status"] == "ok", more
    assert node.run("config", "set", "policy.deny", '["vault.createFile"]')["version"] == 1
    back_kills, back = migrate_with_kills(node, "sqlite", draw)
    with open(os.path.join(node.home, "config.toml")) as file:
        taken = file.read()
    assert "vault.createFile" in taken and '[node]\nname = "m"' in taken, taken
    configure(node, taken.replace(f'[store]\nurl = "{url}"\n', ""))
    assert node.run("migrate", "--to", "sqlite")["doneBefore"], "the state is on this disk"
    verified = node.run("runs", "verify")
    assert verified["ok"] and verified["runs"] >= runs and (back is None or verified["runs"] == back["runs"]), (back, verified)
    after = tree(os.path.join(node.home, "context"))
    lost = [name for name, content in files.items() if name not in after]
    assert not lost, lost
    recalled = node.run("call", "memory_recall", "--args", '{"query": "What colour is the lighthouse?"}')
    assert "green" in json.dumps(recalled), recalled
    denied = node.run("call", "vault.createFile", "--args", '{"path": "z.md", "content": "z"}')
    assert "POLICY_DENIED" in json.dumps(denied), denied
    shutil.rmtree(folder)
    print(f"migrate killed {kills} times on the way there and {back_kills} times on the way back: {verified['runs']} runs verified, {len(after)} files", flush=True)


def openssl(*args, cwd):
    subprocess.run(["openssl", *args], cwd=cwd, check=True, capture_output=True)


def certificates(folder):
    """Two authorities, and a certificate of the first one for localhost."""
    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN=test {name}", "-keyout", f"{name}.key", "-out", f"{name}.pem", cwd=folder)
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr", cwd=folder)
    with open(os.path.join(folder, "names"), "w") as file:
        file.write("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "server.pem", cwd=folder)


def tls(program, folder):
    certificates(folder)
    port = free_port()
    postgres = Postgres()
    try:
        for name in ("server.pem", "server.key"):
            path = os.path.join(postgres.dir, name)
            shutil.copy(os.path.join(folder, name), path)
            os.chmod(path, 0o600)
            if os.getuid() == 0:
                shutil.chown(path, "postgres", "postgres")
        database, _ = postgres.database()
        for setting in [f"ssl_cert_file = '{postgres.dir}/server.pem'", f"ssl_key_file = '{postgres.dir}/server.key'", "ssl = on", "listen_addresses = 'localhost'", f"port = {port}"]:
            name, value = setting.split(" = ")
            with open(os.path.join(postgres.dir, "data", "postgresql.auto.conf"), "a") as file:
                file.write(f"{name} = {value}\n")
        restart(postgres, port)
        vault = os.path.join(folder, "vault")
        os.makedirs(vault)
        node = home_of(program, folder, "t", vault, "")

        def listed(host, options):
            configure(node, f'[node]\nname = "t"\n[store]\nurl = "postgres://toolyard@{host}:{port}/{database}?{options}"\n')
            return node.run("nodes", "list")

        ca, other = (os.path.join(folder, name).replace("/", "%2F") for name in ("ca.pem", "other.pem"))
        accepted = listed("localhost", f"sslmode=verify-full&sslrootcert={ca}")
        assert accepted == {"nodes": []}, accepted
        encrypted = postgres_sql(postgres, port, database, "SELECT count(*) FROM toolyard.meta")
        assert int(encrypted) > 0
        for host, options, words in [
            ("localhost", f"sslmode=verify-full&sslrootcert={other}", ["certificate", "sslrootcert"]),
            ("127.0.0.1", f"sslmode=verify-full&sslrootcert={ca}", ["certificate", "127.0.0.1"]),
            ("localhost", "sslmode=verify-full", ["certificate", "sslrootcert"]),
            ("localhost", "sslmode=verify-full&sslrootcert=%2Fnot%2Fthere.pem", ["sslrootcert", "cannot be read"]),
        ]:
            answer = listed(host, options)
            message = answer["error"]["message"]
            assert answer["error"]["code"] == "STORE_UNAVAILABLE" and all(word in message for word in words), (options, answer)
            print(f"refused: {message}", flush=True)
        # A server without TLS is not used with a mode that needs it.
        with open(os.path.join(postgres.dir, "data", "postgresql.auto.conf"), "a") as file:
            file.write("ssl = off\n")
        restart(postgres, port)
        message = listed("localhost", f"sslmode=verify-full&sslrootcert={ca}")["error"]["message"]
        assert "TLS" in message or "ssl" in message.lower(), message
        print(f"refused: {message}", flush=True)
        print("TLS with verify-full: the test's own authority is accepted, everything else refused", flush=True)
    finally:
        postgres.stop()


def postgres_sql(postgres, port, database, sql):
    psql = [os.path.join(postgres.programs, "psql"), "-h", postgres.dir, "-p", str(port), "-U", "toolyard", "-d", database, "-qAtc", sql]
    return subprocess.run(psql, check=True, capture_output=True, text=True).stdout.strip()


def restart(postgres, port):
    from takeover import demote
    postgres.process.send_signal(signal.SIGINT)
    postgres.process.wait()
    server = [os.path.join(postgres.programs, "postgres"), "-D", os.path.join(postgres.dir, "data"), "-k", postgres.dir]
    postgres.process = subprocess.Popen(server, preexec_fn=demote, cwd=postgres.dir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until("PostgreSQL never answered", lambda: subprocess.run([os.path.join(postgres.programs, "pg_isready"), "-q", "-h", postgres.dir, "-p", str(port)]).returncode == 0)


def free_port():
    import socket
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Balancer:
    """Sends each call to a node that says it is ready, as a balancer that looks at /ready does."""

    def __init__(self):
        self.nodes, self.lock, self.next = {}, threading.Lock(), 0
        self.stop = threading.Event()
        self.looking = threading.Thread(target=self.look, daemon=True)
        self.looking.start()

    def look(self):
        while not self.stop.wait(0.2):
            with self.lock:
                nodes = dict(self.nodes)
            for url in nodes:
                ready = status(url + "/ready") == 200
                with self.lock:
                    if url in self.nodes:
                        self.nodes[url] = ready

    def add(self, url):
        with self.lock:
            self.nodes[url] = False

    def remove(self, url):
        with self.lock:
            self.nodes.pop(url, None)

    def choose(self):
        while True:
            with self.lock:
                ready = [url for url, is_ready in self.nodes.items() if is_ready]
                self.next += 1
                if ready:
                    return ready[self.next % len(ready)]
            time.sleep(0.02)


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def rolling(program, postgres, folder, rounds):
    """Drains and replaces every node while clients call through a balancer."""
    vault = os.path.join(folder, "vault")
    os.makedirs(vault)
    _, url = postgres.database()
    text = lambda name: f'[node]\nname = "{name}"\n[store]\nurl = "{url}"\n[knowledge]\nenabled = false\n[context]\nenabled = false\n'
    nodes = [home_of(program, folder, name, vault, text(name)) for name in ("r1", "r2")]
    balancer, failed, done, over = Balancer(), [], [0], threading.Event()

    def calls():
        while not over.is_set():
            at = balancer.choose()
            body = json.dumps({"tool": "util.slugifyTitle", "args": {"title": "A b"}}).encode()
            request = urllib.request.Request(at + "/tools/invoke", data=body, headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    assert json.loads(answer.read())["ok"]
                done[0] += 1
            except Exception as error:
                failed.append(f"{at}: {error}")

    try:
        for node in nodes:
            node.at = node.up()["url"]
            balancer.add(node.at)
        threads = [threading.Thread(target=calls) for _ in range(3)]
        [thread.start() for thread in threads]
        until("no call was made", lambda: done[0] > 20)
        for _ in range(rounds):
            for node in nodes:
                node.process.send_signal(signal.SIGTERM)
                until("a draining node never ended", lambda: node.process.poll() is not None)
                assert node.process.returncode == 0, node.process.returncode
                balancer.remove(node.at)
                node.at = node.up()["url"]
                balancer.add(node.at)
                made = done[0]
                until("no calls after a replacement", lambda: done[0] > made + 20)
        over.set()
        [thread.join() for thread in threads]
        assert not failed, failed[:5]
        listed = {node["name"]: node["state"] for node in nodes[0].run("nodes", "list")["nodes"]}
        assert listed == {"r1": "live", "r2": "live"}, listed
        print(f"{rounds * len(nodes)} nodes drained and replaced under {done[0]} calls: 0 failed", flush=True)
    finally:
        over.set()
        balancer.stop.set()
        for node in nodes:
            if node.process and node.process.poll() is None:
                node.process.kill()
                node.process.wait()


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True)


def namespaces(program, folder):
    """Two nodes in namespaces: each listens on 0.0.0.0 and names an address that the other one reaches."""
    if os.getuid() != 0 or subprocess.run(["ip", "netns", "add", "toolyard-probe"], capture_output=True).returncode != 0:
        print("network namespaces cannot be made here: skipped", flush=True)
        return
    ip("netns", "delete", "toolyard-probe")
    tag, names = os.getpid() % 10000, []
    bridge, subnet = f"ty{tag}", f"10.{200 + tag % 50}.{tag % 250}"
    vault = os.path.join(folder, "vault")
    os.makedirs(vault)
    postgres = Postgres()
    nodes = []
    try:
        database, _ = postgres.database()
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{subnet}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for number in (2, 3):
            space, outside, inside = f"ty{tag}n{number}", f"ty{tag}o{number}", f"ty{tag}i{number}"
            ip("netns", "add", space)
            names.append(space)
            ip("link", "add", outside, "type", "veth", "peer", "name", inside)
            ip("link", "set", inside, "netns", space)
            ip("link", "set", outside, "master", bridge)
            ip("link", "set", outside, "up")
            for args in (["addr", "add", f"{subnet}.{number}/24", "dev", inside], ["link", "set", inside, "up"], ["link", "set", "lo", "up"]):
                ip("-n", space, *args)
        with open(os.path.join(postgres.dir, "data", "pg_hba.conf"), "a") as file:
            file.write(f"host all all {subnet}.0/24 trust\n")
        port = free_port()
        with open(os.path.join(postgres.dir, "data", "postgresql.auto.conf"), "a") as file:
            file.write(f"listen_addresses = '{subnet}.1'\nport = {port}\n")
        restart(postgres, port)
        for number, space in zip((2, 3), names):
            url = f"postgres://toolyard@{subnet}.1:{port}/{database}"
            text = f'[node]\nname = "n{number}"\naddress = "http://{subnet}.{number}:7700"\n[store]\nurl = "{url}"\n[gateway]\nhost = "0.0.0.0"\nport = 7700\ntoken = "{TOKEN}"\n[knowledge]\nenabled = false\n'
            node = home_of(program, folder, f"n{number}", vault, text)
            args = ["ip", "netns", "exec", space, node.program, "--home", node.home, "--vault", node.vault, "up", "--json"]
            node.process = subprocess.Popen(args, env=node.env, stdout=subprocess.PIPE, stderr=open(node.home + ".log", "w"), text=True)
            assert node.process.stdout.readline(), open(node.home + ".log").read()
            node.space = space
            nodes.append(node)
        listed = within(nodes[0], "nodes", "list")["nodes"]
        assert {node["name"]: node["address"] for node in listed} == {"n2": f"http://{subnet}.2:7700", "n3": f"http://{subnet}.3:7700"}, listed
        # An MCP session of one node, used at the other: the request is passed on to the address that the node names.
        initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}
        session, _ = mcp(nodes[0], f"http://{subnet}.2:7700/mcp", initialize, None)
        assert session, "no session"
        _, listed = mcp(nodes[1], f"http://{subnet}.3:7700/mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, session)
        assert "tool" in listed, listed
        # The owner is cut off: the other node says so instead of waiting.
        ip("-n", names[0], "link", "set", f"ty{tag}i2", "down")
        began = time.monotonic()
        _, gone = mcp(nodes[1], f"http://{subnet}.3:7700/mcp", {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}, session)
        assert "result" not in gone, gone
        print(f"node.address across namespaces: an MCP session of one node was used at the other; cut off, it failed after {time.monotonic() - began:.1f} s", flush=True)
    finally:
        for node in nodes:
            if node.process.poll() is None:
                node.process.kill()
                node.process.wait()
        for space in names:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True)
        postgres.stop()


def within(node, *args):
    run = ["ip", "netns", "exec", node.space, node.program, "--home", node.home, "--vault", node.vault, "--json", *args]
    return json.loads(subprocess.run(run, env=node.env, capture_output=True, text=True, timeout=60).stdout)


def mcp(node, url, message, session):
    """Sends an MCP message from within the node's namespace. The session of the answer, and its text."""
    headers = ["-H", f"Authorization: Bearer {TOKEN}", "-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream"]
    if session:
        headers += ["-H", f"Mcp-Session-Id: {session}"]
    done = subprocess.run(["ip", "netns", "exec", node.space, "curl", "-s", "-i", "--max-time", "60", *headers, "-d", json.dumps(message), url], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    found = [line.split(": ", 1)[1] for line in lines if line.lower().startswith("mcp-session-id: ")]
    return (found[0] if found else None), done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--only", choices=["migration", "tls", "rolling", "namespaces"])
    given = parser.parse_args()
    program, draw = os.path.abspath(given.program), random.Random(given.seed)
    chosen = lambda name: given.only in (None, name)
    postgres = Postgres()
    folders = []

    def folder():
        folders.append(tempfile.mkdtemp(prefix="toolyard-operations-"))
        return folders[-1]

    try:
        if chosen("migration"):
            migration(program, postgres, draw)
        if chosen("tls"):
            tls(program, folder())
        if chosen("rolling"):
            rolling(program, postgres, folder(), 2)
        if chosen("namespaces"):
            namespaces(program, folder())
        [shutil.rmtree(made) for made in folders]
    except BaseException:
        print(f"kept: {folders}", file=sys.stderr)
        raise
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
