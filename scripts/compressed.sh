#!/usr/bin/env bash
# Measures compressed all-reduces over simulated links and writes docs/benchmarks/compression.md and, in
# docs/benchmarks/compression, its picture and results.json. Needs root (network namespaces) and about 15 minutes.
# Run nothing else on the machine meanwhile.
#
#   scripts/compressed.sh              everything
#   scripts/compressed.sh --quick      two links, one model, in 2 minutes
#   scripts/compressed.sh --out DIR    writes there instead of docs/benchmarks/
#   scripts/compressed.sh --report     only the pages and plots, from the results of the last run
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
cd "$(dirname "$0")/.."
scripts/setup.sh >/dev/null
cmake --preset release >/dev/null
cmake --build --preset release --target gradbus_cli gradbus-bench-rank gradbus-server gradbus-agent >/dev/null
PYTHONPATH=scripts exec .venv/bin/python -m compressed "$@"
