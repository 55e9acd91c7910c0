#!/bin/bash
# A real Claude Code, joined to a running Toolyard over MCP, over the bridge and by hooks, with a scripted Messages API on
# loopback.
# Usage: run.sh <toolyard>. Installs npm packages once, outside the checkout. Exits with 77 where they cannot be had
# (see ../external.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toolyard=$(realpath "$1")
cache="${TOOLYARD_NPM_CACHE:-$HOME/.cache/toolyard/npm}/claude-code"

cannot_run() { echo "claude-code: cannot run: $1" >&2; exit 77; }
if ! cmp -s "$here/package-lock.json" "$cache/installed.json"; then
  command -v npm >/dev/null || cannot_run "npm is missing (install Node.js)"
  mkdir -p "$cache"
  cp "$here/package.json" "$here/package-lock.json" "$cache/"
  echo "installing Claude Code and Node.js (540 MB, once)" >&2
  (cd "$cache" && npm ci --no-audit --no-fund --loglevel=error >install.log 2>&1) \
    || cannot_run "npm cannot install Claude Code (see $cache/install.log)"
  cp "$here/package-lock.json" "$cache/installed.json"
fi
node="$cache/node_modules/.bin/node"
claude="$cache/node_modules/.bin/claude"
"$node" --version >/dev/null 2>&1 || cannot_run "Node 24 from npm does not run here"
"$claude" --version >/dev/null 2>&1 || cannot_run "this version of Claude Code does not run here"
status=0
"$node" "$here/drive.mjs" "$toolyard" "$claude" || status=1
"$node" "$here/hooks.mjs" "$toolyard" "$claude" || status=1
exit "$status"
