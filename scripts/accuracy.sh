#!/usr/bin/env bash
# Trains the examples on four ranks with every compression and writes docs/benchmarks/accuracy.md, its pictures and
# docs/benchmarks/accuracy-results.jsonl. Trainings that the last file already has are not done again.
#
#   scripts/accuracy.sh                 everything: about an hour on two cores
#   scripts/accuracy.sh --quick --out DIR   digits, dense and six compressions, one seed: under 3 minutes
#   scripts/accuracy.sh --task digits --seeds 2   a part
#   scripts/accuracy.sh --again         forgets what there is
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
cd "$(dirname "$0")/.."

if [[ -z ${GRADBUS_BIN:-} ]]; then
  scripts/setup.sh
  cmake --preset release >/dev/null
  cmake --build --preset release --target gradbus_cli gradbus-server gradbus-agent >/dev/null
fi
PYTHONPATH=scripts exec .venv/bin/python -m accuracy "$@"
