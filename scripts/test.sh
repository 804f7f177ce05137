#!/usr/bin/env bash
# Builds and runs every test. Does its own set-up; ends with one line: N passed, N failed, N skipped.
#
#   scripts/test.sh                release build: unit, contract, simulation and system tests
#   scripts/test.sh --sanitizers   and the C++ tests under ASan+UBSan and TSan
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0 failed=0 skipped=0
say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }

# count FILE [FOLDER]: adds the cases of a JUnit file.
count() {
  local sums
  sums=$(python3 scripts/count_tests.py "$@") || { failed=$((failed + 1)); return; }
  read -r p f s <<<"$sums"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# cpp_tests PRESET: builds it and runs its ctest cases.
cpp_tests() {
  say "$1: build"
  cmake --preset "$1" >"$reports/$1.log" 2>&1 && cmake --build --preset "$1" >>"$reports/$1.log" 2>&1 ||
    { tail -50 "$reports/$1.log"; failed=$((failed + 1)); return 1; }
  say "$1: C++ tests"
  rm -rf "build/$1/test_reports"
  ctest --preset "$1" -j2 --output-junit "$reports/$1.xml" --no-tests=error |
    grep -E -v '^ *(Start|[0-9]+/[0-9]+ Test .*Passed)' || true
  count "$reports/$1.xml" "build/$1/test_reports"
}

# run_pytest NAME WORDS...
run_pytest() {
  local name=$1
  shift
  GRADBUS_BIN=$PWD/build/release/bin .venv/bin/python -m pytest -q -p no:cacheprovider \
    --junit-xml="$reports/$name.xml" "$@"
  count "$reports/$name.xml"
}

# The emulated machine has both cores for itself. The others wait for each other half of the time: three files at once.
system_tests() {
  say "system tests in the virtual machine"
  run_pytest machine tests/system/test_rdma_vm.py
  say "system tests"
  run_pytest system tests/system --ignore tests/system/test_rdma_vm.py -n 3 --dist loadfile
}

finish() {
  echo "$passed passed, $failed failed, $skipped skipped"
  [[ $failed == 0 && $passed -gt 0 ]]
  exit
}

reports=$PWD/build/reports
mkdir -p "$reports"
rm -f "$reports"/*.xml
scripts/setup.sh || { failed=1; finish; }
cpp_tests release && system_tests
if [[ ${1:-} == --sanitizers ]]; then
  cpp_tests asan
  cpp_tests tsan
fi
finish
