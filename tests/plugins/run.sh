#!/bin/bash
# Installs a plugin that was written for OpenClaw by somebody else, unmodified, and uses its tools. npm fetches it and its
# dependencies as package-lock.json pins them; Toolyard installs the resulting folder (the scenario tests try how Toolyard
# itself fetches from npm, with a registry on loopback). The service the plugin talks to is service.mjs on loopback.
# Usage: run.sh <toolyard>. Exits with 77 where npm or the plugin cannot be had (see ../external.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toolyard=$(realpath "$1")
cache="${TOOLYARD_NPM_CACHE:-$HOME/.cache/toolyard/npm}/plugins"

cannot_run() { echo "plugins: cannot run: $1" >&2; exit 77; }
command -v npm >/dev/null || cannot_run "npm is missing (install Node.js)"
command -v node >/dev/null || cannot_run "node is missing"
if ! cmp -s "$here/package-lock.json" "$cache/installed.json"; then
  mkdir -p "$cache"
  cp "$here/package.json" "$here/package-lock.json" "$cache/"
  (cd "$cache" && npm ci --ignore-scripts --omit=peer --legacy-peer-deps --no-audit --no-fund --loglevel=error >install.log 2>&1) \
    || cannot_run "npm cannot install the plugin (see $cache/install.log)"
  cp "$here/package-lock.json" "$cache/installed.json"
fi
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$work"' EXIT
mkdir -p "$work/home" "$work/vault"
node "$here/service.mjs" > "$work/service" 2> "$work/requests" &
pid=$!
for _ in $(seq 100); do [ -s "$work/service" ] && break; sleep 0.1; done
ty() { "$toolyard" --home "$work/home" --vault "$work/vault" "$@"; }
cp -r "$cache/node_modules/@mem0/openclaw-mem0" "$work/plugin"
mkdir -p "$work/plugin/node_modules"
cp -r "$cache/node_modules/." "$work/plugin/node_modules/"
rm -rf "$work/plugin/node_modules/@mem0/openclaw-mem0"
ty plugins install "$work/plugin" --grant network --json > "$work/installed.json" 2> "$work/log" \
  || { cat "$work/installed.json" "$work/log"; exit 1; }
cat > "$work/home/config.toml" <<TOML
[plugins.entries.openclaw-mem0.config]
mode = "platform"
apiKey = "m0-not-a-real-key"
userId = "tester"
baseUrl = "$(cat "$work/service")"
TOML
ty plugins update openclaw-mem0 --json > "$work/plugin.json" 2>> "$work/log"
expect() {
  if grep -q "$2" "$1"; then echo "ok      $3"; else echo "FAILED  $3"; cat "$1" "$work/log"; exit 1; fi
}
expect "$work/plugin.json" '"tools":8' "an unmodified plugin of eight tools is loaded"
ty call memory_add --args '{"text":"Ada likes tea"}' --json > "$work/add.json" 2>> "$work/log" || true
expect "$work/add.json" '"ok":true' "its tool writes"
ty call memory_search --args '{"query":"tea"}' --json > "$work/search.json" 2>> "$work/log" || true
expect "$work/search.json" 'Ada likes tea' "its tool reads what was written"
expect "$work/requests" 'Ada likes tea' "the plugin itself spoke to the service"
