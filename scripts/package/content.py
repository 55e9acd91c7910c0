"""What a package holds: the programs, man pages, completions, licence and bill of materials."""
import re
import subprocess
import tempfile
from pathlib import Path

from archives import Entry

# The program, and those that it starts and looks for beside itself.
PROGRAMS = ["toolyard", "toolyard-index", "toolyard-parse", "toolyard-script"]
COMPLETIONS = {
    "bash": "share/bash-completion/completions/toolyard",
    "zsh": "share/zsh/vendor-completions/_toolyard",
    "fish": "share/fish/vendor_completions.d/toolyard.fish",
}
DESCRIPTION = "Tools for AI agents: registered, found, decided, run and recorded by one program"


class Problem(Exception):
    """Something is missing; the message says what to do."""


def programs(folder):
    """The programs of a build, by name."""
    found = {}
    for name in PROGRAMS:
        path = Path(folder) / name
        if not path.is_file():
            raise Problem(f"{path} is missing: run make build first")
        found[name] = path.read_bytes()
    return found


def version_of(folder):
    """The version that the program says it has."""
    said = subprocess.run([Path(folder) / "toolyard", "--version"], check=True, capture_output=True, text=True).stdout
    match = re.fullmatch(r"toolyard (\d+\.\d+\.\d+\S*)\s*", said)
    if not match:
        raise Problem(f"the program's version cannot be read: {said!r}")
    return match[1]


def needed_glibc(content):
    """The newest version of glibc's symbols that a program asks for."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", content)
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def check_glibc(found, target):
    for name, content in found.items():
        needed = needed_glibc(content)
        if needed > target.glibc:
            raise Problem(f"{name} needs glibc {needed[0]}.{needed[1]}, and {target.rust} promises to run with "
                          f"{target.glibc[0]}.{target.glibc[1]}: build on an older system")


def documents(folder, root):
    """Man pages and completions as the program writes them, the licence, and the configuration's reference."""
    toolyard = Path(folder) / "toolyard"
    found = {}
    for shell, place in COMPLETIONS.items():
        script = subprocess.run([toolyard, "completions", shell], check=True, capture_output=True).stdout
        found[place] = Entry(script)
    with tempfile.TemporaryDirectory() as pages:
        subprocess.run([toolyard, "config", "man-pages", pages], check=True, capture_output=True)
        for page in sorted(Path(pages).iterdir()):
            found[f"share/man/man1/{page.name}"] = Entry(page.read_bytes())
    for name in ("LICENSE", "SECURITY.md", "CHANGELOG.md"):
        found[f"share/doc/toolyard/{name}"] = Entry((root / name).read_bytes())
    return found


def unit(program):
    """The systemd user unit."""
    return Entry(f"""[Unit]
Description=Toolyard, the tools of your AI agents
Documentation=man:toolyard(1)
After=network.target

[Service]
ExecStart={program} up
Restart=on-failure
RestartSec=2
# A stop lets running calls end and their records be written.
TimeoutStopSec=30

[Install]
WantedBy=default.target
""".encode())
