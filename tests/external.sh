#!/usr/bin/env bash
# Runs one of the suites that need other people's programs (npm, PyPI) and reports how many of its checks passed.
# usage: external.sh SUITE [ARGUMENT...]     runs tests/SUITE/run.sh ARGUMENT...
#
# A suite prints a line "ok  WHAT" or "FAILED  WHAT" for each check. It exits with 77 when something it needs cannot be
# downloaded or does not run on this machine. That is a failure, unless ALLOW_SKIP=1 is set.
set -uo pipefail
readonly CANNOT_RUN=77
suite="${1:?which suite}"
shift
script="$(cd "$(dirname "$0")" && pwd)/$suite/run.sh"
[ -x "$script" ] || { echo "there is no suite $suite: $script is missing" >&2; exit 1; }

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
"$script" "$@" 2>&1 | tee "$log"
status=$?

if [ "$status" -eq "$CANNOT_RUN" ]; then
    if [ "${ALLOW_SKIP:-}" = 1 ]; then
        echo "$suite: skipped, because ALLOW_SKIP=1 is set"
        exit 0
    fi
    echo "$suite: 0 passed, 1 failed"
    echo "hint: set ALLOW_SKIP=1 to run the other suites without this one" >&2
    exit 1
fi
# A suite of cargo tests prints cargo's own totals.
grep -q '^test result: ' "$log" && exit "$status"

passed=$(grep -cE '^ok ' "$log")
failed=$(grep -cE '^FAIL' "$log")
# A script that stops at an error, or that checks nothing, has failed even if it printed no line that says so.
if [ "$failed" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$passed" -eq 0 ]; }; then failed=1; fi
echo "$suite: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
