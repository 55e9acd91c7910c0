"""The parts of a cluster on one machine: two PostgreSQL servers, moto, nodes of Toolyard, haproxy. Everything listens on
loopback, and every part can be stopped, killed and started again by itself."""

import glob
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
REQUIREMENTS = os.path.join(ROOT, "tests", "object-store", "requirements.txt")
PACKAGES = {"postgres": "postgresql", "haproxy": "haproxy"}
# What only some scripts need.
NETWORK_PACKAGES = {"ip": "iproute2", "nft": "nftables"}
CLOCK_PACKAGES = {"faketime": "faketime"}
START_WITHIN = 90
BUCKET = "toolyard"
CANNOT_RUN = 77


class CannotRun(Exception):
    """Something that is not ours is missing."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def postgres_program(name):
    """A program of PostgreSQL: Debian keeps the servers' programs apart, by version."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/" + name), key=lambda path: int(path.split("/")[4]))
    return found[-1] if found else shutil.which(name)


def find(name):
    return postgres_program(name) if name == "postgres" else shutil.which(name)


def need_programs(packages=None):
    """Installs PostgreSQL and haproxy, or other packages, where that is possible, or says what is missing."""
    packages = packages or PACKAGES
    missing = [package for program, package in packages.items() if not find(program)]
    if not missing:
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing " + " ".join(missing), file=sys.stderr)
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends"] + missing
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # Debian would start a server of its own.
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
        if subprocess.run(install, env=environment, **quiet).returncode:
            subprocess.run(["apt-get", "update", "-q"], **quiet)
            subprocess.run(install, env=environment, **quiet)
    missing = [package for program, package in packages.items() if not find(program)]
    if missing:
        raise CannotRun("missing: install the packages " + " ".join(missing))


def need_moto():
    """The environment in which moto is installed, as in tests/object-store."""
    place = os.environ.get("TOOLYARD_MOTO_VENV") or os.path.expanduser("~/.cache/toolyard/moto")
    stamp = os.path.join(place, "installed.txt")
    with open(REQUIREMENTS) as file:
        wanted = file.read()
    if not os.path.exists(stamp) or open(stamp).read() != wanted:
        print("installing moto (once)", file=sys.stderr)
        shutil.rmtree(place, ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", place]).returncode == 0
        pip = [os.path.join(place, "bin", "pip"), "install", "-q", "--require-hashes", "-r", REQUIREMENTS]
        if not made or subprocess.run(pip).returncode:
            raise CannotRun("moto cannot be installed from PyPI")
        shutil.copyfile(REQUIREMENTS, stamp)
    return place


def wait_for(what, holds, within=START_WITHIN):
    give_up = time.monotonic() + within
    while time.monotonic() < give_up:
        if holds():
            return
        time.sleep(0.05)
    raise RuntimeError("%s did not happen within %d s" % (what, within))


class Part:
    """A process that was started here. It is ended by its id, with its group."""

    def __init__(self, name, folder, host="127.0.0.1"):
        self.name, self.process, self.log = name, None, os.path.join(folder, name + ".log")
        self.host = host

    def launch(self, command, **options):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, **options
            )

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        if self.is_running():
            os.killpg(self.process.pid, number)

    def end(self, number=signal.SIGTERM, within=20):
        self.send(number)
        if self.process is not None:
            try:
                self.process.wait(within)
            except subprocess.TimeoutExpired:
                self.send(signal.SIGKILL)
                self.process.wait()

    def tail(self):
        with open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-15:])


