#!/usr/bin/env python3
"""Writes tests/recordings/ from recordings of real systems.

usage: make.py FOLDER [--check]

FOLDER holds the recordings: openclaw/ (one WebSocket connection a file, and http.jsonl), openviking-http/ (one exchange a
file), openviking/ (one call of a plugin's tool or command a file) and hooks/ (one event of a coding agent's hook a file, in a
folder for each agent). They are needed only to write the facts anew; the
tests read the facts. With --check nothing is written, and a difference fails.

A fact is a request as it must be sent again, and what the tests compare of its answer: codes, keys, types of values, and
the few texts that clients match on. Values that a system made up (ids, tokens) are replaced by names such as <id-1>, which
the replaying test fills in with the values of the system under test.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parent.parent / "tests" / "recordings"

# The credential in the recordings; the tests put theirs in its place.
RECORDED_TOKEN = "test-token-abc123"
# Recordings made by two clients at the same time: their steps are merged in order of time.
TOGETHER = [
    ["approval-reviewer-allow-once", "approval-invoker-allow-once"],
    ["approval-reviewer-deny", "approval-invoker-deny"],
    ["approval-timeout-reviewer", "approval-timeout-invoker"],
]
# Recordings of one client that came back: played one after another on one server.
IN_TURN = [["connect-cli-device-v3", "device-reconnect", "device-scope-upgrade"]]
# Holds no frames: the connection was refused before a frame was sent.
EMPTY = "xff"
# A signature that is well-formed and wrong.
WRONG_SIGNATURE = "connect-device-bad-signature"
# A recording keeps only the beginning of a text that is longer than this; the length is kept beside it.
LONGEST_TEXT = 1000
# Where an answer names something that later requests refer to.
LEARNED_FRAMES = ["/id", "/auth/deviceToken"]
LEARNED_EXCHANGES = ["/result/temp_file_id", "/result/task_id"]
# Exchanges whose whole error is compared, by the beginning of their name.
EXACT_ERRORS = ("010_", "011_", "012_", "022_", "023_", "024_", "035_", "036_", "043_", "047_", "074_")
# The plugin's table of search results: its fixed lines and its columns are compared.
TABLE = "006_ov_search_basic"
# Lists in a tool's details whose items' keys are compared.
LISTS = ["resources", "memories", "entries", "tool_results", "matches", "results"]
# The session in which the tools were called, unless a recording names another.
SESSION = {
    "sessionKey": "agent:main:main",
    "sessionId": "e211be14-ad73-4f0b-861b-9e2b39c390fe",
    "agentId": "main",
}


def shape(value):
    """The keys of a value and of what it holds, with the names of types in place of values. A list is its first item."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return {key: shape(held) for key, held in value.items()}


def keys(value):
    """The sorted keys of an object, or of the first object in a list."""
    if isinstance(value, list):
        return keys(value[0]) if value else []
    return sorted(value) if isinstance(value, dict) else []


def at(value, path):
    """What lies at a JSON pointer, or None."""
    for key in path.split("/")[1:]:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def without_none(fact):
    return {key: value for key, value in fact.items() if value is not None}


class Names:
    """Made-up values that later requests refer to, and the names they are given."""

    def __init__(self, requests):
        """`requests` are the texts of all requests: a value that none of them holds needs no name."""
        self.requests = requests
        self.names = {}

    def learn(self, answer, paths):
        learned = {}
        for path in paths:
            value = at(answer, path)
            if isinstance(value, str) and any(value in text for text in self.requests):
                learned[path] = self.names.setdefault(value, f"<id-{len(self.names) + 1}>")
        return learned or None

    def fill(self, value):
        text = json.dumps(value)
        for theirs, name in self.names.items():
            text = text.replace(theirs, name)
        return json.loads(text)


class Shapes:
    """Shapes that are alike are written once."""

    def __init__(self):
        self.shapes = {}

    def name(self, of, value):
        found, count, name = shape(value), 1, of
        while name in self.shapes and self.shapes[name] != found:
            count += 1
            name = f"{of} {count}"
        self.shapes[name] = found
        return name


def read_lines(path):
    text = path.read_text().replace(RECORDED_TOKEN, "<token>")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def device_fact(recording, line, challenge):
    """How to sign a connect request anew: with which key, how old, and what is wrong with it."""
    device = line["frame"]["params"]["device"]
    return without_none(
        {
            "key": device["id"][:8],
            "ageMs": round(line["t"] * 1000 - device["signedAt"]),
            "nonce": device["nonce"] if device["nonce"] != challenge else None,
            "signature": "wrong" if recording == WRONG_SIGNATURE else None,
        }
    )


