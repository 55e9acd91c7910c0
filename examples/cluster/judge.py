"""What became of the work after chaos: what was lost and repeated, and why each paused run is paused."""

import collections
import datetime
import time

from client import Gateway, Refused

STEPS = 4
# Within this time after the last fault every run has ended or is paused.
SETTLE_WITHIN = 240
# A call is cut off by a fault that hit its node at most this long after the call was recorded: a step takes a fraction of a
# second, and a node that is cut off dispatches nothing after 2 s.
CUT_OFF_WITHIN = 5
# Faults that hit whichever node, because all use the database.
OF_THE_DATABASE = ("failover", "full")


def open_gateway(cluster):
    node = cluster.nodes[0]
    return Gateway(node.port, cluster.token, 60, node.host)


def every_run(cluster):
    """Every plan, by its goal."""
    connection, before, found = open_gateway(cluster), None, {}
    try:
        while True:
            params = {"kind": "plan", "limit": 500}
            if before:
                params["before"] = before
            page = connection.call("runs.list", params)
            for run in page["runs"]:
                found[run["title"]] = run
            before = page.get("next")
            if not before or not page["runs"]:
                return found
    finally:
        connection.close()


def settle(cluster):
    """Waits until no run is pending or running."""
    give_up, still = time.monotonic() + SETTLE_WITHIN, []
    while True:
        try:
            found = every_run(cluster)
            still = [run["runId"] for run in found.values() if run["status"] in ("pending", "running")]
            if not still:
                return found
        except (OSError, Refused) as error:
            still = [str(error)]
        if time.monotonic() > give_up:
            raise RuntimeError("runs are still open after %d s: %s" % (SETTLE_WITHIN, still[:5]))
        time.sleep(0.5)


class Effects:
    """The effects, counted, and which node had each of them and when."""

    def __init__(self, path):
        with open(path) as file:
            self.count = collections.Counter(line.strip() for line in file)
        self.by = collections.defaultdict(list)
        with open(path + ".log") as file:
            for line in file:
                at, node, effect = line.split(" ", 2)
                self.by[effect.strip()].append((float(at), node))

    def of_node(self, node, since, until):
        """Effects that a node had in a span of time."""
        return [effect for effect, all_of_it in self.by.items()
                for at, who in all_of_it if who == node and since <= at <= until]


def timestamp(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def explain(cluster, faults, effects, name, run, connection):
    """Why a run is paused: which call, of which node, was cut off by which fault; None in `fault` if no fault explains it."""
    page = connection.call("runs.calls", {"runId": run["runId"]})
    doubtful = [call for call in page["calls"] if not call.get("status")]
    pause = {"run": run["runId"], "plan": name, "calls": []}
    is_explained = bool(doubtful)
    for call in doubtful:
        lines = faults.sql("select extract(epoch from at), host from public.chaos_audit where run = '%s' and seq >= %d "
                           "order by seq limit 1" % (run["runId"], call["seq"]))
        at, host = lines[0].split("|") if lines else ("0", "")
        at = float(at)
        node = next((node.name for node in cluster.nodes if node.host == host), host)
        effect = effects.by.get("%s/%s" % (name, call["stepId"]), [])
        hits = [fault for fault in faults.done
                if (fault.node == node or fault.kind in OF_THE_DATABASE)
                and fault.began - CUT_OFF_WITHIN <= at <= fault.ended]
        fault = min(hits, key=lambda fault: abs(fault.began - at), default=None)
        pause["calls"].append({
            "step": call["stepId"], "tool": call["tool"], "node": node, "at": round(at, 3),
            "effect": "by %s %.2f s later" % (effect[0][1], effect[0][0] - at) if effect else "none",
            "fault": fault.describe() if fault else None,
            "faultAfter": round(fault.began - at, 2) if fault else None,
        })
        # A tool that may be repeated never pauses a run.
        is_explained &= fault is not None and call["tool"] == "effects__append"
    pause["isExplained"] = is_explained
    return pause


def judge(cluster, load, faults, found):
    """What became of the work: counts, notes about what is wrong, and every pause."""
    effects = Effects(cluster.effects)
    counts, notes, pauses = collections.Counter(), [], []
    repeated = [name for name, count in effects.count.items() if count > 1 and name != "ready"]
    counts["repeated"] = sum(effects.count[name] - 1 for name in repeated)
    notes += ["%s happened %d times: %s" % (name, effects.count[name], effects.by[name]) for name in repeated]
    connection = open_gateway(cluster)
    for name, run_id in load.acknowledged.items():
        run = found.get(name)
        if run is None:
            counts["lost"] += 1
            notes.append("%s (%s) was acknowledged and is not there" % (name, run_id))
            continue
        counts[run["status"]] += 1
        if run["status"] == "finished":
            missing = sum(1 for step in range(STEPS) if not effects.count["%s/s%d" % (name, step)])
            counts["lost"] += missing
            if missing:
                notes.append("%s (%s) finished without %d of its effects" % (name, run_id, missing))
        elif run["status"] == "paused":
            pauses.append(explain(cluster, faults, effects, name, run, connection))
        elif run["status"] != "cancelled":
            notes.append("%s (%s): %s" % (name, run_id, run["status"]))
    counts["unanswered"] = len(load.given_up)
    for name in load.calls_done:
        if not effects.count[name]:
            counts["lost"] += 1
            notes.append("%s was acknowledged and had no effect" % name)
    connection.close()
    for zombie in faults.zombies:
        zombie["effects"] = len(effects.of_node(zombie["node"], zombie["continued"], zombie["ended"]))
    return counts, effects, notes, pauses
