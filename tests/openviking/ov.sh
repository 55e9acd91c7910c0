#!/usr/bin/env bash
# Uses a running Toolyard with OpenViking's own command line, `ov`, taken from OpenViking's package on PyPI (30 MB, once).
# usage: ov.sh URL TOKEN WORK-FOLDER CACHE-FOLDER
set -euo pipefail
url=$1 token=$2 work=$3 place=$4
wheel_sum=fd3ca5c4a402cf81caaca4d236b268438997efa494ebe79ae5d320d77c16b804
bin="$place/ov-0.5.2"
if [ ! -x "$bin/openviking/bin/ov" ]; then
    fresh="$(mktemp -d -p "$place")"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$fresh" openviking==0.5.2 \
        && mv "$fresh"/openviking-*.whl "$fresh/ov.whl" || { rm -rf "$fresh"; echo "openviking: cannot run: pip cannot download ov" >&2; exit 77; }
    echo "$wheel_sum  $fresh/ov.whl" | sha256sum -c --quiet || { rm -rf "$fresh"; echo "the package is another one" >&2; exit 1; }
    python3 -m zipfile -e "$fresh/ov.whl" "$fresh/all"
    rm -rf "$bin"; mkdir -p "$bin/openviking/bin"
    mv "$fresh/all/openviking.libs" "$bin/"
    mv "$fresh/all/openviking/bin/ov" "$bin/openviking/bin/ov"
    chmod +x "$bin/openviking/bin/ov"
    rm -rf "$fresh"
fi
mkdir -p "$work/ov-home" "$work/lib/sub"
printf '# Limits\n\nThe rate limit is fifty requests an hour.\n' > "$work/lib/limits.md"
printf '# Backups\n\nBackups are kept for ninety days.\n' > "$work/lib/sub/backups.md"
printf -- '---\nname: roast\ndescription: How to roast coffee\ntags: [kitchen]\n---\n\n# Roast\n\nSlowly.\n' > "$work/SKILL.md"
ov() { HOME="$work/ov-home" OV_TOKEN="$token" LD_LIBRARY_PATH="$bin/openviking.libs" timeout 60 "$bin/openviking/bin/ov" "$@" 2>&1; }
# It answers nothing before a language is chosen.
ov language en >/dev/null || { echo "openviking: cannot run: ov does not run on this machine" >&2; exit 77; }
ov config add custom --name t --url "$url" --api-key-env OV_TOKEN --activate --force >/dev/null

check() { # WHAT PATTERN COMMAND...
    local what=$1 pattern=$2 told
    shift 2
    told="$(ov "$@")" && grep -qE "$pattern" <<< "$told" || { echo "FAILED  ov $*: $told"; exit 1; }
    echo "ok      ov $what"
}
check "health" 'Healthy' health
check "add-resource of a folder" 'viking://resources/lib' add-resource "$work/lib" --wait
check "add-resource with tags" 'viking://resources/tagged' add-resource "$work/lib/limits.md" --to viking://resources/tagged --tags env=prod --wait
check "set-tags" 'team=search' set-tags viking://resources/lib --tags team=search
check "attrs" 'team=search' attrs get viking://resources/lib
check "ls" 'viking://resources/lib' ls viking://resources
check "tree" 'backups' tree viking://resources/lib
check "find" 'limits\.md' find "how many requests an hour"
check "search" 'limits\.md' search "how many requests an hour"
check "read" 'fifty requests' read viking://resources/lib/limits/limits.md
check "abstract" 'Limits|rate limit' abstract viking://resources/lib/limits
check "overview" 'Directories' overview viking://resources/lib
check "grep" 'fifty requests' grep fifty --uri viking://resources
check "glob" 'backups\.md' glob '**/*.md'
check "write" 'written_bytes' write viking://resources/lib/limits/limits.md --content '# Limits: sixty'
check "mkdir" 'created' mkdir viking://resources/box
check "cp" 'completed|copy' cp -r viking://resources/lib viking://resources/box/copy
check "mv" 'Moved' mv viking://resources/box viking://resources/chest
check "stat" 'isDir' stat viking://resources/chest/copy
check "get" '.' get viking://resources/chest/copy/limits/limits.md "$work/got.md"
grep -q sixty "$work/got.md" || { echo "FAILED  ov get wrote something else"; exit 1; }
check "rm" 'Removed' rm viking://resources/chest -r
check "add-skill" 'roast' add-skill "$work/SKILL.md" -y
check "skills list" 'roast' skills list
check "skills show" 'roast coffee' skills show roast
check "add-memory" '.' add-memory "I prefer light roast over dark roast."
check "session new" 'session_id' session new
check "session list" 'session_id' session list
check "task list" 'task_id' task list
for _ in $(seq 50); do ov find "light roast or dark roast" --context-type memory | grep -q 'light roast' && break; sleep 0.2; done
check "find of a memory" 'light roast' find "light roast or dark roast" --context-type memory
