#!/usr/bin/env python3
"""Checks what the documentation says: check_docs.py PROGRAM

- A page describes what is: the words of a roadmap ("today", "not yet", "for now") stand in a section called Roadmap only.
- Every `toolyard …` line in a fenced shell block parses: the program is run with the line's arguments and `--help`, which
  makes it check subcommands and options and do nothing.
- Every page of docs/ is in its index: a page of decisions/ or reference/errors/ in the README there, all others in docs/README.md.
"""
import pathlib, re, shlex, subprocess, sys

root = pathlib.Path(__file__).resolve().parent.parent
# What generated pages and histories say is checked elsewhere or belongs to its date.
LEFT_OUT = ("examples/vault/", "CHANGELOG.md", "docs/decisions/", "docs/specification.md", ".github/")
ROADMAP_WORDS = re.compile(r"\b(today|not yet|not [\w ]{1,40} yet|for now|no longer|will be added)\b", re.I)
FENCE = re.compile(r"^(```|~~~)(\w*)[^\n]*\n(.*?)^\1", re.S | re.M)


def pages():
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "*.md"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0")[:-1] if not name.startswith(LEFT_OUT)]


def roadmap_words(text):
    """Lines that say when instead of what, outside fenced code, quotes and the section Roadmap."""
    blanked = FENCE.sub(lambda block: "\n" * block.group(0).count("\n"), text)
    heading = ""
    for number, line in enumerate(blanked.splitlines(), 1):
        if line.startswith("#"):
            heading = line.lower()
        if "roadmap" not in heading and (found := ROADMAP_WORDS.search(re.sub(r"`[^`]*`|\"[^\"]*\"", "", line))):
            yield number, f'says "{found.group(0)}": say what is, or move it to the roadmap'


def commands(text):
    """The `toolyard` commands of fenced shell blocks, with their line numbers and without comments."""
    for block in FENCE.finditer(text):
        if block.group(2) not in ("", "sh", "bash", "shell", "console"):
            continue
        first = text.count("\n", 0, block.start(3)) + 1
        joined = re.sub(r"\\\n", lambda _: " \0", block.group(3))
        offset = 0
        for line in joined.split("\n"):
            yield from ((first + offset, part) for part in simple_commands(line.replace("\0", " ")))
            offset += 1 + line.count("\0")


def simple_commands(line):
    """The commands of one line, cut at pipes, lists and redirections."""
    if not re.search(r"(^|[|&;]|\$ )\s*(?:[A-Z_]+=\S+ )*toolyard\b", line):
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words, cut = [], False
    try:
        tokens = [*lexer, "|"]
    except ValueError:
        return  # an open quote: the line is part of a longer text
    for token in tokens:
        if set(token) <= set("|&;<>()"):
            if words[:1] == ["toolyard"]:
                yield words[1:]
            words, cut = [], token.startswith((">", "<"))
        elif cut:
            cut = False
        elif token != "$" and not (not words and re.fullmatch(r"[A-Z_]+=.*", token, re.S)):
            words.append(token)


def refused(program, words):
    """What the program says against the arguments; nothing when they parse."""
    words = [word for word in words if word not in ("…", "...")]
    if "--" in words:
        words = words[: words.index("--")]
    if any(word in ("--help", "-h", "--version", "help") for word in words):
        return ""
    run = subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=20)
    return "" if run.returncode == 0 else (run.stderr or run.stdout).strip().splitlines()[0]


def unlisted(texts):
    """The pages of docs/ that the index of their folder does not link to, given every page's text by name."""
    for name in sorted(texts):
        index = next((at for at in ("docs/decisions/", "docs/reference/errors/") if name.startswith(at)), "docs/")
        if name.startswith("docs/") and name != f"{index}README.md":
            if f"({name.removeprefix(index)}" not in texts.get(f"{index}README.md", ""):
                yield name, f"is not in {index}README.md"


def every_page():
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "docs/*.md"], capture_output=True, text=True, check=True)
    return {name: (root / name).read_text() for name in listed.stdout.split("\0")[:-1]}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: check_docs.py PROGRAM")
    bad = tried = 0
    for name in pages():
        text = (root / name).read_text()
        for number, problem in roadmap_words(text):
            print(f"{name}:{number}: {problem}")
            bad += 1
        for number, words in commands(text):
            tried += 1
            if problem := refused(sys.argv[1], words):
                print(f"{name}:{number}: toolyard {shlex.join(words)}: {problem}")
                bad += 1
    for name, problem in unlisted(every_page()):
        print(f"{name}: {problem}")
        bad += 1
    print(f"documentation: {tried} commands parse, {bad} problems")
    sys.exit(1 if bad or not tried else 0)
