#!/usr/bin/env bash
# Drives the web console of a Toolyard of its own with Chromium.
# usage: run.sh [PATH-OF-TOOLYARD] [flows|shots|bench]...   (default: flows)
# Exits with 77 without npm or a browser, or where npm cannot install the packages (see ../external.sh).
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
toolyard="${1:-${CARGO_TARGET_DIR:-$HOME/.cache/toolyard/target}/debug/toolyard}"
[ -x "$toolyard" ] || { echo "there is no $toolyard: build it first (make build), or name another" >&2; exit 1; }
toolyard="$(realpath "$toolyard")"
shift || true

cannot_run() { echo "console: cannot run: $1" >&2; exit 77; }

command -v node >/dev/null && command -v npm >/dev/null || cannot_run "node or npm is missing (install Node.js 20 or newer)"
chromium="${CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}"
if [ -z "$chromium" ]; then
    echo "installing Chromium from Debian's packages (119 MB, once)" >&2
    { apt-get install -y -q chromium || { apt-get update -q && apt-get install -y -q chromium; }; } >/dev/null 2>&1 \
        || cannot_run "Chromium is missing and apt-get cannot install it (install chromium, or set CHROMIUM to its path)"
    chromium="$(command -v chromium)"
fi

# The packages lie outside the checkout, so that a clean checkout stays clean, and are installed once a version.
place="${TOOLYARD_CONSOLE_TESTS_DIR:-$HOME/.cache/toolyard/npm/console}"
mkdir -p "$place"
if ! cmp -s "$here/package-lock.json" "$place/installed.json" || [ ! -d "$place/node_modules" ]; then
    cp "$here/package.json" "$here/package-lock.json" "$place/"
    (cd "$place" && npm ci --no-audit --no-fund --loglevel=error) \
        || cannot_run "npm could not install the packages (is its registry reachable?)"
    cp "$here/package-lock.json" "$place/installed.json"
fi
rm -rf "$place/driver"
cp -r "$here" "$place/driver"
root="$(cd "$here/../.." && pwd)"
export TOOLYARD="$toolyard" CHROMIUM="$chromium" CHECKOUT="$root"
cd "$place/driver"
for what in "${@:-flows}"; do
    node "$what.mjs"
done
