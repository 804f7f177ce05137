#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds the CUDA plug-in, compares every kernel on the GPU with its codec, times
# them, and writes report.md and report.json; then trains with PyTorch's tensors on the GPU, where a Python has a torch
# that finds it. Without a GPU it does what it can: builds, and runs the kernels on the processor.
#
#   scripts/gpu.sh                  everything; the report goes to build/gpu/report.md and report.json
#   scripts/gpu.sh --elements 1048576   of the vectors that are timed, instead of 64 Mi
#   scripts/gpu.sh --build DIR      builds there, and puts the report there
#   GRADBUS_GPU_PYTHON=FILE         the Python with torch and nanobind (default: .venv's, else python3)
#
# Exit status 1 when a test failed. Needs Debian 12, or what scripts/setup.sh --cuda installs there.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/gpu
elements=67108864
while [[ $# -gt 0 ]]; do
  case $1 in
    --elements) elements=$2 ;;
    --build) build=$2 ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 2 ;;
  esac
  shift 2
done

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }

scripts/setup.sh --cuda
say "building in $build"
cmake --preset release -B "$build" -DGRADBUS_CUDA=ON >/dev/null
cmake --build "$build" --target compression_test device_test gradbus_cli gradbus-bench-rank gradbus-agent \
  gradbus-server >/dev/null
results=$build/report
rm -rf "$results"
mkdir -p "$results"

# The plug-in of this build, whatever the environment names.
unset GRADBUS_CUDA_PLUGIN GRADBUS_CUDA_DOUBLE
failed=0
say "kernels on the processor, against the codecs"
"$build/bin/compression_test" --gtest_filter='Cuda*' --gtest_brief=1 --gtest_output="json:$results/processor.json" || failed=1
say "kernels on the GPU, against the codecs"
"$build/bin/device_test" --gtest_brief=1 --gtest_output="json:$results/device.json" >"$results/device.log" 2>&1 || failed=1
grep -v ': Skipped$' "$results/device.log" | sort -u
say "kernels on the GPU, timed"
if "$build/bin/gradbus" bench codec --device cuda --elements 1024 none >/dev/null 2>"$results/gpu.log"; then
  "$build/bin/gradbus" bench codec --device cuda --elements "$elements" --json "$results/bench.json" |
    tee "$results/bench.txt" || failed=1
  say "sums of two processes' gradients in memory of the GPU, timed"
  for sharing in legacy vmm; do
    CUDA_VISIBLE_DEVICES=0 GRADBUS_AGENT_DEVICE_SHARING=$sharing "$build/bin/gradbus" bench all_reduce --memory cuda \
      --ranks 2 -b 1M -e 256M --check --json "$results/sums-$sharing.json" | tee "$results/sums-$sharing.txt" || failed=1
  done
else
  cat "$results/gpu.log"
fi
python3 scripts/gpu_report.py "$results" "$build/report"

say "PyTorch's tensors on the GPU"
default_python=python3
[[ -x .venv/bin/python ]] && default_python=$PWD/.venv/bin/python
python=$(command -v "${GRADBUS_GPU_PYTHON:-$default_python}" || true)

# Without pip, for a machine that reaches no registry.
build_module() {
  local version built=$1
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' client_lib/python/pyproject.toml)
  cmake -S client_lib/python -B "$built-build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DSKBUILD_PROJECT_VERSION="$version" -DPython_EXECUTABLE="$python" &&
    cmake --build "$built-build" && cmake --install "$built-build" --prefix "$built" &&
    cp -r client_lib/python/gradbus/. "$built/gradbus/"
}

# Gradients in memory that the agents share in this way, dense and compressed.
in_agents_memory() {
  local sharing=$1 gathered=communicator=allgather
  shift
  GRADBUS_DEVICE_MEMORY=1 GRADBUS_EXPECT="all shared" GRADBUS_AGENT_DEVICE_SHARING=$sharing "$@" compare cuda sync \
    sync/fp16 "sync/int8:ef=residual,$gathered" "sync/efsignsgd:$gathered" "sync/onebit:$gathered" "sync/fp8:$gathered"
}

# By pytest where it is there, with shards; else what needs none.
train_on_gpu() {
  export GRADBUS_BIN PYTHONPATH=$1
  GRADBUS_BIN=$(realpath "$build")/bin
  if "$python" -c 'import pytest' 2>/dev/null; then
    "$python" -m pytest -q -rs -p no:cacheprovider tests/system/gpu/test_python_cuda.py
    return
  fi
  local rank=("$GRADBUS_BIN/gradbus" run -np 2 --agents 2 -- "$python" tests/system/ranks/gpu/staged.py)
  "${rank[@]}" compare cuda sync delayed:k=2 localsgd:H=2 gossip:every=1,wait=1 sync/int8 &&
    in_agents_memory legacy "${rank[@]}" && in_agents_memory vmm "${rank[@]}" &&
    "${rank[@]}" check cuda pinned accumulate carried mixed operations refused scaler unstopped &&
    "$GRADBUS_BIN/gradbus" run -np 2 --agents 2 --no-prefix -- "$python" examples/digits/train.py --device cuda
}

if [[ -z $python ]] || ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  echo "skipped: ${python:-no Python} has no torch that finds a GPU (GRADBUS_GPU_PYTHON names another)"
elif ! "$python" -c 'import nanobind' 2>/dev/null; then
  echo "skipped: $python has no nanobind, of which the Python module is made"
else
  module=$(realpath "$build")/python
  if build_module "$module" >"$results/python.log" 2>&1; then
    train_on_gpu "$module" 2>&1 | tee "$results/torch.txt" || failed=1
  else
    echo "the Python module was not built: $results/python.log" && failed=1
  fi
fi
say "$build/report.md"
exit "$failed"
