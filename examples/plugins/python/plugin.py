"""A Toolyard plugin in one file: reads a JSON-RPC message a line, answers with one."""

import json
import os
import pathlib
import sys

config = {}
notes = pathlib.Path(os.environ.get("TOOLYARD_PLUGIN_DATA", ".")) / "notes.txt"


class Refused(Exception):
    """Something is wrong with the arguments."""


def count_words(args):
    text = args["text"]
    longest = config.get("longest", 100_000)
    if len(text) > longest:
        raise Refused(f"the text is longer than {longest} characters")
    words = text.split()
    return {
        "content": [{"type": "text", "text": f"{len(words)} words"}],
        "details": {"words": len(words), "distinct": len(set(word.lower() for word in words))},
    }


def remember(args):
    # The one folder the plugin may write to.
    with notes.open("a", encoding="utf-8") as file:
        file.write(args["note"] + "\n")
    return f"remembered; {len(notes.read_text(encoding='utf-8').splitlines())} notes so far"


def string(description):
    return {"type": "string", "description": description}


TOOLS = {
    "py_count_words": (count_words, "Counts the words of a text.", {"text": string("The text.")}),
    "py_remember": (remember, "Keeps a note in the plugin's own folder.", {"note": string("The note.")}),
}


def health():
    writable = os.access(notes.parent, os.W_OK)
    check = {"name": "data folder", "status": "healthy" if writable else "unavailable", "message": str(notes.parent)}
    return {"status": check["status"], "checks": [check]}


def start(params):
    config.update(params["config"])
    tools = [
        {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False},
        }
        for name, (_, description, fields) in TOOLS.items()
    ]
    return {"tools": tools, "health": health()}


def answer(message):
    method, params = message["method"], message.get("params") or {}
    if method == "start":
        return start(params)
    if method == "call":
        return TOOLS[params["tool"]][0](params["args"])
    if method == "health":
        return health()
    raise LookupError(method)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        reply["result"] = answer(message)
    except Refused as refused:
        reply["error"] = {"code": -32602, "message": str(refused)}
    except LookupError as unknown:
        reply["error"] = {"code": -32601, "message": f"there is no {unknown}"}
    print(json.dumps(reply), flush=True)
