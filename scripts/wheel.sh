#!/usr/bin/env bash
# Makes a wheel that needs nothing else: the Python package, the `gradbus` command, the daemons, and every library that
# they need but glibc's own. It installs on x86-64 Linux with glibc 2.36 or newer, without a compiler.
#
#   scripts/wheel.sh [DIRECTORY]                    writes DIRECTORY/gradbus-*.whl (default: dist)
#   PYTHON=/path/python3.12 scripts/wheel.sh        for another Python, which has nanobind, scikit-build-core and cmake>=3.26
#
# The wheel of CPython 3.12 serves all later ones (stable ABI). Each earlier version needs a wheel of its own.
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
refuse_options "${1:-}"
cd "$(dirname "$0")/.."

out=${1:-dist}
python=${PYTHON:-$PWD/.venv/bin/python}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

unpack_programs() {
  tar -C "$stage" -xzf "$(scripts/bundle.sh "$stage")"
  mv "$stage"/gradbus-*/ "$stage/programs"
  cd "$stage/programs"
  rm -rf include README share lib/cmake lib/pkgconfig lib/libgradbus.so*
  cd - >/dev/null
}

# The library of the build that bundle.sh has installed, so that it fits the programs.
client_library() {
  install -m 755 --strip build/release/lib/libgradbus.so "$stage/libgradbus.so"
  echo "$stage/libgradbus.so"
}

stable_abi() {
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' && echo --config-settings=wheel.py-api=cp312
  return 0
}

mkdir -p "$out"
unpack_programs
# shellcheck disable=SC2046
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$stage/wheel" \
  --config-settings=cmake.define.GRADBUS_PROGRAMS="$stage/programs" --config-settings=cmake.define.GRADBUS_LIBRARY="$(client_library)" \
  --config-settings=install.strip=true --config-settings=build-dir="$stage/build" $(stable_abi) ./client_lib/python
"$python" scripts/wheel_tag.py "$stage"/wheel/*.whl "$out"