class Openclaw:
    def __init__(self, folder):
        self.recordings = {path.stem: read_lines(path) for path in sorted(folder.glob("*.jsonl"))}
        assert self.recordings.pop(EMPTY) == []
        self.exchanges = self.recordings.pop("http")
        self.shapes = Shapes()
        sent = [json.dumps(line) for lines in self.recordings.values() for line in lines if line["dir"] == "send"]
        self.names = Names(sent)

    def facts(self):
        groups = TOGETHER + IN_TURN
        groups += [[name] for name in self.recordings if not any(name in group for group in groups)]
        scenarios = [{"recordings": group, "steps": self.steps(group)} for group in groups]
        http = [self.exchange(line) for line in self.exchanges]
        return {"shapes": self.shapes.shapes, "scenarios": scenarios, "http": http}

    def steps(self, group):
        lines = [(of, line) for of, name in enumerate(group) for line in self.recordings[name]]
        if group in TOGETHER:
            lines.sort(key=lambda of_and_line: of_and_line[1]["t"])
        methods, challenges, steps = {}, {}, []
        for of, line in lines:
            step = self.step(group[of], line, methods.setdefault(of, {}), challenges)
            steps.append({"of": of, **step} if of else step)
        return steps

    def step(self, recording, line, methods, challenges):
        direction = line["dir"]
        if direction == "open":
            # The origin of the page is not in the recording; the recording's name says what it was.
            origin = "https://evil.example" if recording == "origin-evil" else None
            return without_none({"do": "open", "origin": origin})
        if direction == "send":
            return self.send(recording, line, methods, challenges)
        if direction == "recv" and line["frame"]["type"] == "res":
            return self.answer(line["frame"], methods)
        if direction == "recv" and line["frame"]["type"] == "event":
            if line["frame"]["event"] == "connect.challenge":
                challenges[recording] = line["frame"]["payload"]["nonce"]
            return self.event(line["frame"])
        if direction == "close":
            return {"do": "close", "code": line["code"], "reason": line["reason"]}
        if direction == "timeout":
            return {"do": "silence"}
        if direction == "closed-by-us":
            return {"do": "leave"}
        raise ValueError(f"{recording}: a line of an unknown kind: {direction}")

    def send(self, recording, line, methods, challenges):
        if "frame" not in line:
            text, length = line["raw"], line["rawLen"]
            if length <= len(text) + LONGEST_TEXT:
                return {"do": "sendText", "text": text}
            return {"do": "sendText", "text": text.rstrip("x"), "padTo": length}
        frame = line["frame"]
        methods[json.dumps(frame["id"])] = frame["method"]
        device = None
        if isinstance(frame.get("params"), dict) and isinstance(frame["params"].get("device"), dict):
            device = device_fact(recording, line, challenges[recording])
            frame["params"]["device"] = {}
        return without_none({"do": "send", "frame": self.names.fill(frame), "device": device})

    def answer(self, frame, methods):
        payload = frame.get("payload")
        method = methods.get(json.dumps(frame["id"]), "")
        return {
            "do": "answer",
            "id": frame["id"],
            "ok": frame["ok"],
            **without_none(
                {
                    "code": at(frame, "/error/code"),
                    "detailsCode": at(frame, "/error/details/code"),
                    "detailsReason": at(frame, "/error/details/reason"),
                    "payloadOk": at(frame, "/payload/ok"),
                    "payloadCode": at(frame, "/payload/error/code"),
                    "payload": None if payload is None else self.shapes.name(method or "unasked", payload),
                    "learn": self.names.learn(payload, LEARNED_FRAMES),
                }
            ),
        }

    def event(self, frame):
        payload = frame.get("payload")
        return without_none(
            {
                "do": "event",
                "event": frame["event"],
                "seq": True if "seq" in frame else None,
                "stateVersion": True if "stateVersion" in frame else None,
                "decision": at(frame, "/payload/decision"),
                "resolvedBy": at(frame, "/payload/resolvedBy"),
                "payload": None if payload is None else self.shapes.name(frame["event"], payload),
                "learn": self.names.learn(payload, LEARNED_FRAMES),
            }
        )

    def exchange(self, line):
        fact = {key: line[key] for key in ["case", "method", "path", "auth"]}
        fact["body"] = line["reqBody"] or None
        fact["status"] = int(line["status"])
        try:
            body = json.loads(line["body"])
        except ValueError:
            return without_none({**fact, "text": line["body"]})
        found = {"ok": body.get("ok"), "errorType": at(body, "/error/type")}
        return without_none({**fact, **found, "shape": self.shapes.name(line["path"], body)})


