"""A network on one machine: a bridge, and for each node a namespace with an address of its own. Packets between a node and
others can be dropped in both directions, as a broken network would: nothing arrives, and nobody is told. Needs root."""

import os
import subprocess

from parts import NETWORK_PACKAGES, CannotRun, need_programs

TABLE = "toolyard_chaos"
# The first address of the bridge is this machine's own, nodes follow from here on.
FIRST_NODE = 10


def run(*command, check=True):
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise CannotRun("%s: %s" % (" ".join(command), done.stderr.strip()))
    return done.stdout


class Network:
    def __init__(self):
        if os.geteuid() != 0:
            raise CannotRun("namespaces of the network need root")
        need_programs(NETWORK_PACKAGES)
        taken = run("ip", "-o", "-4", "addr")
        number = next((n for n in range(1, 255) if "10.77.%d." % n not in taken), None)
        if number is None:
            raise CannotRun("no free subnet in 10.77.0.0/16")
        self.prefix, self.bridge, self.namespaces = "10.77.%d." % number, "tyb%d" % number, []
        self.number, self.host = number, self.prefix + "1"
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", self.host + "/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")

    def join(self, number):
        """A new namespace on the bridge: its name and its address."""
        namespace, near = "ty%d-%d" % (self.number, number), "tyv%d-%d" % (self.number, number)
        address = self.prefix + str(FIRST_NODE + number)
        run("ip", "netns", "add", namespace)
        self.namespaces.append(namespace)
        run("ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        run("ip", "link", "set", near, "master", self.bridge, "up")
        inside = ("ip", "netns", "exec", namespace)
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "addr", "add", address + "/24", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        return namespace, address

    def cut(self, namespace, hosts, ports=()):
        """Drops what a namespace sends to hosts and receives from them; only TCP to and from these ports, if named."""
        addresses = "{ %s }" % ", ".join(hosts)
        to, back = "", ""
        if ports:
            named = "{ %s }" % ", ".join(str(port) for port in ports)
            to, back = " tcp dport " + named, " tcp sport " + named
        rules = ("table inet %s {\n chain out { type filter hook output priority 0; ip daddr %s%s drop; }\n"
                 " chain in { type filter hook input priority 0; ip saddr %s%s drop; }\n}\n"
                 % (TABLE, addresses, to, addresses, back))
        subprocess.run(["ip", "netns", "exec", namespace, "nft", "-f", "-"], input=rules, text=True, check=True)

    def heal(self, namespace):
        run("ip", "netns", "exec", namespace, "nft", "delete", "table", "inet", TABLE)

    def stop(self):
        for namespace in self.namespaces:
            run("ip", "netns", "del", namespace, check=False)
        run("ip", "link", "del", self.bridge, check=False)
