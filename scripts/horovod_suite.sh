#!/usr/bin/env bash
# Runs Horovod's own tests on Gradbus: `import horovod.torch` is gradbus.horovod.torch there.
#
#   git clone https://github.com/horovod/horovod ~/horovod
#   scripts/horovod_suite.sh ~/horovod [RANKS [AGENTS [PYTEST ARGUMENTS...]]]      default: 2 ranks, 1 agent
#
# Nothing of Horovod is built or installed. docs/how-to/from-horovod.md lists the tests that fail, with the reasons.
# The last lines are those of rank 0; the output of all ranks is in build/horovod-suite.
set -euo pipefail
cd "$(dirname "$0")/.."

[[ $# -ge 1 && -f $1/test/parallel/test_torch.py ]] || {
  echo "usage: scripts/horovod_suite.sh CHECKOUT [RANKS [AGENTS [PYTEST ARGUMENTS...]]]" >&2
  exit 2
}
checkout=$(cd "$1" && pwd)
ranks=${2:-2}
agents=${3:-1}
shift $(($# < 3 ? $# : 3))
python=$PWD/.venv/bin/python
gradbus=${GRADBUS_BIN:-build/release/bin}/gradbus
out=$PWD/build/horovod-suite

# test/utils/common.py imports these two, also for tests that do not use them.
"$python" -c 'import cloudpickle, mock' 2>/dev/null || "$python" -m pip install --quiet cloudpickle mock

rm -rf "$out"
export PYTHONPATH=$PWD/scripts/horovod/shim:$checkout/test/utils OMP_NUM_THREADS=1
# With HOROVOD_RANK the tests expect Gloo's behaviour: init() after shutdown() works.
status=0
"$gradbus" run -np "$ranks" --agents "$agents" --embedded --op-timeout 30 --start-timeout 60 --no-prefix \
  --output-filename "$out" -- bash -c 'HOROVOD_RANK=$GRADBUS_RANK HOROVOD_SIZE=$GRADBUS_SIZE exec "$@"' rank \
  "$python" -P -m pytest -p each_test_in_a_fork -p no:cacheprovider --tb=short -q \
  "$checkout/test/parallel/test_torch.py" "$@" || status=$?
tail -n 15 "$out/rank.0.out"
exit $status
