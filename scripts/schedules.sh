#!/usr/bin/env bash
# Measures trainings under each schedule over simulated links, beside DistributedDataParallel in the same processes, and
# writes docs/benchmarks/schedules.md and docs/benchmarks/schedules/results.json. Needs root (network namespaces) and
# about 25 minutes. Run nothing else on the machine meanwhile.
#
#   scripts/schedules.sh                                         the grid of the page
#   scripts/schedules.sh --model resnet18 --link 500mbit,1gbit   a part of it
#   scripts/schedules.sh --schedule auto,dear --compression none,topk:ratio=0.01 --batch-size 20 --ranks 2 --groups 4
#   scripts/schedules.sh --schedule auto,auto+plan               auto+plan: with GRADBUS_PLAN=1
#   scripts/schedules.sh --compression none,fp16,auto            codecs as an axis; auto: chosen by trial, before the first turn
#   scripts/schedules.sh --horovod                               Horovod as well; it is built once, in about 10 minutes
#   scripts/schedules.sh --horovod-venv DIR                      the Horovod of this virtual environment
#   scripts/schedules.sh --horovod --horovod-only                Horovod once more, into the last results
#   scripts/schedules.sh --compression none,fp16,onebit --coded auto,mergecomp    codecs with these schedules only
#   scripts/schedules.sh --add --model vgg --link 1gbit          measures this job and keeps the others of the page
#   scripts/schedules.sh --model resnet50,bert-base              needs much more than two cores
#   scripts/schedules.sh --out DIR                               writes there instead of docs/benchmarks/
#   scripts/schedules.sh --report                                only the page, from the results of the last run
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
cd "$(dirname "$0")/.."
scripts/setup.sh >/dev/null
source scripts/bench/peers.sh
if wants --horovod "$@"; then
  mkdir -p "$peers"
  build_horovod
fi
cmake --preset release >/dev/null
cmake --build --preset release --target gradbus_cli gradbus-server gradbus-agent >/dev/null
PYTHONPATH=scripts exec .venv/bin/python -m schedules "$@"
