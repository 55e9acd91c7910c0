#!/bin/bash
# A real Gemini CLI with Toolyard's hooks and server, with a scripted Gemini API on loopback.
# Usage: run.sh <toolyard>. Installs npm packages once, outside the checkout. Exits with 77 where they cannot be had
# (see ../external.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toolyard=$(realpath "$1")
. "$here/../agents/install.sh"
install_agent "$here" "Gemini CLI (290 MB)" gemini
"$node" "$here/drive.mjs" "$toolyard" "$agent"
