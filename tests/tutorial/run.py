#!/usr/bin/env python3
"""Carries out the commands of a page and compares what they print: run.py PROGRAM PAGE [SECTION]

- A fenced `sh` block is run by bash. Blocks of one page share a shell, as in a terminal; `sh terminal-2` names another one.
- A fenced `text` block says what the block before it prints, standard error included. `…` stands for any text within a line,
  and a line with nothing else for any number of lines.
- `sh terminal-2 keeps-running` is a block that does not end (a server). Its output is awaited instead of compared whole, and
  a later `text terminal-2` block awaits more of it.
- With SECTION, only the blocks below that heading are run.

HOME is a temporary folder, and `toolyard` is PROGRAM. The first difference, and the first command that fails, ends the run.
"""
import codecs
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# How long a block may take before the run fails, in seconds. A page takes a few seconds on an idle machine.
WITHIN = 60
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.S | re.M)
# What the shell writes when a block has ended, and when one of its commands has failed. No command prints the character.
MARK = "\x1e"


class Differs(Exception):
    """What the page says is not what happened."""


@dataclasses.dataclass
class Block:
    line: int
    terminal: str
    commands: str
    expected: str | None = None
    keeps_running: bool = False


def section(text, heading):
    """The page with everything but one section blanked, so that line numbers stay; the whole page without a heading."""
    if heading is None:
        return text
    lines, level, inside, found, fenced = [], 0, False, False, False
    for line in text.split("\n"):
        fenced ^= line.startswith("```")
        # A line of code that begins with a hash is no heading.
        hashes = None if fenced else re.match(r"(#+) (.*)", line)
        if hashes and inside and len(hashes.group(1)) <= level:
            inside = False
        if hashes and hashes.group(2).strip() == heading:
            inside, found, level = True, True, len(hashes.group(1))
        lines.append(line if inside else "")
    if not found:
        raise Differs(f'there is no section "{heading}"')
    return "\n".join(lines)


def blocks(text):
    """The blocks of a page, in order. A `text` block belongs to the `sh` block before it, or to a terminal that it names."""
    found = []
    for fence in FENCE.finditer(text):
        language, words, body = fence.group(1), fence.group(2).split(), fence.group(3)
        line = text.count("\n", 0, fence.start()) + 1
        named = next((word for word in words if word.startswith("terminal-")), None)
        if language == "sh":
            found.append(Block(line, named or "terminal-1", body, None, "keeps-running" in words))
        elif language == "text" and named:
            found.append(Block(line, named, "", body, True))
        elif language == "text":
            if not found or found[-1].expected is not None:
                raise Differs(f"line {line}: a text block without commands before it")
            found[-1].expected = body
    if not any(block.expected for block in found):
        raise Differs("no block says what its commands print")
    return found


def pattern(expected):
    """A regular expression for an expected output."""
    lines = []
    for line in expected.rstrip("\n").split("\n"):
        lines.append(r"(?:[^\n]*\n)*?" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…"))) + r"[ \t]*\n")
    return re.compile("".join(lines))


class Terminal:
    """A shell that stays open, and everything it printed."""

    def __init__(self, env, folder, name):
        self.folder, self.name, self.text, self.count = pathlib.Path(folder), name, "", 0
        self.shell = subprocess.Popen(["bash", "--norc"], env=env, cwd=env["HOME"], stdin=subprocess.PIPE, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self._write(f"trap 'printf \"{MARK}failed %s: %s{MARK}\" \"$?\" \"$BASH_COMMAND\"' ERR\n")

    def _read(self):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while letters := os.read(self.shell.stdout.fileno(), 65536):
            self.text += decoder.decode(letters)

    def _write(self, text):
        self.shell.stdin.write(text)
        self.shell.stdin.flush()

    def run(self, block):
        """Runs a block. Its commands read nothing: what is typed here belongs to the shell."""
        self.count += 1
        script = self.folder / f"{self.name}-{self.count}.sh"
        script.write_text(block.commands)
        before = len(self.text)
        self._write(f". {script} < /dev/null; printf '{MARK}done{MARK}'\n")
        if block.keeps_running:
            self.wait_for(block, before)
            return
        self._until(lambda: f"{MARK}done{MARK}" in self.text[before:], block)
        printed = self.text[before:].replace(f"{MARK}done{MARK}", "")
        if failed := re.search(f"{MARK}failed (.*?){MARK}", printed, re.S):
            raise Differs(f"line {block.line}: exit {failed.group(1)}\n{clean(printed)}")
        if block.expected is not None and not pattern(block.expected).fullmatch(printed.rstrip("\n") + "\n"):
            raise Differs(f"line {block.line}: the page says\n{block.expected}\nthe program says\n{printed}")

    def wait_for(self, block, before=0):
        """Waits until the output of a block that keeps running has what the page says."""
        if block.expected is None:
            return
        wanted = pattern(block.expected)
        self._until(lambda: wanted.search(self.text[before:]) or f"{MARK}failed" in self.text[before:], block)
        if not wanted.search(self.text[before:]):
            raise Differs(f"line {block.line}: a command failed\n{clean(self.text[before:])}")

    def _until(self, holds, block):
        deadline = time.monotonic() + WITHIN
        while not holds():
            if time.monotonic() > deadline or self.shell.poll() is not None:
                raise Differs(f"line {block.line}: waited in vain for\n{block.expected or block.commands}\n"
                              f"the program says\n{clean(self.text)}")
            time.sleep(0.02)

    def close(self):
        # The shell leads a process group of its own, with everything that it started.
        try:
            os.killpg(self.shell.pid, signal.SIGTERM)
            self.shell.wait(timeout=10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            self.shell.kill()
            self.shell.wait()
        # A process that left the group would keep the pipe open.
        self.reader.join(timeout=1)
        if not self.reader.is_alive():
            self.shell.stdin.close()
            self.shell.stdout.close()


def clean(text):
    return text.replace(MARK, "|")


def carry_out(text, program, heading=None):
    """Runs the blocks of a page; how many there were."""
    page = blocks(section(text, heading))
    with tempfile.TemporaryDirectory(prefix="toolyard-tutorial-") as folder:
        home, scripts, programs = (pathlib.Path(folder) / name for name in ("home", "scripts", "bin"))
        for made in (home, scripts, programs):
            made.mkdir()
        shutil.copytree(pathlib.Path(__file__).resolve().parents[2] / "examples", home / "examples")
        (programs / "toolyard").symlink_to(pathlib.Path(program).resolve())
        env = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8", "NO_COLOR": "1"}
        terminals = {}
        try:
            for block in page:
                if block.terminal not in terminals:
                    terminals[block.terminal] = Terminal(env, scripts, block.terminal)
                terminal = terminals[block.terminal]
                terminal.run(block) if block.commands else terminal.wait_for(block)
        finally:
            for terminal in reversed(terminals.values()):
                terminal.close()
    return len(page)


def main(words):
    if len(words) not in (2, 3):
        raise SystemExit(__doc__.split("\n")[0])
    begun = time.monotonic()
    try:
        count = carry_out(pathlib.Path(words[1]).read_text(), words[0], *words[2:])
    except Differs as differs:
        raise SystemExit(f"{words[1]}, {differs}") from None
    print(f"{words[1]}: {count} blocks do what the page says, {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
