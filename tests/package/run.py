#!/usr/bin/env python3
"""Installs each package in a clean root (Debian's minimal system: no Rust, no compiler) and makes a first call with it.

usage: run.py FOLDER_OF_PACKAGES [--form NAME ...]

Prints one JSON line per form with the seconds from the package to the answered call, and its target. Needs root, for chroot.
Exits with 77 where the clean root cannot be had (see ../external.sh).
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

CACHE = Path(os.environ.get("TOOLYARD_ROOT_CACHE", Path.home() / ".cache/toolyard/cleanroot"))
TARGET_SECONDS = 20
CALL = """{program} --home /home/me/.toolyard --vault /home/me/notes call vault.createFile \
--args '{{"path":"first.md","content":"# First\\n\\nA note about kettles.\\n"}}' --json"""
INDEX = "{program} --home /home/me/.toolyard --vault /home/me/notes vault index --json"
SEARCH = "{program} --home /home/me/.toolyard --vault /home/me/notes vault search kettles --json"


class Failed(Exception):
    pass


def cannot_run(why):
    print(f"package: cannot run: {why}", file=sys.stderr)
    sys.exit(77)


def clean_root():
    """Debian's minimal system with Python, made once."""
    if (CACHE / ".complete").exists():
        return
    if not shutil.which("debootstrap"):
        subprocess.run(["apt-get", "install", "-y", "-q", "debootstrap"], capture_output=True, check=False)
    if not shutil.which("debootstrap"):
        cannot_run("debootstrap is missing: apt-get install debootstrap")
    print("package: making a clean root (about 2 minutes, once)", file=sys.stderr)
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(["debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates",
                           "bookworm", str(CACHE)], capture_output=True, text=True, check=False)
    if made.returncode:
        cannot_run("debootstrap failed: " + made.stdout[-300:])
    (CACHE / ".complete").touch()


