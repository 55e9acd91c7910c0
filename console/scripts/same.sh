#!/usr/bin/env bash
# Builds the console into another folder and compares it with console/dist, which is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh="$(mktemp -d)"
trap 'rm -rf "$fresh"' EXIT
npx --no-install vite build --outDir "$fresh/dist" --emptyOutDir --logLevel error
rm -f "$fresh/dist/manifest.json"
diff -rq dist "$fresh/dist" || { echo "console/dist is not what the sources give: run make console and commit it" >&2; exit 1; }
echo "console/dist is what the sources give"
