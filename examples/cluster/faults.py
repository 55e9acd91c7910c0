"""The faults of chaos.py: each breaks something, waits, and puts it right again. What was done, to which node and when, is
kept, so that every paused run can be ascribed to a fault."""

import os
import select
import signal
import subprocess
import time

from parts import CLOCK_PACKAGES, CannotRun, need_programs, postgres_program, wait_for

# How long a fault may last before everything must be ready again.
READY_WITHIN = 120
TAKE_OVER_WITHIN = 60
LEASE_SECONDS = 3
CLOCK_OFFSETS = [-3600, -60, -5, 5, 60, 3600]
# Table and trigger that note which node wrote which records, and when.
AUDIT = """
create table if not exists public.chaos_audit (at timestamptz not null, host text, run uuid, seq int8);
create index if not exists chaos_audit_run on public.chaos_audit (run, seq);
create or replace function public.chaos_note() returns trigger language plpgsql as $$ begin
    insert into public.chaos_audit select clock_timestamp(), host(inet_client_addr()), run, max(seq) from fresh group by run;
    return null;
end $$;
create trigger chaos_note after insert on toolyard.frames referencing new table as fresh
    for each statement execute function public.chaos_note();
"""


class Session:
    """One connection to the database, by psql."""

    def __init__(self, server):
        command = [postgres_program("psql") or "psql", "-X", "-A", "-t", "-q", "-h", server.host, "-p",
                   str(server.port), "-U", "toolyard", "-d", "toolyard"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, env=dict(os.environ, PGCONNECT_TIMEOUT="3"))

    def ask(self, text, within=10):
        """The lines of the answer. OSError if the server does not answer."""
        self.process.stdin.write((text + ";\n\\echo --end\n").encode())
        self.process.stdin.flush()
        data, give_up = b"", time.monotonic() + within
        while not data.endswith(b"--end\n"):
            if not select.select([self.process.stdout], [], [], max(0, give_up - time.monotonic()))[0]:
                raise OSError("the database does not answer")
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise OSError("the database hung up")
            data += more
        return data.decode().splitlines()[:-1]

    def close(self):
        self.process.kill()
        self.process.wait()


class Fault:
    def __init__(self, number, kind):
        self.number, self.kind, self.node = number, kind, None
        self.began, self.ended, self.detail = time.time(), None, {}

    def describe(self):
        return "%s %d%s" % (self.kind, self.number, " of " + self.node if self.node else "")


