#!/bin/bash
# A real Codex with Toolyard's hooks and server, with a scripted Responses API on loopback.
# Usage: run.sh <toolyard>. Installs npm packages once, outside the checkout. Exits with 77 where they cannot be had
# (see ../external.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toolyard=$(realpath "$1")
. "$here/../agents/install.sh"
install_agent "$here" "Codex (600 MB)" codex
"$node" "$here/drive.mjs" "$toolyard" "$agent"
