#!/usr/bin/env bash
# Builds Debian packages of the programs, the library and the Python package into build/packages, and an SBOM (SPDX).
#
#   scripts/packages.sh [--no-build]     --no-build: packs what build/release has
#
# The same sources give the same bytes: the time in them is that of the last commit, or SOURCE_DATE_EPOCH.
# Needs dpkg-dev and fakeroot, and .venv-debian with the gradbus package (scripts/setup.sh).
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
refuse_other "${1:-}" --no-build
cd "$(dirname "$0")/.."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} LC_ALL=C.UTF-8 TZ=UTC
umask 022

programs=(gradbus-agent gradbus-server gradbus-nccl gradbus gradbus-bench-rank)
made=build/package-files out=build/packages
[[ -d .venv-debian/lib/python3.11/site-packages/gradbus ]] || {
  echo "packages.sh: the Python package is not built; run scripts/setup.sh" >&2
  exit 1
}
cmake --preset release >/dev/null
if [[ ${1:-} != --no-build ]]; then
  cuda=$(ninja -C build/release -t targets all | sed -n 's/^\(gradbus_cuda\):.*/\1/p')
  # shellcheck disable=SC2086
  cmake --build --preset release --target gradbus-agent gradbus-server gradbus-nccl gradbus_cli gradbus-bench-rank \
    gradbus $cuda >&2
fi
for program in "${programs[@]}"; do
  [[ -x build/release/bin/$program ]] || { echo "packages.sh: build/release/bin/$program is missing" >&2; exit 1; }
done
rm -rf "$made" "$out"
mkdir -p "$out"
python3 scripts/man_pages.py "$made"
python3 scripts/completions.py "$made"
(cd build/release && cpack -G DEB >"$OLDPWD/$out/cpack.log" 2>&1) || { cat "$out/cpack.log" >&2; exit 1; }
# CPack gives the control files the present time and no order; dpkg-deb writes the same bytes each time.
for package in "$out"/*.deb; do
  stage=$(mktemp -d)
  dpkg-deb --raw-extract "$package" "$stage/root"
  [[ ! -f $stage/root/DEBIAN/triggers ]] || rm -f "$stage"/root/DEBIAN/post{inst,rm}  # ldconfig is a trigger
  find "$stage/root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz --build "$stage/root" "$package" >/dev/null
  rm -rf "$stage"
done
rm -rf "$out"/_CPack_Packages "$out"/cpack.log
python3 scripts/sbom.py "$out/gradbus.spdx.json" "${programs[@]/#/build/release/bin/}" build/release/lib/libgradbus.so
ls "$out"
