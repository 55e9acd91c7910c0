"""Which test programs need not run again, because nothing that they can read has changed since they passed.

Used by `run_tests.py --cached`, which `make quick` calls; `make test` and CI run everything. The inputs of a test program:

- the program itself, with everything that was compiled into it;
- the programs of this build that it names, and those that these name: a program that is run must be found by its name;
- every file of the checkout that Git does not ignore, except Rust sources below `crates/`, `bench/` and `fuzz/src`, which
  are compiled into programs. A test may read examples, recordings, schemas, scripts and pages;
- the arguments, the environment's `TOOLYARD_*`, `CARGO*` and `RUST*`, the tools that tests run, and the kernel.

A program whose inputs cannot be read is run.
"""
import hashlib, json, os, pathlib, platform, shutil, subprocess

# What tests run beside programs of the build; `make quick` checks that they are there.
TOOLS = ["bash", "git", "node", "npm", "perl", "python3", "sh", "strace", "tar", "unshare", "mount"]
# The main program's name is part of many others; only its path counts.
MAIN = "toolyard"
CHUNK = 1 << 20


def is_compiled(name):
    """Whether a file of the checkout reaches tests only as part of a program."""
    return name.endswith(".rs") and name.startswith(("crates/", "bench/", "fuzz/src/"))


class Hashes:
    """Hashes of files, remembered by size, time and inode, because programs are large."""

    def __init__(self, file):
        self.file, self.known, self.used = file, {}, {}
        try:
            self.known = json.loads(file.read_text())
        except (OSError, ValueError):
            pass

    def look(self, path, names=()):
        """The hash of a file, and which of the names it contains."""
        stat = os.stat(path)
        key = f"{path} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino} {' '.join(names)}"
        if key not in self.known:
            data = pathlib.Path(path).read_bytes()
            self.known[key] = [hashlib.sha256(data).hexdigest(), [name for name in names if name.encode() in data]]
        self.used[key] = self.known[key]
        return self.used[key]

    def keep(self):
        self.file.write_text(json.dumps(self.used))


def checkout_hash(root, hashes):
    """One hash of the files that tests may read."""
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True
    )
    total = hashlib.sha256()
    for name in sorted(set(listed.stdout.decode().split("\0"))):
        path = os.path.join(root, name)
        if not name or is_compiled(name) or (not os.path.islink(path) and not os.path.isfile(path)):
            continue
        content = os.readlink(path) if os.path.islink(path) else hashes.look(path)[0]
        total.update(f"{name}\0{os.lstat(path).st_mode:o}\0{content}\0".encode())
    return total.hexdigest()


def surroundings(arguments):
    tools = {}
    for name in TOOLS:
        path = shutil.which(name)
        stat = os.stat(path) if path else None
        tools[name] = [os.path.realpath(path), stat.st_size, stat.st_mtime_ns] if path else None
    variables = {k: v for k, v in os.environ.items() if k.startswith(("TOOLYARD_", "CARGO", "RUST")) or k in ("PATH", "HOME", "USER", "LANG", "TZ")}
    return json.dumps([arguments, tools, variables, platform.release(), os.getuid()], sort_keys=True)


class Cache:
    def __init__(self, programs, arguments, root):
        deps = pathlib.Path(programs[0][1]).parent
        self.profile = deps.parent
        self.file = self.profile / "tests-passed.json"
        self.hashes = Hashes(self.profile / "test-inputs.json")
        self.common = surroundings(arguments) + checkout_hash(root, self.hashes)
        self.built = {}
        for folder in (self.profile, self.profile / "examples"):
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.is_file() and os.access(path, os.X_OK) and "." not in path.name and not is_hashed(path.name):
                    self.built[str(path) if path.name == MAIN else path.name] = path
        try:
            self.passed = json.loads(self.file.read_text())
        except (OSError, ValueError):
            self.passed = {}

    def key(self, executable):
        """One hash of everything that a test program can read, or None if that cannot be said."""
        try:
            names, found, to_look = sorted(self.built), {}, [executable]
            while to_look:
                path = str(to_look.pop())
                if path not in found:
                    found[path], runs = self.hashes.look(path, names)
                    to_look += [self.built[name] for name in runs]
            return hashlib.sha256((self.common + json.dumps(found, sort_keys=True)).encode()).hexdigest()
        except OSError:
            return None

    def has_passed(self, name, key):
        return key is not None and self.passed.get(name) == key

    def note(self, name, key, succeeded):
        """Remembers a program that passed, and forgets one that failed."""
        self.passed.pop(name, None)
        if succeeded and key is not None:
            self.passed[name] = key

    def keep(self):
        self.file.write_text(json.dumps(self.passed, indent=1, sort_keys=True))
        self.hashes.keep()


def is_hashed(name):
    """Whether a name ends with the hash that cargo gives to an example's own copy."""
    end = name.rpartition("-")[2]
    return len(end) == 16 and all(c in "0123456789abcdef" for c in end)