def read_files(folder):
    return [(path.stem, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def openviking_http(folder):
    recorded = read_files(folder)
    names = Names([json.dumps(exchange["request"]) for _, exchange in recorded])
    facts = []
    for name, exchange in recorded:
        request, response = exchange["request"], exchange["response"]
        answer, body = response["body"], request["body"]
        if isinstance(body, str) and body.startswith("<multipart"):
            body = None
        if name == "051_msg_tool_big":
            body["parts"][0]["tool_output"] = ""
        result = answer.get("result")
        fact = {
            "name": name,
            "method": request["method"],
            "path": names.fill(request["path"]),
            "body": names.fill(body),
            "status": response["status"],
            "envelope": keys(answer),
            "result": keys(result),
            "emptyList": True if result == [] else None,
            "code": at(answer, "/error/code"),
            "error": answer["error"] if name.startswith(EXACT_ERRORS) else None,
            "learn": names.learn(answer, LEARNED_EXCHANGES),
        }
        facts.append(without_none(fact))
    return {"exchanges": facts}


def skeleton(text):
    """The first line, with # for each run of digits, and without the name of the imported folder."""
    out = ""
    for char in text.split("\n")[0].rstrip("\r"):
        char = "#" if char in "0123456789" else char
        if char != "#" or not out.endswith("#"):
            out += char
    return out.replace("resources/plugwidget", "R")


def openviking_tools(folder):
    facts = []
    for name, call in read_files(folder):
        if name == "000_schemas":
            continue
        result = call.get("result") or {}
        text = result["content"][0]["text"] if result.get("content") else result.get("text", "")
        details = result.get("details") or {}
        lines = text.split("\n")
        args = call.get("args")
        if args and args.get("source") == "/home/user/data":
            args["source"] = "<folder>"
        lists = {held: keys(details[held]) for held in LISTS if keys(details.get(held))}
        fact = {
            "name": name,
            "command": call.get("command"),
            "tool": call.get("tool"),
            "session": call["ctx"] if call.get("ctx") not in (None, SESSION) else None,
            "args": args,
            "thrown": at(call, "/thrown/message"),
            "firstLine": skeleton(text),
            "details": keys(details),
            "error": details.get("error") if isinstance(details.get("error"), str) else None,
            "lists": lists or None,
        }
        if name == TABLE:
            fact["table"] = {"tip": lines[1], "gap": lines[2], "columns": lines[3].split(), "note": lines[-1]}
        facts.append(without_none(fact))
    return {"calls": facts}


# Members of a hook's event that the tests send again. Responses are cut: their form is what matters.
HOOK_MEMBERS = [
    "session_id", "cwd", "hook_event_name", "tool_name", "tool_input", "tool_response", "tool_use_id", "prompt_id",
    "turn_id", "agent_id", "agent_type", "error", "file_path",
]
# Coding agents whose hooks are played again.
HOOK_CLIENTS = ["claude", "codex", "gemini"]
# Characters of a response that are kept.
LONGEST_RESPONSE = 200


def short(value):
    if isinstance(value, str):
        return value[:LONGEST_RESPONSE]
    if isinstance(value, list):
        return [short(item) for item in value[:1]]
    if isinstance(value, dict):
        return {key: short(held) for key, held in value.items()}
    return value


def hooks(folder):
    events = []
    for client in HOOK_CLIENTS:
        for path in sorted((folder / client).glob("*.json")):
            event = json.loads(path.read_text())
            payload = {key: event[key] for key in HOOK_MEMBERS if key in event}
            if "tool_response" in payload:
                payload["tool_response"] = short(payload["tool_response"])
            events.append({"client": client, "name": path.stem, "payload": payload})
    installs = {
        client: json.loads((folder / f"install-{client}.{kind}.json").read_text())
        for client, kind in [("claude", "settings"), ("codex", "hooks"), ("gemini", "settings")]
    }
    return {"events": events, "installs": installs}


def written(facts):
    """JSON with one fact a line, so that a change is seen where it is."""
    line = lambda value: json.dumps(value, ensure_ascii=False)
    parts = []
    for key, value in facts.items():
        if isinstance(value, dict):
            rows = [f"  {line(name)}: {line(held)}" for name, held in sorted(value.items())]
            parts.append(f" {line(key)}: {{\n" + ",\n".join(rows) + "\n }")
        elif key == "scenarios":
            rows = []
            for scenario in value:
                steps = ",\n".join(f"   {line(step)}" for step in scenario["steps"])
                rows.append(f'  {{"recordings": {line(scenario["recordings"])}, "steps": [\n{steps}\n  ]}}')
            parts.append(f" {line(key)}: [\n" + ",\n".join(rows) + "\n ]")
        else:
            parts.append(f" {line(key)}: [\n" + ",\n".join(f"  {line(row)}" for row in value) + "\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    arguments = [word for word in sys.argv[1:] if word != "--check"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    folder = pathlib.Path(arguments[0])
    made = {
        "openclaw.json": Openclaw(folder / "openclaw").facts(),
        "openviking-http.json": openviking_http(folder / "openviking-http"),
        "openviking-tools.json": openviking_tools(folder / "openviking"),
        "hooks.json": hooks(folder / "hooks"),
    }
    stale = []
    for name, facts in made.items():
        text = written(facts)
        if "--check" in sys.argv:
            stale += [name] if (TARGET / name).read_text() != text else []
        else:
            TARGET.mkdir(exist_ok=True)
            (TARGET / name).write_text(text)
    if stale:
        sys.exit(f"not as the recordings say: {', '.join(stale)}; run {sys.argv[0]} without --check")


if __name__ == "__main__":
    main()
