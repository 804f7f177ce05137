#!/usr/bin/env bash
# Builds and runs every test. Does its own set-up; ends with one line: N passed, N failed, N skipped.
#
#   scripts/test.sh                release build: unit, contract, simulation and system tests
#   scripts/test.sh --sanitizers   and the C++ tests under ASan+UBSan and TSan, which a slow machine leaves out
#   scripts/test.sh --quick        C++ programs that have not passed since they were built; one file of system tests per area
#   scripts/test.sh --changed      those programs; system tests of the folders that differ from HEAD
set -uo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
refuse_other "${1:-}" --sanitizers --quick --changed
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

build() { cmake --preset "$1" && cmake --build --preset "$1"; } >"$reports/$1.log" 2>&1

# cpp_tests PRESET [changed]: builds it and runs its programs: all, or those that have not passed since they were built.
cpp_tests() {
  local runs=.
  say "$1: build"
  build "$1" || { tail -50 "$reports/$1.log"; failed=$((failed + 1)); return 1; }
  say "$1: C++ tests"
  if [[ ${2:-} == changed ]]; then
    runs=$(python3 scripts/changed_tests.py programs "build/$1" | paste -sd '|')
    [[ -n $runs ]] || { echo "all programs have passed since they were built"; return 0; }
    runs="^($runs)\$"
  else
    rm -rf "build/$1/test_reports"
  fi
  ctest --preset "$1" -j2 -R "$runs" --output-junit "$reports/$1.xml" --no-tests=error |
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
  run_pytest machine tests/system/transport/test_rdma_vm.py
  say "system tests"
  run_pytest system tests/system --ignore tests/system/transport/test_rdma_vm.py -n 3 --dist loadfile
}

# One of each area, a minute in all.
quick_files=(tests/system/*/test_{repository,operations,collectives,after_backward,compression,modes,health,bad_input}.py)

# in_time PRESET SECONDS: whether it may begin. On a slow machine CI would stop it, and all results would be lost.
in_time() {
  ((SECONDS < $2)) && return
  echo "$1: left out, $SECONDS s after the start; run the tests on a faster machine"
  skipped=$((skipped + 1))
  return 1
}

finish() {
  echo "$passed passed, $failed failed, $skipped skipped"
  [[ $failed == 0 && $passed -gt 0 ]]
  exit
}

reports=$PWD/build/reports
mkdir -p "$reports"
rm -f "$reports"/*.xml
# Python's packages leave a processor free, so the build begins beside them. cpp_tests says what is wrong with it.
scripts/setup.sh --system || { failed=1; finish; }
build release &
scripts/setup.sh && scripts/setup.sh --frameworks || failed=1
wait
[[ $failed == 0 ]] || finish
case ${1:-} in
  --quick) cpp_tests release changed && run_pytest system -n 3 --dist loadfile "${quick_files[@]}" ;;
  --changed)
    mapfile -t files < <(python3 scripts/changed_tests.py system)
    cpp_tests release changed && { [[ -z ${files[*]} ]] || run_pytest system -n 3 --dist loadfile "${files[@]}"; }
    ;;
  --sanitizers)
    cpp_tests release && system_tests
    in_time asan 3900 && cpp_tests asan
    in_time tsan 4500 && cpp_tests tsan
    ;;
  "") cpp_tests release && system_tests ;;
esac
finish
