#!/usr/bin/env bash
# From a fresh clone to a real training job: installs, builds, and trains the digits model with four
# ranks on two agents that exchange gradients over TCP. Then trains it again in one process on the same
# global batches and compares the parameters.
#
#   scripts/quickstart.sh      about 10 minutes on two cores
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
refuse_other "${1:-}"
cd "$(dirname "$0")/.."

scripts/setup.sh --build
mkdir -p build
# The download of PyTorch and the build run side by side: one waits for the network, the other for the processor.
echo "Installing PyTorch (log: build/quickstart-python.log) and building (log: build/quickstart.log) ..." >&2
scripts/setup.sh --python >build/quickstart-python.log 2>&1 &
python=$!
{ cmake --preset release -DGRADBUS_TESTS=OFF &&
  cmake --build --preset release --target gradbus_cli gradbus-server gradbus-agent gradbus-bench-rank; } \
  >build/quickstart.log 2>&1 || { tail -40 build/quickstart.log >&2; exit 1; }
wait $python || { tail -40 build/quickstart-python.log >&2; exit 1; }

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
echo
echo "Training with 4 ranks on 2 agents (shared memory on each, TCP between them):"
build/release/bin/gradbus run -np 4 --agents 2 --no-prefix -- \
  .venv/bin/python examples/digits/train.py --save-params "$out/four.npz" | tee "$out/four.json"
echo
echo "The same global batches in one process:"
.venv/bin/python examples/digits/train.py --save-params "$out/one.npz" | tee "$out/one.json"
echo
.venv/bin/python scripts/compare_runs.py "$out"