class Faults:
    def __init__(self, cluster, load, rng, options):
        self.cluster, self.load, self.rng, self.options = cluster, load, rng, options
        self.done, self.session, self.restarts = [], None, []
        self.take_overs, self.promotions, self.zombies = [], [], []
        if options.skews:
            need_programs(CLOCK_PACKAGES)

    def order(self):
        todo = []
        for kind in ("kill", "failover", "stop", "partition", "split", "skew", "full"):
            todo += [kind] * getattr(self.options, kind + "s")
        self.rng.shuffle(todo)
        return todo

    def sql(self, text):
        """Asks the primary, whichever it is now, until it answers."""
        give_up = time.monotonic() + READY_WITHIN
        while True:
            try:
                if self.session is None:
                    self.session = Session(self.cluster.primary)
                return self.session.ask(text)
            except OSError:
                if self.session is not None:
                    self.session.close()
                    self.session = None
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.1)

    def watch_records(self):
        if self.cluster.primary.sql(AUDIT, "toolyard") is None:
            raise RuntimeError("the records cannot be watched")

    def inject(self, number, kind):
        fault = Fault(number, kind)
        self.done.append(fault)
        getattr(self, kind)(fault)
        wait_for("every node to be ready", self.all_ready, READY_WITHIN)
        fault.ended = time.time()
        return fault

    def all_ready(self):
        return all([self.is_ready_again(node) for node in self.cluster.nodes])

    def is_ready_again(self, node):
        """A node that was fenced ends by itself, and a service manager would start it again."""
        if not node.is_running():
            self.restarts.append((time.time(), node.name, node.process.returncode))
            node.start(wait=False)
        return node.is_ready()

    def pick(self, fault):
        node = self.rng.choice(self.cluster.nodes)
        fault.node = node.name
        return node

    # Nodes

    def kill_and_watch(self, fault, node):
        """Kills a node and waits until others hold what it held."""
        node.end(signal.SIGKILL)
        began = time.monotonic()
        held = self.sql("select run, holder_epoch from toolyard.runs where holder_node = '%s' and status < 2" % node.name)
        runs = ",".join("'%s'" % line.split("|")[0] for line in held)
        fault.detail["held"] = len(held)
        if not held:
            return None
        still = ("select count(*) from toolyard.runs where run in (%s) and holder_node = '%s' and status < 2"
                 % (runs, node.name))
        while self.sql(still) != ["0"]:
            if time.monotonic() - began > TAKE_OVER_WITHIN:
                raise RuntimeError("nobody took over the runs of " + node.name)
            time.sleep(0.05)
        return time.monotonic() - began

    def kill(self, fault):
        node = self.pick(fault)
        # Mostly the node stays away until others have its runs; sometimes it is back before its lease has run out.
        if self.rng.random() < 0.75:
            took = self.kill_and_watch(fault, node)
            if took is not None:
                fault.detail["tookOver"] = round(took, 3)
                self.take_overs.append(took)
        else:
            node.end(signal.SIGKILL)
            time.sleep(self.rng.uniform(0.1, 2))
        node.start(wait=False)

    def stop(self, fault):
        node = self.pick(fault)
        node.send(signal.SIGSTOP)
        time.sleep(self.options.stop_seconds)
        # Others fence a node when they take over its runs. One that held none keeps its lease, and may go on.
        is_fenced = self.sql("select count(*) from toolyard.nodes where node = '%s' and serves" % node.name) == ["0"]
        fault.detail["fenced"] = is_fenced
        continued = time.time()
        node.send(signal.SIGCONT)
        if not is_fenced:
            return
        # It finds out, and ends by itself.
        give_up = time.monotonic() + 30
        while node.is_running() and time.monotonic() < give_up:
            time.sleep(0.05)
        rows = self.sql("select count(*) from public.chaos_audit where host = '%s' and at >= to_timestamp(%.6f) and at <= "
                        "to_timestamp(%.6f)" % (node.host, continued, time.time()))
        self.zombies.append({"node": node.name, "continued": continued, "ended": time.time(), "rows": int(rows[0]),
                             "ends": not node.is_running()})
        fault.detail.update(self.zombies[-1])

    def skew(self, fault):
        """Starts a node again with a clock that is wrong, and after a while with the right one."""
        node = self.pick(fault)
        offset = self.rng.choice(CLOCK_OFFSETS)
        fault.detail["offset"] = offset
        node.end(signal.SIGKILL)
        library = subprocess.run(["faketime", "-f", "+0", "sh", "-c", "echo $LD_PRELOAD"], capture_output=True, text=True)
        if not library.stdout.strip():
            raise CannotRun("faketime names no library")
        node.start(wait=False, LD_PRELOAD=library.stdout.strip(), FAKETIME="%+d" % offset,
                   FAKETIME_DONT_FAKE_MONOTONIC="1")
        wait_for("a node with a wrong clock to be ready", node.is_ready, READY_WITHIN)
        time.sleep(self.rng.uniform(3, 8))
        node.end(signal.SIGKILL)
        node.start(wait=False)

    # Network

    def partition(self, fault):
        """Cuts a node off from both database servers."""
        node = self.pick(fault)
        ports = [server.port for server in (self.cluster.primary, self.cluster.standby)]
        self.cut(fault, node, [self.cluster.host], ports)

    def split(self, fault):
        """Cuts a node off from the other nodes."""
        node = self.pick(fault)
        self.cut(fault, node, [other.host for other in self.cluster.nodes if other is not node])

    def cut(self, fault, node, hosts, ports=()):
        seconds = self.rng.uniform(1, 10)
        fault.detail["seconds"] = round(seconds, 1)
        self.cluster.network.cut(node.namespace, hosts, ports)
        try:
            time.sleep(seconds)
        finally:
            self.cluster.network.heal(node.namespace)

    # Database

    def failover(self, fault):
        self.cluster.fail_over()
        promoted = time.time()
        wait_for("a plan after the promotion", lambda: self.load.last_acknowledged > promoted, READY_WITHIN)
        self.promotions.append(self.load.last_acknowledged - promoted)
        fault.detail["backAfterPromotion"] = round(self.promotions[-1], 3)
        time.sleep(self.rng.uniform(0, 2))
        self.cluster.restore_standby()

    def full(self, fault):
        """Fills the disk of the primary or of the standby, and makes room again."""
        server = self.rng.choice([self.cluster.primary, self.cluster.standby])
        fault.detail["server"] = "primary" if server is self.cluster.primary else "standby"
        filler = os.path.join(server.disk, "filler")
        give_up = time.monotonic() + self.rng.uniform(3, 12)
        try:
            while time.monotonic() < give_up:
                fill(filler)
                time.sleep(0.1)
        finally:
            os.unlink(filler)
        fault.detail["serverDied"] = not server.is_running()
        wait_for("the server to be back", lambda: self.is_back(server), READY_WITHIN)
        at = time.time()
        wait_for("a plan after the disk was full", lambda: self.load.last_acknowledged > at, READY_WITHIN)

    def is_back(self, server):
        """A service manager starts a server that ended."""
        if not server.is_running():
            try:
                server.start()
            except RuntimeError:
                return False
        return server.sql("select 1") == "1"


def fill(path):
    """Takes all room that is left where the file is."""
    with open(path, "ab", buffering=0) as file:
        size = 1 << 24
        while size >= 1 << 12:
            try:
                if file.write(b"\0" * size) < size:
                    size //= 4
            except OSError:
                size //= 4
