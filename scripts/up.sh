#!/usr/bin/env bash
# Runs Toolyard and builds the index program beside it meanwhile. Usage: up.sh FOLDER_OF_PROGRAMS HOME PORT
#
# Notes are indexed in Toolyard's memory as soon as it runs, and again by the index program as soon as that is there.
set -euo pipefail
programs=$1 home=$2 port=$3
toolyard=$programs/toolyard
cargo=${CARGO:-cargo}
# How often the progress of the build is told, in seconds.
tell_every=30

say() { echo "up: $*" >&2; }

wait_until_it_answers() {
  for _ in $(seq 600); do
    "$toolyard" --home "$home" vault status --json >/dev/null 2>&1 && return
    sleep 0.2
  done
  return 1
}

index_notes() {
  "$toolyard" --home "$home" vault index --detach --quiet >/dev/null 2>&1 || true
}

tell_progress() {
  local log=$1 total
  total=$("$cargo" tree -p toolyard-lance -e normal,build --prefix none 2>/dev/null | sed 's/ (.*//' | sort -u | wc -l)
  while sleep "$tell_every"; do
    say "building toolyard-index: $(grep -c 'Compiling' "$log" || true) of about $total crates"
  done
}

build_index_program() {
  wait_until_it_answers || return
  index_notes
  local log started=$SECONDS
  log=$(mktemp)
  say "building toolyard-index in the background; until it is there, notes are searched in memory (at most 5,000 chunks)"
  tell_progress "$log" &
  local teller=$!
  if nice -n 10 make -s index-tools >>"$log" 2>&1 &&
    nice -n 10 "$cargo" build --profile quick --locked -p toolyard-lance --bin toolyard-index >>"$log" 2>&1; then
    say "toolyard-index is built ($((SECONDS - started)) s); the notes are indexed"
    index_notes
  else
    say "toolyard-index could not be built; see the end of its output:"
    tail -20 "$log" >&2
  fi
  kill "$teller" 2>/dev/null || true
  rm -f "$log"
}

if [ -x "$programs/toolyard-index" ]; then
  # It may be of other sources than toolyard, which would refuse it.
  "$cargo" build -q --profile quick --locked -p toolyard-lance --bin toolyard-index || true
  (wait_until_it_answers && index_notes) &
else
  build_index_program &
fi
background=$!
trap 'kill "$background" 2>/dev/null || true' EXIT
"$toolyard" --home "$home" up --port "$port"
