#!/usr/bin/env bash
# Everything a change must pass, in one command; the same locally and anywhere else.
#
#   scripts/check.sh                       all stages
#   scripts/check.sh format arrows sizes   only these (seconds)
#
# Stages: format arrows sizes python words prose site tidy tests. `tests` includes build, sanitizers and system tests.
set -uo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
cd "$(dirname "$0")/.."

sources() { git ls-files -co --exclude-standard '*.cc' '*.h' '*.hpp' '*.cu'; }

stage_format() { sources | xargs clang-format --dry-run -Werror; }
stage_arrows() {
  local found=0
  python3 scripts/checks/arrows.py || found=1
  python3 scripts/checks/python_imports.py || found=1
  python3 scripts/checks/shared_names.py || found=1
  return $found
}
stage_sizes() {
  local found=0
  python3 scripts/checks/code_sizes.py || found=1
  python3 scripts/checks/class_sizes.py || found=1
  return $found
}
# pytest imports test files by their names alone, so two of one name end the whole run.
stage_python() {
  local twice
  twice=$(git ls-files -co --exclude-standard 'tests/*/test_*.py' | xargs -n1 basename | sort | uniq -d)
  [[ -z $twice ]] || echo "files of one name in several folders of tests: $twice"
  .venv/bin/ruff check scripts client_lib/python examples tests/system tests/vm && [[ -z $twice ]]
}
stage_words() {
  local found=0
  python3 scripts/checks/words.py || found=1
  python3 scripts/checks/error_names.py || found=1
  return $found
}
stage_prose() { python3 scripts/checks/prose.py; }
stage_site() { scripts/site.sh; }
stage_tidy() {
  # The preset that compiles each file alone: it also finds what a file forgets to include.
  cmake --preset dev >/dev/null && cmake --build --preset dev >/dev/null &&
    git ls-files -co --exclude-standard '*.cc' | grep -v '^client_lib/python/' |
    xargs -P2 -n4 clang-tidy -p build/dev --quiet --warnings-as-errors='*' 2>/dev/null
}
stage_tests() { scripts/test.sh --sanitizers; }

scripts/setup.sh || exit 1
stages=("$@")
[[ $# == 0 ]] && stages=(format arrows sizes python words prose site tidy tests)
failed=()
for stage in "${stages[@]}"; do
  printf '\033[1m== %s\033[0m\n' "$stage"
  declare -F "stage_$stage" >/dev/null || { echo "unknown stage $stage"; exit 2; }
  "stage_$stage" || failed+=("$stage")
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all checks passed"
