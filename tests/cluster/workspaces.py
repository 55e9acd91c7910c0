#!/usr/bin/env python3
"""Two real Toolyards on one PostgreSQL keep the state of two people apart, whichever node is asked.

- A token that one node makes works at the other node, in its own workspace.
- Memories, runs, sessions of MCP and idempotency keys of one workspace do not exist in the other, at either node.
- A rotated token ends at both nodes.

    tests/cluster/workspaces.py PROGRAM
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request

from takeover import Node, Postgres, TOKEN, until


class Client:
    """An MCP client over HTTP."""

    def __init__(self, url, token):
        self.url, self.token, self.session, self.number = url + "/mcp", token, None, 0
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}})

    def ask(self, method, params):
        self.number += 1
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        body = json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url, body, headers), timeout=60) as answer:
            self.session = answer.headers.get("Mcp-Session-Id") or self.session
            text = answer.read().decode()
        lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")] or [text]
        return json.loads([line for line in lines if line.strip()][-1])

    def call(self, tool, arguments):
        return json.dumps(self.ask("tools/call", {"name": tool, "arguments": arguments})["result"])


def status(work):
    try:
        work()
    except urllib.error.HTTPError as error:
        return error.code
    return 200


def check(program, postgres, folder):
    vault = os.path.join(folder, "vault")
    os.makedirs(vault)
    _, url = postgres.database()
    nodes = [Node(program, folder, name, vault, url) for name in ("a", "b")]
    for node in nodes:
        config = os.path.join(node.home, "config.toml")
        with open(config) as file:
            text = file.read().replace("[context]\nenabled = false\n", "")
        with open(config, "w") as file:
            file.write(text + '[policy]\nallow = ["memory_store", "memory_recall"]\n')
    try:
        (a, b), urls = nodes, [node.up()["url"] for node in nodes]
        bob, eve = (a.run("workspaces", "add", name)["token"] for name in ("bob", "eve"))
        # A token that one node made opens the other one.
        until("the other node never knew the token", lambda: status(lambda: Client(urls[1], bob)) == 200)
        Client(urls[0], bob).call("memory_store", {"text": "Bob keeps the blue bicycle in the shed."})
        question = {"query": "Where is the blue bicycle?"}
        until("the other node never found the memory", lambda: "shed" in Client(urls[1], bob).call("memory_recall", question))
        for token in (eve, TOKEN):
            for at in urls:
                assert "shed" not in Client(at, token).call("memory_recall", question), "another workspace found the memory"
        # Runs.
        own = a.run("--workspace", "bob", "runs", "list")["runs"]
        assert own and {run["runId"] for run in own} == {run["runId"] for run in b.run("--workspace", "bob", "runs", "list")["runs"]}, own
        for node in nodes:
            for more in ((), ("--workspace", "eve")):
                listed = {run["runId"] for run in node.run(*more, "runs", "list")["runs"]}
                assert not listed & {run["runId"] for run in own}, "another workspace lists a run"
                shown = node.run(*more, "runs", "show", own[0]["runId"])
                assert shown["error"]["code"] == "NOT_FOUND", shown
        # A session of MCP, at its own node and through the other one.
        held = Client(urls[0], bob)
        for at in urls:
            stranger = Client(at, eve)
            stranger.session = held.session
            assert status(lambda: stranger.ask("tools/list", {})) == 404, "a session of another workspace was used"
        # Idempotency keys.
        keyed = lambda node, name, text: node.run("--workspace", name, "call", "memory_store", "--args", json.dumps({"text": text}), "--idempotency-key", "one")
        first, again, other = keyed(a, "bob", "the first"), keyed(b, "bob", "the first"), keyed(b, "eve", "the second")
        assert first["callId"] == again["callId"] and first["callId"] != other["callId"], (first, again, other)
        # A rotated token ends everywhere.
        new = b.run("workspaces", "rotate", "bob")["token"]
        until("the old token still works", lambda: [status(lambda: Client(at, bob)) for at in urls] == [401, 401])
        assert [status(lambda: Client(at, new)) for at in urls] == [200, 200]
        assert a.run("runs", "verify")["ok"] is True
        print("ok  two workspaces on two nodes are separate: memories, runs, sessions, keys, tokens")
    finally:
        for node in nodes:
            if node.process:
                node.process.terminate()
                node.process.wait(60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    given = parser.parse_args()
    postgres = Postgres()
    folder = tempfile.mkdtemp(prefix="toolyard-workspaces-")
    try:
        check(os.path.abspath(given.program), postgres, folder)
        shutil.rmtree(folder)
    except BaseException:
        print(f"kept: {folder}", file=sys.stderr)
        raise
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
