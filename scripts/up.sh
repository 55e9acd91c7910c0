#!/usr/bin/env bash
# Runs Toolyard and builds beside it meanwhile the program that parses documents and the index program.
# Usage: up.sh FOLDER_OF_PROGRAMS HOME PORT
#
# Notes are indexed in Toolyard's memory as soon as it runs, and again by the index program as soon as that is there.
set -euo pipefail
programs=$1 home=$2 port=$3
toolyard=$programs/toolyard
cargo=${CARGO:-cargo}
# How often the progress of the build is told, in seconds.
tell_every=30
# How long a build may keep Toolyard from starting, in seconds.
build_within=10

say() { echo "up: $*" >&2; }

# Asks over HTTP: a command would open the home itself while no server runs, and keep the server from it.
is_ready() {
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return
  printf 'GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n' "$port" >&3
  local status
  IFS= read -r -t 5 status <&3 || return
  exec 3>&-
  [[ $status == *" 200 "* ]]
}

wait_until_it_answers() {
  for _ in $(seq 600); do
    [ -S "$home/state/toolyard.sock" ] && (is_ready) 2>/dev/null && return
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

build_parser() {
  local log
  log=$(mktemp)
  if ! nice -n 10 "$cargo" build --profile quick --locked -p toolyard-parse --bin toolyard-parse >>"$log" 2>&1; then
    say "toolyard-parse could not be built, so documents other than text cannot be imported; the end of its output:"
    tail -20 "$log" >&2
  fi
  rm -f "$log"
}

build_index_program() {
  if wait_until_it_answers; then index_notes; else say "toolyard does not answer on port $port; its notes are indexed later"; fi
  build_parser
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

build() { "$cargo" build -q --profile quick --locked -p "$1" --bin "$2"; }
export -f build
export cargo

# Programs of other sources than toolyard would be refused. They are built anew: at once where that takes a moment, else in
# the background, while toolyard answers as it does without them.
if [ -x "$programs/toolyard-index" ] && [ -x "$programs/toolyard-parse" ] &&
  timeout "$build_within" bash -c 'build toolyard-parse toolyard-parse && build toolyard-lance toolyard-index'; then
  (wait_until_it_answers && index_notes) &
else
  rm -f "$programs/toolyard-index"
  build_index_program &
fi
background=$!
trap 'kill "$background" 2>/dev/null || true' EXIT
"$toolyard" --home "$home" up --port "$port"