class Postgres(Part):
    """One server; a standby is copied from its primary and follows it."""

    def __init__(self, name, folder, host="127.0.0.1", disk_mb=None):
        super().__init__(name, folder, host)
        self.port, self.disk_mb = free_port(), disk_mb
        # A server with a disk of its own has its data below the mount point, which stays when the data is replaced.
        self.disk = os.path.join(folder, name)
        self.data = os.path.join(self.disk, "data") if disk_mb else self.disk

    def as_server(self, command):
        """PostgreSQL does not run as root."""
        if os.geteuid() != 0:
            return command
        pwd.getpwnam("postgres")
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] + command

    def run(self, command):
        environment = dict(os.environ, PGCONNECT_TIMEOUT="3", LC_ALL="C.UTF-8")
        return subprocess.run(self.as_server(command), capture_output=True, text=True, env=environment)

    def check(self, command):
        done = self.run(command)
        if done.returncode:
            raise RuntimeError("%s: %s" % (" ".join(command[:2]), done.stderr.strip()))

    def sql(self, text, database="postgres"):
        """The answer of a statement, or None if the server does not answer."""
        command = [postgres_program("psql") or "psql", "-X", "-A", "-t", "-q", "-h", self.host, "-p",
                   str(self.port), "-U", "toolyard", "-d", database, "-c", text]
        done = self.run(command)
        return done.stdout.strip() if done.returncode == 0 else None

    def settings(self, standby_name):
        # On one machine the two servers answer within milliseconds. What an operator changes is in the guide.
        return {"port": self.port, "listen_addresses": self.host, "unix_socket_directories": "",
                "max_wal_size": "256MB", "min_wal_size": "64MB",
                "cluster_name": self.name, "synchronous_commit": "on",
                "synchronous_standby_names": standby_name, "max_connections": 300, "wal_level": "replica",
                "hot_standby": "on", "max_wal_senders": 8, "wal_keep_size": "256MB", "shared_buffers": "64MB"}

    def write_settings(self, standby_name=""):
        path = os.path.join(self.data, "postgresql.auto.conf")
        with open(path) as file:
            kept = [line for line in file if line.startswith("primary_conninfo")]
        with open(path, "w") as file:
            file.writelines(kept)
            for name, value in self.settings(standby_name).items():
                file.write("%s = '%s'\n" % (name, value))

    def create(self):
        self.make_folder()
        self.check([postgres_program("initdb"), "-D", self.data, "-U", "toolyard", "-A", "trust", "-E", "UTF8",
                    "--locale=C.UTF-8", "--no-sync"])
        if self.host != "127.0.0.1":
            with open(os.path.join(self.data, "pg_hba.conf"), "a") as file:
                file.write("host all,replication all samenet trust\n")
        self.write_settings()

    def make_folder(self):
        """An empty folder for the data, on a disk of its own if it has one."""
        shutil.rmtree(self.data, ignore_errors=True)
        if self.disk_mb and not os.path.ismount(self.disk):
            os.makedirs(self.disk, exist_ok=True)
            mount = ["mount", "-t", "tmpfs", "-o", "size=%dm,mode=755" % self.disk_mb, "tmpfs", self.disk]
            if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
                raise CannotRun("a disk of its own for the database (tmpfs) cannot be mounted")
        os.makedirs(self.data, mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self.data, "postgres", "postgres")

    def unmount(self):
        if self.disk_mb and os.path.ismount(self.disk):
            subprocess.run(["umount", self.disk], stderr=subprocess.DEVNULL)

    def copy_from(self, primary):
        self.make_folder()
        self.check([postgres_program("pg_basebackup"), "-D", self.data, "-h", primary.host, "-p", str(primary.port),
                    "-U", "toolyard", "-R", "-X", "stream", "-c", "fast", "--no-sync"])
        path = os.path.join(self.data, "postgresql.auto.conf")
        self.write_settings()
        with open(path, "a") as file:
            file.write("primary_conninfo = 'host=%s port=%d user=toolyard application_name=%s'\n"
                       % (primary.host, primary.port, self.name))

    def start(self):
        self.launch(self.as_server([postgres_program("postgres"), "-D", self.data]))
        wait_for("the start of " + self.name, lambda: self.sql("select 1") == "1" or not self.is_running())
        if not self.is_running():
            raise RuntimeError("%s did not start:\n%s" % (self.name, self.tail()))

    def require_standby(self, name):
        """Commits wait for the standby from here on."""
        self.sql("alter system set synchronous_standby_names = '%s'" % name)
        self.sql("select pg_reload_conf()")
        is_sync = "select count(*) from pg_stat_replication where sync_state = 'sync'"
        wait_for("synchronous replication", lambda: self.sql(is_sync) == "1")

    def promote(self):
        self.sql("alter system set synchronous_standby_names = ''")
        wait_for("the promotion of " + self.name, lambda: self.sql("select pg_promote(true, 30)") == "t")


class Moto(Part):
    def __init__(self, folder, host="127.0.0.1"):
        super().__init__("moto", folder, host)
        self.port = free_port()

    @property
    def url(self):
        return "http://%s:%d" % (self.host, self.port)

    def start(self, place):
        self.launch([os.path.join(place, "bin", "moto_server"), "-H", self.host, "-p", str(self.port)])
        wait_for("the start of moto", lambda: request("GET", self.url + "/moto-api/")[0] == 200)
        request("PUT", self.url + "/" + BUCKET)

    def environment(self):
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "cluster", "AWS_SECRET_ACCESS_KEY": "cluster"}


