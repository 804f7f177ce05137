#!/usr/bin/env bash
# Trains examples/digits in every exchange mode, with equal ranks, with a slow one, and with random stalls, and writes
# docs/MODES_BENCH.md and docs/modes-results.jsonl. Trainings that the last file already has are not done again.
#
#   scripts/modes.sh                  everything: about 25 minutes on two cores
#   scripts/modes.sh --mode ps:async  one mode
#   scripts/modes.sh --again          forgets what there is
set -euo pipefail
cd "$(dirname "$0")/.."

for word in "$@"; do
  [[ $word == --help || $word == -h ]] && { sed -n '2,7s/^# \{0,1\}//p' scripts/modes.sh; exit 0; }
done
if [[ -z ${GRADBUS_BIN:-} ]]; then
  scripts/setup.sh
  cmake --preset release >/dev/null
  cmake --build --preset release --target gradbus_cli gradbus-server gradbus-agent >/dev/null
fi
PYTHONPATH=scripts exec .venv/bin/python -m modes "$@"
