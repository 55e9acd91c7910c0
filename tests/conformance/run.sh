#!/bin/bash
# The official MCP conformance suite against a running Toolyard, both directions, and MCP Inspector's command line as a
# second client. Usage: run.sh <toolyard>. Installs npm packages once, outside the checkout. Exits with 77
# where they cannot be had (see ../external.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toolyard=$(realpath "$1")
cache="${TOOLYARD_NPM_CACHE:-$HOME/.cache/toolyard/npm}/mcp"

cannot_run() { echo "conformance: cannot run: $1" >&2; exit 77; }
command -v npm >/dev/null || cannot_run "npm is missing (install Node.js)"
if ! cmp -s "$here/package-lock.json" "$cache/installed.json"; then
  mkdir -p "$cache"
  cp "$here/package.json" "$here/package-lock.json" "$cache/"
  echo "installing the conformance suite and MCP Inspector (about 330 MB, once)"
  (cd "$cache" && npm ci --no-audit --no-fund --silent --ignore-scripts=false >install.log 2>&1) \
    || cannot_run "npm cannot install the packages of package-lock.json (see $cache/install.log)"
  cp "$here/package-lock.json" "$cache/installed.json"
fi
export PATH="$cache/node_modules/.bin:$PATH"
node --version >/dev/null 2>&1 || cannot_run "Node 24 from npm does not run here"

work=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
token=conformance-token-0123456789
mkdir -p "$work/home" "$work/vault"
echo "# A note" > "$work/vault/note.md"
cat > "$work/home/config.toml" <<TOML
[mcp]
exposure = "direct"
[mcp.servers.fixtures]
command = "$cache/node_modules/.bin/node"
args = ["$here/fixtures.mjs"]
prefix = ""
trust = "annotations"
protocol = "2026-07-28"
idleSeconds = 0
TOML
"$toolyard" --home "$work/home" --vault "$work/vault" up --port 0 --token "$token" --json > "$work/up.json" 2> "$work/up.log" &
pids+=($!)
for _ in $(seq 300); do [ -s "$work/up.json" ] && break; sleep 0.1; done
url=$(node -e 'console.log(JSON.parse(require("fs").readFileSync(process.argv[1],"utf8").split("\n")[0]).url)' "$work/up.json")
node "$here/proxy.mjs" "$url" "$token" > "$work/proxy" &
pids+=($!)
for _ in $(seq 100); do [ -s "$work/proxy" ] && break; sleep 0.1; done
proxy=$(cat "$work/proxy")
# The fixtures are there when their first tool is.
for _ in $(seq 300); do
  curl -sf -H "Authorization: Bearer $token" -H 'content-type: application/json' -d '{"tool":"test_simple_text"}' "$url/tools/invoke" >/dev/null && break
  sleep 0.1
done

failed=0
check() {
  local name=$1; shift
  if "$@" > "$work/$name.log" 2>&1; then
    echo "ok      $name: $(sed -nE 's/^Total: ([0-9]+) passed, ([0-9]+) failed.*/\1 checks pass, \2 are in expected-failures.yaml/p' "$work/$name.log" | tail -1)"
  else
    echo "FAILED  $name"; tail -60 "$work/$name.log"; failed=1
  fi
}
for revision in 2025-11-25 2026-07-28; do
  check "server-$revision" conformance server --url "$proxy/mcp" --requirements $revision --expected-failures "$here/expected-failures.yaml" -o "$work/results"
  check "client-$revision" conformance client --command "node $here/client.mjs $toolyard" --requirements $revision --timeout 90000 --expected-failures "$here/expected-failures.yaml" -o "$work/results"
done

inspect() { mcp-inspector --cli "$toolyard" --home "$work/inspector" --vault "$work/vault" mcp "$@"; }
check inspector-list inspect --method tools/list
check inspector-call inspect --method tools/call --tool-name vault_readFile --tool-arg path=note.md
grep -q "A note" "$work/inspector-call.log" || { echo "FAILED  inspector-call: the note is not in the answer"; cat "$work/inspector-call.log"; failed=1; }
exit $failed
