#!/bin/bash
# Makes receipts with Toolyard and checks them with scitt-cose, another implementation of COSE receipts (RFC 9942).
# Usage: run.sh <toolyard>. Exits with 77 where PyPI's package cannot be had (see ../external.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toolyard=$(realpath "$1")
cache="${TOOLYARD_PYPI_CACHE:-$HOME/.cache/toolyard/pypi}/receipts"

cannot_run() { echo "receipts: cannot run: $1" >&2; exit 77; }
command -v python3 >/dev/null || cannot_run "python3 is missing"
if ! cmp -s "$here/requirements.txt" "$cache/installed.txt"; then
  python3 -m venv "$cache" >/dev/null 2>&1 || cannot_run "python3 cannot make an environment (install python3-venv)"
  "$cache/bin/pip" install --quiet --require-hashes -r "$here/requirements.txt" >"$cache/install.log" 2>&1 \
    || cannot_run "pip cannot install scitt-cose (see $cache/install.log)"
  cp "$here/requirements.txt" "$cache/installed.txt"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/vault"
ty() { "$toolyard" --home "$work/home" --vault "$work/vault" "$@"; }
for n in 1 2 3 4 5 6 7; do
  ty call vault.createFile --args "{\"path\":\"n$n.md\",\"content\":\"note $n\"}" --json > "$work/call$n.json"
done
run=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["runId"])' "$work/call3.json")
call=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["callId"])' "$work/call5.json")
ty runs prove "$run" --out "$work/run.json" >/dev/null
ty runs prove "$call" --out "$work/call.json" >/dev/null
ty runs verify --receipt "$work/run.json" >/dev/null && echo "ok  toolyard verifies the receipt of a run"
ty runs verify --receipt "$work/call.json" >/dev/null && echo "ok  toolyard verifies the receipt of a call"
"$cache/bin/python" "$here/check.py" "$work/run.json" "$work/call.json"
