#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds the CUDA plug-in, compares every kernel on the GPU with its codec, times
# them, and writes report.md and report.json; then trains with PyTorch's tensors on the GPU, where a Python has a torch
# that finds it. Without a GPU it does what it can: builds, and runs the kernels on the processor.
#
#   scripts/gpu.sh                  everything; the report goes to build/gpu/report.md and report.json
#   scripts/gpu.sh --elements 1048576   of the vectors that are timed, instead of 64 Mi
#   scripts/gpu.sh --build DIR      builds there, and puts the report there
#   scripts/gpu.sh --pack DIR       builds; DIR/gradbus-gpu.tar.gz has the programs with their libraries, for a machine
#                                   without Debian's packages
#   scripts/gpu.sh --packed DIR     on that machine, in a checkout of the same commit: uses the unpacked DIR
#   GRADBUS_GPU_PYTHON=FILE         the Python with torch and nanobind (default: .venv's, else python3)
#
# Exit status 1 when a test failed. Needs Debian 12, or what scripts/setup.sh --cuda installs there.
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
cd "$(dirname "$0")/.."
build=build/gpu
elements=67108864
pack=
packed=
while [[ $# -gt 0 ]]; do
  case $1 in
    --elements) elements=$2 ;;
    --build) build=$2 ;;
    --pack) pack=$2 ;;
    --packed) packed=$2 build=$2 ;;
    *) echo "scripts/gpu.sh: unknown option $1; see --help" >&2; exit 2 ;;
  esac
  shift 2
done

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }

build_programs() {
  scripts/setup.sh --cuda
  say "building in $build"
  cmake --preset release -B "$build" -DGRADBUS_CUDA=ON >/dev/null
  cmake --build "$build" --target compression_test device_test gradbus_cli gradbus-bench-rank gradbus-agent \
    gradbus-server gradbus-nccl >/dev/null
}

# The tests' doubles are left out: they are for machines without a GPU.
pack_programs() {
  local stage file library path
  stage=$(mktemp -d)
  mkdir -p "$stage/bin" "$stage/lib" "$1"
  for file in device_test gradbus gradbus-bench-rank gradbus-agent gradbus-server gradbus-nccl; do
    strip -o "$stage/bin/$file" "$build/bin/$file"
    ldd "$build/bin/$file"
  done | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u | while read -r library path; do
    [[ $library =~ ^(libc|libm|libmvec|libpthread|libdl|librt|libresolv)\.so ]] || cp -L "$path" "$stage/lib/$library"
  done
  cp -L "$build/lib/libgradbus_cuda.so" "$build/lib/libgradbus.so.0" "$stage/lib/"
  strip --strip-unneeded "$stage"/lib/libgradbus*
  for file in "$stage"/bin/*; do patchelf --set-rpath '$ORIGIN/../lib' "$file"; done
  for file in "$stage"/lib/*; do patchelf --set-rpath '$ORIGIN' "$file"; done
  tar -C "$stage" -czf "$1/gradbus-gpu.tar.gz" bin lib
  rm -r "$stage"
  echo "$1/gradbus-gpu.tar.gz"
}

[[ -n $packed ]] || build_programs
[[ -z $pack ]] || { pack_programs "$pack" && exit; }
results=$build/report
rm -rf "$results"
mkdir -p "$results"

# The plug-in of this build, whatever the environment names.
unset GRADBUS_CUDA_PLUGIN GRADBUS_CUDA_DOUBLE
failed=0
if [[ -z $packed ]]; then
  say "kernels on the processor, against the codecs"
  "$build/bin/compression_test" --gtest_filter='Cuda*' --gtest_brief=1 --gtest_output="json:$results/processor.json" ||
    failed=1
fi
say "kernels on the GPU, against the codecs"
without_doubles=${packed:+CudaDevice.*:*CudaSharings.*OnAGpu*:NcclLibrary.TheRealOne*}
"$build/bin/device_test" --gtest_filter="${without_doubles:-*}" --gtest_brief=1 --gtest_output="json:$results/device.json" >"$results/device.log" 2>&1 || failed=1
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

say "PyTorch's tensors on the GPU"
default_python=python3
[[ -x .venv/bin/python ]] && default_python=$PWD/.venv/bin/python
python=$(command -v "${GRADBUS_GPU_PYTHON:-$default_python}" || true)

# Without pip, for a machine that reaches no registry.
build_module() {
  local version built=$1
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' client_lib/python/pyproject.toml)
  cmake -S client_lib/python -B "$built-build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DSKBUILD_PROJECT_VERSION="$version" -DPython_EXECUTABLE="$python" \
    -DGRADBUS_LIBRARY="${packed:+$(realpath "$build")/lib/libgradbus.so.0}" &&
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

# ResNet-50 on two ranks of one GPU: gradients through shared memory, in memory of the agent, and DDP with Gloo.
time_training() {
  local agents row
  local program=("$python" examples/imagenet/train.py --model resnet50 --image-size 64 --batch-size 32 --steps 30 --time)
  "$python" -c 'import torchvision' 2>/dev/null || { echo "not timed: $python has no torchvision" && return; }
  for agents in 1 2; do
    for row in copied:0:gradbus shared:1:gradbus ddp:0:ddp; do
      local name memory backend
      IFS=: read -r name memory backend <<<"$row"
      GRADBUS_DEVICE_MEMORY=$memory CUDA_VISIBLE_DEVICES=0 "$GRADBUS_BIN/gradbus" run -np 2 --agents "$agents" \
        --no-prefix -- "${program[@]}" --device cuda --backend "$backend" | tail -n 1 >"$results/step-$name-$agents.json"
    done
  done
}

# By pytest where it is there, with shards; else what needs none.
train_on_gpu() {
  export GRADBUS_BIN PYTHONPATH=$1
  GRADBUS_BIN=$(realpath "$build")/bin
  if "$python" -c 'import pytest' 2>/dev/null; then
    "$python" -m pytest -q -rs -p no:cacheprovider tests/system/gpu/test_python_cuda.py \
      tests/system/gpu/test_nccl_on_gpu.py
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
    say "training steps on the GPU, timed"
    (export PYTHONPATH=$module GRADBUS_BIN=$(realpath "$build")/bin && time_training) || failed=1
  else
    echo "the Python module was not built: $results/python.log" && failed=1
  fi
fi
python3 scripts/gpu_report.py "$results" "$build/report"
say "$build/report.md"
exit "$failed"
