#!/usr/bin/env bash
# A cluster on this machine: PostgreSQL with a synchronous standby, moto, three nodes and haproxy, on loopback. First a node
# is killed under calls, then a short and seeded chaos (`make cluster-chaos` for more of it), whose nodes have network
# namespaces of their own.
# usage: run.sh PROGRAM
# Exits with 77 without root, and where PostgreSQL, haproxy, nft, faketime or moto cannot be had (see ../external.sh).
set -euo pipefail
cd "$(dirname "$0")/../../examples/cluster"
export PYTHONDONTWRITEBYTECODE=1
python3 cluster.py "$1" --check
python3 chaos.py "$1" --kills 3 --failovers 1 --stops 1 --stop-seconds 8 --partitions 1 --splits 1 --skews 1 --fulls 1
