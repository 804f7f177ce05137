#!/usr/bin/env bash
# Compares the binary interface of libgradbus.so with client_lib/abi_baseline.xml: functions, structs and their layout.
#
#   scripts/abi.sh [LIBRARY]          compares; exit status 1 for any difference (default: build/release/lib/libgradbus.so)
#   scripts/abi.sh --write [LIBRARY]  writes the baseline: for a new function, or a field behind the last one of a struct
#
# Needs abidw and abidiff (abigail-tools), and a library with debug information.
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
write=
if [[ ${1:-} == --write ]]; then write=1; shift; fi
library=$(readlink -f "${1:-$(dirname "$0")/../build/release/lib/libgradbus.so}")
cd "$(dirname "$0")/.."
baseline=client_lib/abi_baseline.xml
new=$(mktemp --suffix .xml)
trap 'rm -f "$new"' EXIT
abidw --headers-dir client_lib/include/gradbus --suppressions client_lib/abi.suppr --exported-interfaces-only \
  --drop-private-types --drop-undefined-syms --no-show-locs --no-corpus-path --no-comp-dir-path "$library" |
  sed -E "s#path='[^']*/(client_lib/)#path='\1#; s# comp-dir-path='[^']*'##" >"$new"
# A library without debug information has functions, but no type of ours.
grep -q "class-decl name='gradbus_tensor_spec'" "$new" || { echo "abi.sh: $library has no debug information" >&2; exit 2; }
if [[ -n $write ]]; then
  cp "$new" "$baseline"
  chmod 644 "$baseline"
  exit
fi
abidiff --no-default-suppression "$baseline" "$new" && exit
echo "abi.sh: the binary interface differs from $baseline. A change of what is there needs a new soname." >&2
echo "For a new function, or a field behind the last one: scripts/abi.sh --write, and commit the file." >&2
exit 1
