#!/bin/bash
# A real Claude Code, joined to a running Toolyard over MCP, over the bridge and by hooks, with a scripted Messages API on
# loopback.
# Usage: run.sh <toolyard>. Installs npm packages once, outside the checkout. Exits with 77 where they cannot be had
# (see ../external.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toolyard=$(realpath "$1")
. "$here/../agents/install.sh"
install_agent "$here" "Claude Code (540 MB)" claude
status=0
"$node" "$here/drive.mjs" "$toolyard" "$agent" || status=1
"$node" "$here/hooks.mjs" "$toolyard" "$agent" || status=1
exit "$status"
