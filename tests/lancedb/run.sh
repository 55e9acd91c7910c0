#!/bin/bash
# Opens the index that Toolyard made with LanceDB itself (from PyPI), asks it, and has LanceDB put it in order; Toolyard must
# go on with what LanceDB left. Usage: run.sh <toolyard>. Exits with 77 where LanceDB cannot be had (see
# ../external.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toolyard=$(realpath "$1")
venv="${TOOLYARD_LANCEDB_VENV:-$HOME/.cache/toolyard/lancedb}"

cannot_run() { echo "lancedb: cannot run: $1" >&2; exit 77; }
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  echo "installing LanceDB (120 MB, once)"
  rm -rf "$venv"
  python3 -m venv "$venv" || cannot_run "python3 cannot make a virtual environment"
  "$venv/bin/pip" install -q --require-hashes -r "$here/requirements.txt" || cannot_run "pip cannot install LanceDB"
  cp "$here/requirements.txt" "$venv/installed.txt"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$here/../../examples/vault" "$work/vault"
ty() { "$toolyard" --home "$work/home" --vault "$work/vault" "$@" 2>> "$work/log" || { cat "$work/log" >&2; exit 1; }; }
question="how do we water the garden"

ty vault index --json > "$work/indexed.json"
ty vault search "$question" --json > "$work/before.json"
chunks=$(find "$work/home" -type d -name obsidian_chunks.lance)
"$venv/bin/python" "$here/check.py" "$(dirname "$chunks")" "$work/before.json"

ty vault search "$question" --json > "$work/after.json"
printf '# Added later\n\nThe zebrafinch sings at dawn.\n' > "$work/vault/added-later.md"
ty vault index --json > "$work/again.json"
ty vault search zebrafinch --json > "$work/found.json"
"$venv/bin/python" - "$work" <<'PY'
import json, sys
def results(name):
    return [(r["source_file"], r["chunk_index"]) for r in json.load(open(f"{sys.argv[1]}/{name}.json"))["data"]["results"]]
assert results("after") == results("before"), "LanceDB's upkeep changed what Toolyard finds"
print("ok      what LanceDB put in order answers as before")
assert results("found")[0][0] == "added-later.md", results("found")
print("ok      Toolyard goes on with the tables that LanceDB wrote to")
PY
