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
cd "$(dirname "$0")/.."

peer_packages=(openmpi-bin libopenmpi-dev mpich libmpich-dev iperf3)
# Horovod 0.28.1 is its last release; it compiles against PyTorch 1.13, which is Debian's.
horovod_packages=(python3-torch libtorch-dev python3-venv python3-dev python3-numpy pybind11-dev cmake g++)
horovod_version=0.28.1
horovod_deadline_s=900
minutes_total=28
minutes_measuring=18  # three rounds
minutes_least=9       # one round
peers=build/peers

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi; }

# wants OPTION ARGUMENTS...: whether the option is among the arguments.
wants() {
  local option=$1 word
  shift
  for word in "$@"; do [[ $word == "$option" ]] && return 0; done
  return 1
}

# install PACKAGES...: those Debian packages that are not there yet.
install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return
  say "Debian packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

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

# A failure here costs the report its Horovod columns and nothing else. The stamp is written last: a build that
# was interrupted begins again.
build_horovod() {
  local dir=$peers/horovod
  [[ -f $dir/.built && $(cat "$dir/.built") == "$horovod_version" ]] && return
  say "Horovod $horovod_version: 2 to 5 minutes, once (log: $peers/horovod.log)"
  install "${horovod_packages[@]}"
  if timeout "$horovod_deadline_s" bash -euo pipefail -c '
    dir=$1 version=$2
    /usr/bin/python3 -m venv --clear --system-site-packages "$dir"
    "$dir/bin/pip" install -q --no-build-isolation "setuptools<70" wheel packaging psutil cloudpickle pyyaml
    export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
    export HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 MAKEFLAGS=-j2
    "$dir/bin/pip" install -q --no-build-isolation --no-cache-dir "horovod==$version"
    ' _ "$dir" "$horovod_version" >"$peers/horovod.log" 2>&1; then
    echo "$horovod_version" >"$dir/.built"
  else
    say "Horovod did not build: the report will say so. See $peers/horovod.log"
  fi
}

# What the set-up has left of the half hour.
minutes_left() {
  local left=$((minutes_total - SECONDS / 60))
  ((left > minutes_measuring)) && left=$minutes_measuring
  ((left < minutes_least)) && left=$minutes_least
  echo "$left"
}

if wants --help "$@" || wants -h "$@"; then
  sed -n '2,9s/^# \{0,1\}//p' scripts/bench.sh
  exit 0
fi
mkdir -p "$peers"
scripts/setup.sh
install "${peer_packages[@]}"
build_gradbus
build_mpi_peers
wants --quick "$@" || wants --without-horovod "$@" || build_horovod
BENCH_MINUTES=$(minutes_left) PYTHONPATH=scripts exec .venv/bin/python -m bench "$@"
