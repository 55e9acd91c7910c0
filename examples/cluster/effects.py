#!/usr/bin/env python3
"""An MCP server over stdio whose tools have an effect that can be counted: each appends a line to a file.

    effects.py FILE

`append` appends in any case. `append_once` appends unless the line is there already, and says so in its definition
(`idempotentHint`), so that Toolyard may repeat it after a crash. Both are durable before they answer. FILE.log gets the
time, the node and the line of every effect, so that each effect can be ascribed to a node. The nodes share
the settings of this server, so the node is known by the home of the Toolyard that started it.
"""

import fcntl
import json
import os
import sys
import threading
import time

ARGUMENTS = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The line to append."},
        "ms": {"type": "integer", "minimum": 0, "maximum": 60000,
               "description": "How long the call takes, half of it before the line is appended."},
    },
    "required": ["id"],
    "additionalProperties": False,
}
TOOLS = [
    {"name": "append", "description": "Append a line to the file of effects.", "inputSchema": ARGUMENTS,
     "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}},
    {"name": "append_once", "description": "Append a line to the file of effects, unless it is there.",
     "inputSchema": ARGUMENTS,
     "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True}},
]


def node():
    """The name of the folder that the parent process, or one above it, has as its home."""
    process = os.getppid()
    while process > 1:
        with open("/proc/%d/cmdline" % process, "rb") as file:
            words = file.read().decode(errors="replace").split("\0")
        if "--home" in words:
            return os.path.basename(words[words.index("--home") + 1])
        with open("/proc/%d/stat" % process) as file:
            process = int(file.read().rsplit(")", 1)[1].split()[1])
    return "-"


class Effects:
    """The file, and which lines it is known to have: a call reads what others have appended since the last one."""

    def __init__(self, path, node):
        self.path, self.node, self.known, self.offset = path, node, set(), 0
        self.lock = threading.Lock()

    def catch_up(self, file):
        with os.fdopen(os.dup(file), "rb") as lines:
            lines.seek(self.offset)
            for line in lines:
                self.known.add(line.decode().rstrip("\n"))
                self.offset += len(line)

    def append(self, line, once):
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if once:
                self.catch_up(file)
                if line in self.known:
                    return "was there"
            os.write(file, (line + "\n").encode())
            with open(self.path + ".log", "a") as log:
                log.write("%.6f %s %s\n" % (time.time(), self.node, line))
            os.fsync(file)
            return "appended"
        finally:
            os.close(file)

    def call(self, name, arguments):
        wait = arguments.get("ms", 0) / 2000
        time.sleep(wait)
        with self.lock:
            done = self.append(arguments["id"], name == "append_once")
        time.sleep(wait)
        return {"content": [{"type": "text", "text": done}], "isError": False}


def answer(effects, method, params):
    if method == "initialize":
        return {"protocolVersion": params.get("protocolVersion", "2025-06-18"), "capabilities": {"tools": {}},
                "serverInfo": {"name": "effects", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return effects.call(params["name"], params["arguments"])
    return {} if method == "ping" else None


def main():
    effects, writing = Effects(sys.argv[1], node()), threading.Lock()

    def reply(message):
        result = answer(effects, message["method"], message.get("params") or {})
        response = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            response["error"] = {"code": -32601, "message": "unknown method"}
        else:
            response["result"] = result
        with writing:
            try:
                os.write(sys.stdout.fileno(), (json.dumps(response) + "\n").encode())
            except OSError:
                # The caller has died. What it asked for is done all the same, as by a server on another machine.
                pass

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            # A call that takes its time does not hold up the others, and has its effect even if its caller has died meanwhile.
            threading.Thread(target=reply, args=(message,)).start()


main()
