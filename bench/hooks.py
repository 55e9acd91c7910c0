#!/usr/bin/env python3
"""Measures what a hook adds to a call of a coding agent: with a read, a written file, and a command in a project of
10,000 files, each before and after the call, beside the start of `true`.

usage: hooks.py PROGRAM [CALLS]
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


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, calls = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50
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
    idle = statistics.median(timed(["true"], b"")[0] for _ in range(calls))
    print(json.dumps({"what": "true", "p50Ms": round(idle, 2)}))
    inputs = {
        "Read": {"file_path": f"{project}/d0/f0"},
        "Write": {"file_path": f"{project}/d0/f0", "content": "y"},
        "Bash": {"command": "touch x"},
    }
    for tool, given in inputs.items():
        times = {"PreToolUse": [], "PostToolUse": []}
        for number in range(calls):
            for event, measured in times.items():
                payload = {
                    "session_id": "bench", "cwd": project, "hook_event_name": event, "tool_name": tool,
                    "tool_input": given, "tool_use_id": f"{tool}{number}", "tool_response": "ok",
                }
                took, done = timed(hook, json.dumps(payload).encode())
                if done.returncode != 0 or done.stdout:
                    sys.exit(f"{tool} was not let through: {done}")
                measured.append(took)
        for event, measured in times.items():
            p50, p95 = statistics.median(measured), sorted(measured)[int(len(measured) * 0.95)]
            added = round(p50 - idle, 2)
            print(json.dumps({"what": f"hook {event} {tool}", "p50Ms": round(p50, 2), "p95Ms": round(p95, 2), "addedMs": added}))
    server.terminate()
    server.wait()
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
