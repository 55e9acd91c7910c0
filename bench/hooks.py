#!/usr/bin/env python3
"""Measures what a hook adds to a call of a coding agent: with a read, a written file, and a command in a project of
10,000 files, each before and after the call. The start of `true`, measured alternately with the hook, is subtracted.
Prints one JSON line: `bench`, `figures` (milliseconds), `target` and `met`.

usage: hooks.py PROGRAM [CALLS] [--strict]      with --strict, a missed target ends with exit code 1
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

FILES = 10_000
# Milliseconds that a hook may add at p50, and that one may add with a snapshot of the project.
TARGET_MS = 3.0
SNAPSHOT_TARGET_MS = 33.0


def timed(arguments, data):
    begun = time.perf_counter()
    done = subprocess.run(arguments, input=data, capture_output=True)
    return (time.perf_counter() - begun) * 1000, done


def make_project(folder):
    for number in range(FILES):
        os.makedirs(f"{folder}/d{number % 100}", exist_ok=True)
        with open(f"{folder}/d{number % 100}/f{number}", "w") as file:
            file.write("x" * 1000)
    settings = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*settings, "commit", "-qm", "files"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def measure(hook, project, tool, given, calls):
    """The added milliseconds of the hook before and of the hook after each call."""
    added = {"PreToolUse": [], "PostToolUse": []}
    for number in range(calls):
        for event, measured in added.items():
            payload = {
                "session_id": "bench", "cwd": project, "hook_event_name": event, "tool_name": tool,
                "tool_input": given, "tool_use_id": f"{tool}{number}", "tool_response": "ok",
            }
            idle, _ = timed(["true"], b"")
            took, done = timed(hook, json.dumps(payload).encode())
            if done.returncode != 0 or done.stdout:
                sys.exit(f"{tool} was not let through: {done}")
            measured.append(took - idle)
    return added


def main():
    words = [word for word in sys.argv[1:] if word != "--strict"]
    if not words:
        sys.exit(__doc__)
    program, calls = words[0], int(words[1]) if len(words) > 1 else 100
    place = tempfile.mkdtemp()
    home, project = f"{place}/home", f"{place}/project"
    os.makedirs(home)
    os.makedirs(project)
    with open(f"{home}/config.toml", "w") as file:
        file.write('[hooks]\npreset = "observe"\n[knowledge]\nenabled = false\n')
    make_project(project)
    server = subprocess.Popen([program, "--home", home, "up", "--port", "0", "--json"], stdout=subprocess.PIPE)
    server.stdout.readline()
    hook = [program, "hooks", "run", "--client", "claude", "--home", home]
    inputs = {
        "Read": {"file_path": f"{project}/d0/f0"},
        "Write": {"file_path": f"{project}/d0/f0", "content": "y"},
        "Bash": {"command": "touch x"},
    }
    figures, target, met = {}, {}, True
    try:
        for tool, given in inputs.items():
            # The first call of a project seeds its snapshots.
            measure(hook, project, tool, given, 1)
            most = SNAPSHOT_TARGET_MS if tool == "Bash" else TARGET_MS
            for event, added in measure(hook, project, tool, given, calls).items():
                name = f"{tool.lower()}{'Before' if event == 'PreToolUse' else 'After'}P50Ms"
                figures[name] = round(statistics.median(added), 2)
                figures[name.replace("P50", "P95")] = round(sorted(added)[int(len(added) * 0.95)], 2)
                target[name] = most
                met = met and figures[name] <= most
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(place)
    print(json.dumps({"bench": "hooks", "figures": figures, "target": target, "met": met}))
    if "--strict" in sys.argv and not met:
        sys.exit(1)


if __name__ == "__main__":
    main()
