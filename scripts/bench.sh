#!/usr/bin/env bash
# Measures Gradbus beside its peers in one run and writes docs/benchmarks/collectives.md and, in
# docs/benchmarks/collectives, its pictures and results.json. Under 30 minutes on two cores, from a fresh clone; leave the machine alone meanwhile.
#
#   scripts/bench.sh                    everything
#   scripts/bench.sh --quick            a subset in 3 minutes (plus set-up), without Horovod and training
#   scripts/bench.sh --without-horovod  saves the 2 to 5 minutes that building Horovod takes the first time
#   scripts/bench.sh --out DIR          writes there instead of docs/benchmarks/
#   scripts/bench.sh --minutes 25       more time for measuring, so more rounds
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
cd "$(dirname "$0")/.."

peer_packages=(openmpi-bin libopenmpi-dev mpich libmpich-dev iperf3)
minutes_total=28
minutes_measuring=18  # three rounds
minutes_least=9       # one round

source scripts/bench/peers.sh

build_gradbus() {
  say "Gradbus (log: $peers/build.log)"
  { cmake --preset release && cmake --build --preset release --target gradbus_cli gradbus-bench-rank gradbus-server gradbus-agent; } \
    >"$peers/build.log" 2>&1 || { tail -40 "$peers/build.log" >&2; exit 1; }
}

build_mpi_peers() {
  local flavour
  for flavour in openmpi mpich; do
    [[ $peers/mpi_$flavour -nt scripts/bench/mpi_allreduce.c ]] ||
      "mpicc.$flavour" -O2 -Wall -Wextra -o "$peers/mpi_$flavour" scripts/bench/mpi_allreduce.c
  done
}

# What the set-up has left of the half hour.
minutes_left() {
  local left=$((minutes_total - SECONDS / 60))
  ((left > minutes_measuring)) && left=$minutes_measuring
  ((left < minutes_least)) && left=$minutes_least
  echo "$left"
}

mkdir -p "$peers"
scripts/setup.sh
install "${peer_packages[@]}"
build_gradbus
build_mpi_peers
wants --quick "$@" || wants --without-horovod "$@" || build_horovod
BENCH_MINUTES=$(minutes_left) PYTHONPATH=scripts exec .venv/bin/python -m bench "$@"
