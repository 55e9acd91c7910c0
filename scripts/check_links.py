#!/usr/bin/env python3
"""Checks that every relative link in the Markdown files of the repository leads to a file, and every #anchor to a heading."""
import pathlib, re, subprocess, sys

root = pathlib.Path(__file__).resolve().parent.parent
files = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "*.md"], capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")


def prose(text):
    """The text without fenced code and inline code, where a link is not a link."""
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(path):
    out = set()
    for line in re.sub(r"^(```|~~~).*?^\1", "", path.read_text(), flags=re.S | re.M).splitlines():
        if m := re.match(r"#{1,6}\s+(.*?)\s*#*$", line):
            slug = re.sub(r"[^\w\- ]", "", m.group(1).lower()).replace(" ", "-")
            out.add(slug)
    return out


bad = checked = 0
for name in files:
    if name.startswith("examples/vault/"):
        continue  # notes of a sample vault, with links of their own kind
    page = root / name
    for target in LINK.findall(prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        checked += 1
        path, _, anchor = target.partition("#")
        where = (page.parent / path).resolve() if path else page
        if not where.exists():
            print(f"{name}: {target}: no such file")
            bad += 1
        elif anchor and where.suffix == ".md" and anchor not in anchors(where):
            print(f"{name}: {target}: no such heading")
            bad += 1
print(f"links: {checked - bad} passed, {bad} failed")
sys.exit(1 if bad or not checked else 0)
