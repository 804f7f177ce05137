#!/usr/bin/env bash
# Runs Horovod's own tests on Gradbus: `import horovod.torch` is gradbus.horovod.torch there, and so for the others.
#
#   git clone https://github.com/horovod/horovod ~/horovod
#   scripts/horovod_suite.sh ~/horovod [SUITE [RANKS [AGENTS [PYTEST ARGUMENTS...]]]]      default: torch, 2 ranks, 1 agent
#
# SUITE: torch, tensorflow, keras or mxnet. All but torch need scripts/setup.sh --frameworks.
# Nothing of Horovod is built or installed. docs/how-to/from-horovod.md lists the tests that fail, with the reasons.
# The last lines are those of rank 0; the output of all ranks is in build/horovod-suite/SUITE-RANKS.
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "${1:-}"
cd "$(dirname "$0")/.."

usage() {
  echo "usage: scripts/horovod_suite.sh CHECKOUT [torch|tensorflow|keras|mxnet [RANKS [AGENTS [PYTEST ARGUMENTS...]]]]" >&2
  exit 2
}
[[ $# -ge 1 && -f $1/test/parallel/test_torch.py ]] || usage
checkout=$(cd "$1" && pwd)
suite=${2:-torch}
plugins=(-p each_test_in_a_fork)
ranks=${3:-2}
agents=${4:-1}
shift $(($# < 4 ? $# : 4))
case $suite in
  torch) venv=.venv files=(test_torch test_adasum_pytorch) ;;
  tensorflow)
    venv=.venv-frameworks
    files=(test_tensorflow test_tensorflow_process_sets test_tensorflow_process_sets_dynamic test_process_sets_static
      test_adasum_tensorflow)
    ;;
  keras)  # they were written for Keras 2, and call init() once for all of them
    venv=.venv-frameworks files=(test_tensorflow2_keras) plugins=()
    export TF_USE_LEGACY_KERAS=1
    ;;
  mxnet) venv=.venv-mxnet files=(test_mxnet1) ;;
  *) usage ;;
esac
paths=("${files[@]/#/$checkout/test/parallel/}")
paths=("${paths[@]/%/.py}")
python=$PWD/$venv/bin/python
gradbus=${GRADBUS_BIN:-build/release/bin}/gradbus
out=$PWD/build/horovod-suite/$suite-$ranks

# What the tests import beside the frameworks, also for tests that do not use it.
"$python" -c 'import cloudpickle, mock, packaging, parameterized, pytest' 2>/dev/null ||
  "$python" -m pip install --quiet cloudpickle mock packaging parameterized pytest

rm -rf "$out"
export PYTHONPATH=$PWD/scripts/horovod/shim:$checkout/test/utils:$checkout/test/parallel OMP_NUM_THREADS=1 TF_CPP_MIN_LOG_LEVEL=3
# With HOROVOD_RANK the tests expect Gloo's behaviour: init() after shutdown() works.
status=0
"$gradbus" run -np "$ranks" --agents "$agents" --embedded --op-timeout 30 --start-timeout 100 --no-prefix \
  --output-filename "$out" -- bash -c 'HOROVOD_RANK=$GRADBUS_RANK HOROVOD_SIZE=$GRADBUS_SIZE exec "$@"' rank \
  "$python" -P -m pytest "${plugins[@]}" -p no:cacheprovider --tb=short -q -rfE \
  "${paths[@]}" "$@" || status=$?
tail -n 15 "$out/rank.0.out"
exit $status
