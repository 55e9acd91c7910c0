#!/usr/bin/env bash
# Runs the tests of the index and of the bucket for large blobs on an S3-compatible server: PyPI's moto in server mode, on a free loopback port.
# Exits with 77 where moto cannot be had (see ../external.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."
cannot_run() { echo "object-store: cannot run: $1" >&2; exit 77; }
venv="${TOOLYARD_MOTO_VENV:-$HOME/.cache/toolyard/moto}"
if ! cmp -s tests/object-store/requirements.txt "$venv/installed.txt"; then
  echo "installing moto (once)"
  rm -rf "$venv"
  python3 -m venv "$venv" || cannot_run "python3 cannot make a virtual environment"
  "$venv/bin/pip" install -q --require-hashes -r tests/object-store/requirements.txt || cannot_run "pip cannot install moto"
  cp tests/object-store/requirements.txt "$venv/installed.txt"
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$venv/bin/moto_server" -H 127.0.0.1 -p "$port" >/dev/null 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
for _ in $(seq 200); do
  curl -fs "http://127.0.0.1:$port/moto-api/" >/dev/null 2>&1 && break
  kill -0 "$server" 2>/dev/null || { echo "moto did not start"; exit 1; }
  sleep 0.1
done
curl -fsX PUT "http://127.0.0.1:$port/notes" >/dev/null
export TOOLYARD_S3_ENDPOINT="http://127.0.0.1:$port" AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
AWS_ENDPOINT_URL="$TOOLYARD_S3_ENDPOINT" AWS_ALLOW_HTTP=true AWS_REGION=us-east-1 \
  cargo test --workspace --exclude toolyard-lance --test it --locked -- --ignored object_store --nocapture
cargo test -p toolyard-lance --locked -- --ignored object_store --nocapture
cargo test --workspace --exclude toolyard-lance --test scenarios --locked -- --ignored object_store --nocapture
