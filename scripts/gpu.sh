#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds the CUDA plug-in, compares every kernel on the GPU with its codec, times
# them, and writes report.md and report.json. Without a GPU it does what it can: builds, and runs the kernels on the
# processor.
#
#   scripts/gpu.sh                  everything; the report goes to build/gpu/report.md and report.json
#   scripts/gpu.sh --elements 1048576   of the vectors that are timed, instead of 64 Mi
#   scripts/gpu.sh --build DIR      builds there, and puts the report there
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
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
  esac
  shift 2
done

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }

scripts/setup.sh --cuda
say "building in $build"
cmake --preset release -B "$build" -DGRADBUS_CUDA=ON >/dev/null
cmake --build "$build" --target compression_test device_test gradbus_cli >/dev/null
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
else
  cat "$results/gpu.log"
fi
python3 scripts/gpu_report.py "$results" "$build/report"
say "$build/report.md"
exit "$failed"