class Node(Part):
    """A node of Toolyard. Its home is its own; its state lies in the shared store."""

    def __init__(self, number, folder, program, token, url, environment, effects, place=None):
        # `place` is the namespace of the network in which the node runs, and its address there.
        self.namespace, host = place or (None, "127.0.0.1")
        super().__init__("node%d" % number, folder, host)
        self.home, self.port, self.program = os.path.join(folder, self.name), free_port(), program
        self.relay = Relay(self, folder) if self.namespace else None
        self.token, self.environment = token, dict(os.environ, TOOLYARD_STORE_URL=url, **environment)
        os.makedirs(self.home, mode=0o700)
        with open(os.path.join(self.home, "config.toml"), "w") as file:
            file.write(CONFIGURATION % {
                "name": self.name, "bucket": BUCKET, "host": host, "address": self.url, "port": self.port, "token": token,
                "python": sys.executable, "effects": os.path.join(HERE, "effects.py"), "file": effects,
            })

    @property
    def url(self):
        return "http://%s:%d" % (self.host, self.port)

    def inside(self, command):
        """A command as it is run in the node's namespace. `ip` replaces itself with the program."""
        return command if self.namespace is None else ["ip", "netns", "exec", self.namespace] + command

    def start(self, wait=True, **environment):
        self.launch(self.inside([self.program, "--home", self.home, "up"]), env=dict(self.environment, **environment))
        if wait:
            self.wait_ready()

    def wait_ready(self):
        wait_for("the start of " + self.name, lambda: self.is_ready() or not self.is_running())
        if not self.is_running():
            raise RuntimeError("%s did not start:\n%s" % (self.name, self.tail()))

    def is_ready(self):
        return request("GET", self.url + "/ready", within=2)[0] == 200

    def wait_tools(self):
        """The first start of a node asks its MCP servers for their tools in the background."""
        body = {"tool": "effects__append_once", "args": {"id": "ready"}}
        invoke = self.url + "/tools/invoke"
        wait_for("the tools of " + self.name, lambda: request("POST", invoke, body, self.token)[0] == 200)

    def command(self, *words, may_fail=False):
        """A command of this node; what it prints as JSON, which a command that finds something wrong may do as well."""
        command = self.inside([self.program, "--home", self.home, "--json"] + list(words))
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        if done.returncode and not (may_fail and done.stdout.startswith("{")):
            raise RuntimeError("toolyard %s: %s" % (" ".join(words), done.stderr.strip() or done.stdout.strip()))
        return json.loads(done.stdout)


CONFIGURATION = """\
[node]
name = "%(name)s"
address = "%(address)s"

[store]
bucket = "s3://%(bucket)s/blobs"

[gateway]
allowedHosts = ["%(host)s"]
port = %(port)d
token = "%(token)s"

[knowledge]
enabled = false

[policy.approval]
mode = "yolo"

[mcp.servers.effects]
command = "%(python)s"
args = ["%(effects)s", "%(file)s"]
trust = "annotations"
idleSeconds = 600

[mcp.servers.effects.sandbox]
enabled = false
"""


class Relay(Part):
    """Passes connections to a node's address in its namespace on to the node's loopback port. The nodes of a test listen on
    loopback, where clients without a paired device are let in; so every client of a test is a local one."""

    def __init__(self, node, folder):
        super().__init__("relay-" + node.name, folder, node.host)
        self.node, self.config = node, os.path.join(folder, self.name + ".cfg")

    def start(self):
        with open(self.config, "w") as file:
            file.write("global\n    maxconn 4000\ndefaults\n    mode tcp\n    timeout connect 2s\n    timeout client 1h\n"
                       "    timeout server 1h\nlisten node\n    bind %s:%d\n    server node 127.0.0.1:%d\n"
                       % (self.host, self.node.port, self.node.port))
        self.launch(self.node.inside([shutil.which("haproxy"), "-db", "-f", self.config]))


class Haproxy(Part):
    def __init__(self, folder, nodes, name="haproxy"):
        super().__init__(name, folder)
        self.port, self.nodes = free_port(), nodes
        self.config = os.path.join(folder, name + ".cfg")

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.port

    def start(self):
        servers = "".join("    server %s %s:%d check\n" % (node.name, node.host, node.port) for node in self.nodes)
        with open(os.path.join(HERE, "haproxy.cfg")) as file:
            text = file.read().replace("PORT", str(self.port)).replace("    # SERVERS\n", servers)
        with open(self.config, "w") as file:
            file.write(text)
        self.launch([shutil.which("haproxy"), "-db", "-f", self.config])
        wait_for("the start of haproxy", lambda: request("GET", self.url + "/ready", within=2)[0] == 200)


def request(method, url, body=None, token=None, within=10):
    """Status and JSON of a request; status 0 if there is no answer."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data=data, method=method)
    if data is not None:
        asked.add_header("content-type", "application/json")
    if token:
        asked.add_header("authorization", "Bearer " + token)
    try:
        with urllib.request.urlopen(asked, timeout=within) as response:
            status, text = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    except (OSError, ValueError):
        return 0, None
    try:
        return status, json.loads(text)
    except ValueError:
        return status, None
