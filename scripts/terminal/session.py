"""Runs the commands of the recorded terminal session against a real Toolyard in a temporary home.

The agents are scripted: one speaks MCP to `toolyard mcp`, the other sends the events that Claude Code sends to its hooks
and runs the command that was allowed. Everything that is shown is what the program printed.
"""
import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# How long a step may take before the recording fails, in seconds.
STEP_WITHIN = 60
# From the watcher's connection to its first message.
SETTLE_SECONDS = 0.5
# The state of a connected socket in /proc/net/unix.
CONNECTED = "03"

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "scripted-agent", "version": "1"}}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
DELETE = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
    "name": "vault_delete", "arguments": {"path": "Notes/Compost.md"}}}


@dataclasses.dataclass
class Shown:
    """One command of the session with what it printed and how long it took. A comment has no output."""
    text: str
    output: list
    seconds: float
    comment: bool = False


class Session:
    """A Toolyard with notes, a Git project, and somebody who can approve."""

    def __init__(self, program, folder):
        self.folder = pathlib.Path(folder)
        self.program = pathlib.Path(program).resolve()
        self.notes = self.folder / "notes"
        self.project = self.folder / "project"
        self.env = {"PATH": f"{self.program.parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder / "user"),
                    "TOOLYARD_HOME": str(self.folder / "home"), "LANG": "C.UTF-8", "NO_COLOR": "1"}
        self.children = []
        self.shown = []

    def start(self):
        (self.folder / "user").mkdir()
        subprocess.run(["cp", "-r", ROOT / "examples/vault", self.notes], check=True)
        (self.project / "src").mkdir(parents=True)
        (self.project / "src/main.py").write_text('print("two weeks of work")\n')
        subprocess.run(["git", "init", "-q", self.project], check=True, env=self.env)
        self.run("toolyard init --yes --no-index --vault " + str(self.notes))
        self.background(["up", "--port", "0"])
        self.until(self.is_up)
        self.background(["approvals", "watch"])
        # Without somebody who can approve, a call that needs approval is refused at once. The watcher says nothing when it
        # is connected, so its connection is looked for; it declares itself in its first message.
        self.until(self.is_watched)
        time.sleep(SETTLE_SECONDS)

    def is_up(self):
        """Whether the Toolyard answers. A command fails while it starts: the socket is there before its secret is."""
        ran = subprocess.run([self.program, "status", "--json"], env=self.env, cwd=self.project, text=True,
                             timeout=STEP_WITHIN, capture_output=True, check=False)
        return ran.returncode == 0 and json.loads(ran.stdout)["running"]

    def is_watched(self):
        """Whether a client holds a connection to the local socket."""
        sockets = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
        own = str(self.folder / "home/state/toolyard.sock")
        return any(words[5] == CONNECTED and words[-1] == own for words in sockets)

    def stop(self):
        for child in reversed(self.children):
            child.terminate()
        for child in self.children:
            child.wait(timeout=STEP_WITHIN)

    def background(self, words, **streams):
        child = subprocess.Popen([self.program, *words], env=self.env, cwd=self.project, text=True,
                                 **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
                                    "stderr": subprocess.DEVNULL, **streams})
        self.children.append(child)
        return child

    def run(self, command):
        """What a shell command prints on standard output and error; the recording fails where the command does."""
        ran = subprocess.run(["bash", "-c", command], env=self.env, cwd=self.project, text=True, timeout=STEP_WITHIN,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if ran.returncode:
            raise SystemExit(f"exit {ran.returncode}: {command}\n{ran.stdout}")
        return ran.stdout

    @staticmethod
    def until(holds):
        deadline = time.monotonic() + STEP_WITHIN
        while not (value := holds()):
            if time.monotonic() > deadline:
                raise SystemExit("the session waited in vain")
            time.sleep(0.05)
        return value

    def say(self, text):
        self.shown.append(Shown(text, [], 0.0, comment=True))

    def show(self, command):
        begun = time.monotonic()
        output = self.run(command)
        self.shown.append(Shown(command, output.splitlines(), time.monotonic() - begun))

    def question(self):
        """The id of the open question, as soon as there is one."""
        def first():
            asked = json.loads(self.run("toolyard approvals list --json"))["approvals"]
            return asked[0]["id"] if asked else None
        return self.until(first)

    def agent_deletes_a_note(self):
        agent = self.background(["mcp"], stdin=subprocess.PIPE)
        for message in (INITIALIZE, INITIALIZED, DELETE):
            agent.stdin.write(json.dumps(message) + "\n")
        agent.stdin.flush()
        return self.question()

    def agent_runs(self, command):
        """An allowed command of a coding agent, with the events before and after it; the id of its run."""
        event = {"session_id": "recording", "transcript_path": "", "cwd": str(self.project), "permission_mode": "default",
                 "tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": "call-1"}
        before = self.background(["hooks", "run", "--client", "claude"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        before.stdin.write(json.dumps({**event, "hook_event_name": "PreToolUse"}))
        before.stdin.close()
        self.run("toolyard approvals allow " + self.question())
        answer = json.loads(before.stdout.read())["hookSpecificOutput"]
        if answer["permissionDecision"] != "allow":
            raise SystemExit(f"the hook refused: {answer}")
        self.run(command)
        after = self.background(["hooks", "run", "--client", "claude"], stdin=subprocess.PIPE)
        after.stdin.write(json.dumps({**event, "hook_event_name": "PostToolUse", "tool_response": {"stdout": ""}}))
        after.stdin.close()
        after.wait(timeout=STEP_WITHIN)
        return json.loads(self.run("toolyard runs list --json"))["runs"][0]["runId"]


def play(session):
    """The session, in the order in which it is shown."""
    question = session.agent_deletes_a_note()
    session.say("An agent wants to delete a note. The call waits for a person.")
    session.show("toolyard approvals list")
    session.show(f"toolyard approvals show {question} | tail -n 13")
    session.show(f'toolyard approvals deny {question} --reason "Archive it"')
    run = session.agent_runs("rm -r src")
    session.say("A coding agent ran `rm -r src` with its own shell. Its hooks recorded that.")
    session.show("ls")
    session.show("toolyard runs list | head -n 2")
    session.show(f"toolyard plan undo {run} --yes")
    session.show("cat src/main.py")
    session.say("Nothing in the record was edited, removed or reordered:")
    session.show("toolyard runs verify")


def record(program):
    """What the session showed."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="toolyard-"))
        session = Session(program, folder)
        stack.callback(session.stop)
        session.start()
        play(session)
        return session.shown
