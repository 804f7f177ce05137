#!/usr/bin/env bash
# Trains examples/digits and examples/charlm in every sync mode, with equal ranks, with a slow one, and with random
# stalls, times shards against what links allow, and writes docs/benchmarks/modes.md and modes-results.jsonl beside it.
# What the last file already has is not done again.
#
#   scripts/modes.sh                  everything: about 50 minutes on two cores
#   scripts/modes.sh --only charlm    digits, charlm or bounds (needs root)
#   scripts/modes.sh --mode ps:async  trains in one mode
#   scripts/modes.sh --again          forgets what there is
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
cd "$(dirname "$0")/.."

if [[ -z ${GRADBUS_BIN:-} ]]; then
  scripts/setup.sh
  cmake --preset release >/dev/null
  cmake --build --preset release --target gradbus_cli gradbus-server gradbus-agent gradbus-bench-rank >/dev/null
fi
PYTHONPATH=scripts exec .venv/bin/python -m modes "$@"
