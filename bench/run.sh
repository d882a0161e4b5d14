#!/bin/sh
# All benches, one after the other: `make bench`. About 25 minutes on a machine with one GPU.
set -eu
cd "$(dirname "$0")/.."
exec python3 bench/run.py all --out "${SWITCHYARD_BENCH_OUT:-build/bench-results}" "$@"
