#!/usr/bin/env python3
"""An MCP server over stdio whose tools have an effect that can be counted: each appends a line to a file.

    effects.py FILE

`append` appends in any case. `append_once` appends unless the line is there already, and says so in its definition
(`idempotentHint`), so that Toolyard may repeat it after a crash. Both are durable before they answer.
"""

import fcntl
import json
import os
import sys

ARGUMENTS = {
    "type": "object",
    "properties": {"id": {"type": "string", "description": "The line to append."}},
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


def append(path, line, once):
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        if once:
            with open(path) as known:
                if any(other.rstrip("\n") == line for other in known):
                    return "was there"
        os.write(file, (line + "\n").encode())
        os.fsync(file)
        return "appended"
    finally:
        os.close(file)


def answer(path, method, params):
    if method == "initialize":
        return {"protocolVersion": params.get("protocolVersion", "2025-06-18"), "capabilities": {"tools": {}},
                "serverInfo": {"name": "effects", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        done = append(path, params["arguments"]["id"], params["name"] == "append_once")
        return {"content": [{"type": "text", "text": done}], "isError": False}
    return {} if method == "ping" else None


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(sys.argv[1], message["method"], message.get("params") or {})
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": "unknown method"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)


main()
