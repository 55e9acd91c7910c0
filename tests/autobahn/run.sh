#!/usr/bin/env bash
# Runs Autobahn's fuzzing client (RFC 6455) against the Gateway's sockets. No case may fail.
# usage: run.sh PATH-OF-WS-ECHO [CASES]     CASES is a comma-separated list such as 1.*,5.*; all of them by default
# The suite needs Python 2.7: TOOLYARD_PYTHON2 names one; otherwise python2.7 and pyenv's are tried.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
echo_server="${1:?which ws_echo program}"
cases="${2:-*}"

find_python() {
    local candidate
    for candidate in "${TOOLYARD_PYTHON2:-}" python2.7 "$HOME"/.pyenv/versions/2.7.*/bin/python2.7; do
        if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (2, 7))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Python 2.7 is missing: Autobahn's suite runs on nothing newer." >&2
    echo "Install one (pyenv install 2.7.18) or name it in TOOLYARD_PYTHON2." >&2
    exit 1
}
python="$(find_python)"

# The suite lies outside the checkout and is installed once. Its old dependencies want setuptools there first, and
# namespace packages that only a site directory knows.
place="${TOOLYARD_AUTOBAHN_DIR:-$HOME/.cache/toolyard/autobahn}"
site="$place/lib/python2.7/site-packages"
if ! cmp -s "$here/requirements.txt" "$place/installed.txt"; then
    rm -rf "$place"
    mkdir -p "$place"
    pip=("$python" -m pip install -q --disable-pip-version-check --no-warn-script-location --require-hashes --prefix "$place")
    "${pip[@]}" -r "$here/requirements-build.txt" 2>/dev/null
    PYTHONPATH="$site" "${pip[@]}" -r "$here/requirements.txt" 2>"$place/install.log" \
        || { echo "autobahntestsuite could not be installed (is the package index reachable? see $place/install.log)" >&2; exit 1; }
    cp "$here/requirements.txt" "$place/installed.txt"
fi

work="$(mktemp -d)"
mkfifo "$work/open"
"$echo_server" < "$work/open" > "$work/port" &
server=$!
exec 3> "$work/open"
trap 'exec 3>&-; wait "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq 100); do [ -s "$work/port" ] && break; sleep 0.1; done
port="$(cat "$work/port")"

python3 - "$work" "$port" "$cases" <<'PY'
import json, sys
work, port, cases = sys.argv[1:]
spec = {
    "outdir": work + "/reports",
    "servers": [{"agent": "toolyard", "url": "ws://127.0.0.1:" + port}],
    "cases": cases.split(","),
    # Compression is never agreed to here, as with the real gateway: those cases have nothing to test.
    "exclude-cases": ["12.*", "13.*"],
    "exclude-agent-cases": {},
}
json.dump(spec, open(work + "/spec.json", "w"))
PY
"$python" -c "
import site, sys
site.addsitedir('$site')
sys.argv[0] = 'wstest'
from autobahntestsuite.wstest import run
sys.exit(run())" -m fuzzingclient -s "$work/spec.json" > "$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }

python3 - "$work/reports/index.json" <<'PY'
import collections, json, sys
found = json.load(open(sys.argv[1]))["toolyard"]
counts, bad = collections.Counter(), []
for case, result in sorted(found.items(), key=lambda item: [int(n) for n in item[0].split(".")]):
    for what in ("behavior", "behaviorClose"):
        if result[what] in ("FAILED", "WRONG CODE", "UNCLEAN", "FAILED BY CLIENT"):
            bad.append(f"{case}: {what} {result[what]}")
    counts[result["behavior"]] += 1
print(f"{len(found)} cases: " + ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
print("\n".join(bad))
sys.exit(1 if bad or not found else 0)
PY