def inside(root, script, user=None):
    """Runs a script within the root, in namespaces of its own; its standard output."""
    chroot = ["chroot"] + ([f"--userspec={user}"] if user else []) + [str(root)]
    shell = [*chroot, "/bin/sh", "-eu", "-c", script]
    mounts = 'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; exec "$@"'
    ran = subprocess.run(["unshare", "--mount", "--pid", "--fork", "/bin/sh", "-eu", "-c", mounts, str(root), *shell],
                         capture_output=True, text=True, check=False,
                         env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/home/me"})
    if ran.returncode:
        raise Failed(f"exit {ran.returncode}: {script}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.stdout


def first_call(root, program, user=None):
    """The first call, and what can be checked after it; the time at which the call was answered."""
    answer = json.loads(inside(root, CALL.format(program=program), user))
    answered = time.monotonic()
    if answer.get("status") != "ok":
        raise Failed(f"the first call: {answer}")
    if not (root / "home/me/notes/first.md").read_text().startswith("# First"):
        raise Failed("the note was not written")
    return answered


def search(root, program, user=None):
    """The index program is there and answers."""
    inside(root, INDEX.format(program=program), user)
    found = inside(root, SEARCH.format(program=program), user)
    if "first.md" not in found:
        raise Failed(f"the note is not found: {found}")


def one(packages, pattern):
    found = sorted(packages.glob(pattern))
    if len(found) != 1:
        raise Failed(f"{pattern}: {len(found)} packages")
    return found[0]


def tarball(packages, root):
    package = one(packages, "toolyard-*-*-*.tar.gz")
    shutil.copy(package, root / "tmp/package.tar.gz")
    inside(root, "cd /tmp && tar xzf package.tar.gz && ./toolyard-*/install.sh")
    answered = first_call(root, "toolyard")
    search(root, "toolyard")
    inside(root, "test -f /usr/local/share/man/man1/toolyard.1")
    inside(root, "cd /tmp && ./toolyard-*/install.sh --uninstall && test ! -e /usr/local/bin/toolyard")
    return answered


def deb(packages, root):
    shutil.copy(one(packages, "toolyard_*.deb"), root / "tmp/package.deb")
    inside(root, "dpkg -i /tmp/package.deb")
    answered = first_call(root, "toolyard")
    search(root, "toolyard")
    inside(root, "test -f /usr/lib/systemd/user/toolyard.service && dpkg -V toolyard && dpkg -r toolyard "
                 "&& test ! -e /usr/bin/toolyard && test -d /home/me/.toolyard")
    return answered


def wheel(packages, root):
    package = one(packages, "toolyard-*.whl")
    shutil.copy(package, root / "tmp" / package.name)
    inside(root, f"python3 -m venv /home/me/env && /home/me/env/bin/pip install -q --no-index /tmp/{package.name}")
    answered = first_call(root, "/home/me/env/bin/toolyard")
    search(root, "/home/me/env/bin/toolyard")
    return answered


def npm(packages, root):
    node, modules = shutil.which("node"), Path("/usr/lib/node_modules/npm")
    if not node or not modules.is_dir():
        cannot_run("node and npm are missing")
    shutil.copy(node, root / "usr/bin/node")
    shutil.copytree(modules, root / "usr/lib/node_modules/npm", symlinks=True)
    (root / "usr/bin/npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    (root / "usr/bin/npx").symlink_to("../lib/node_modules/npm/bin/npx-cli.js")
    names = [one(packages, pattern).name for pattern in ("toolyard-[0-9]*.tgz", "toolyard-linux-*.tgz")]
    for name in names:
        shutil.copy(packages / name, root / "tmp" / name)
    install = " ".join(f"/tmp/{name}" for name in reversed(names))
    begun = time.monotonic()
    inside(root, f"mkdir -p /home/me/project && cd /home/me/project && npm install --offline --no-audit --silent {install}")
    answered = first_call(root, "/home/me/project/node_modules/.bin/toolyard")
    search(root, "/home/me/project/node_modules/.bin/toolyard")
    if inside(root, "cd /home/me/project && npx --offline toolyard --version").strip().split()[0] != "toolyard":
        raise Failed("npx toolyard --version")
    # The copies of node and npm above belong to the test.
    return answered, begun


def oci(packages, root):
    """The image's own files are the root: nothing of Debian is there."""
    shutil.rmtree(root)
    root.mkdir()
    with tempfile.TemporaryDirectory() as layout:
        with tarfile.open(one(packages, "toolyard-*.oci.tar")) as image:
            image.extractall(layout, filter="data")
        blob = lambda digest: Path(layout) / "blobs" / digest.replace(":", "/")
        index = json.loads((Path(layout) / "index.json").read_text())
        manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
        for layer in manifest["layers"]:
            with tarfile.open(blob(layer["digest"])) as files:
                files.extractall(root, filter="tar")
    data = root / "data"
    data.mkdir(mode=0o700)
    (data / "notes").mkdir(mode=0o700)
    for folder in (data, data / "notes"):
        os.chown(folder, 10001, 10001)
    chroot = shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin")
    ran = subprocess.run([chroot, "--userspec=10001:10001", str(root), "/usr/bin/toolyard", "--home", "/data/home",
                          "--vault", "/data/notes", "call", "vault.createFile", "--args",
                          '{"path":"first.md","content":"kettles"}', "--json"],
                         capture_output=True, text=True, check=False, env={"HOME": "/data", "PATH": "/usr/bin"})
    answered = time.monotonic()
    if ran.returncode or json.loads(ran.stdout).get("status") != "ok" or not (data / "notes/first.md").is_file():
        raise Failed(f"the first call: {ran.stdout}{ran.stderr}")
    return answered


FORMS = {"tarball": tarball, "deb": deb, "wheel": wheel, "npm": npm, "oci": oci}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", type=Path)
    parser.add_argument("--form", choices=sorted(FORMS), action="append")
    given = parser.parse_args()
    if os.geteuid() != 0:
        cannot_run("it needs root, for chroot")
    clean_root()
    failures = 0
    for form in given.form or FORMS:
        with tempfile.TemporaryDirectory(prefix="toolyard-package-") as folder:
            root = Path(folder) / "root"
            subprocess.run(["cp", "-a", "--reflink=auto", str(CACHE), str(root)], check=True)
            for name in ("cargo", "rustc", "cc", "gcc"):
                assert not list(root.glob(f"usr/bin/{name}")), f"{name} is in the clean root"
            (root / "home/me/notes").mkdir(parents=True)
            begun = time.monotonic()
            try:
                answered = FORMS[form](given.packages, root)
            except Failed as failed:
                failures += 1
                print(json.dumps({"package": form, "ok": False, "error": str(failed)}))
                continue
            if isinstance(answered, tuple):
                answered, begun = answered
            seconds = round(answered - begun, 2)
            met = seconds <= TARGET_SECONDS
            failures += not met
            print(json.dumps({"package": form, "ok": met, "seconds": seconds, "target": TARGET_SECONDS}))
    print(f"packages: {len(given.form or FORMS) - failures} passed, {failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
