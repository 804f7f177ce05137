#!/usr/bin/env bash
# Builds kernels and codecs for Arm (NEON) with Debian's cross compiler and runs their tests under qemu. As root:
# the first time it installs both and lets apt know of arm64, whose libraries it unpacks to build/arm/root.
#
#   scripts/arm.sh                 everything: 4 minutes on two cores
#   scripts/arm.sh -R Quantize     what goes to ctest
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
cd "$(dirname "$0")/.."

tools=(g++-aarch64-linux-gnu qemu-user-static)
libraries=(libhwy-dev libhwy1 libzstd-dev libisal-dev libisal2 libspdlog-dev libspdlog1.10 libfmt-dev libfmt9
  libtomlplusplus-dev libtomlplusplus3 libgtest-dev libgmock-dev libbenchmark-dev libbenchmark1debian)
root=$PWD/build/arm/root

dpkg -s "${tools[@]}" >/dev/null 2>&1 || {
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${tools[@]}" >/dev/null
}
if [[ ! -e $root/.complete ]]; then
  dpkg --add-architecture arm64
  apt-get update -qq
  mkdir -p "$root" build/arm/packages
  (cd build/arm/packages && apt-get download -q "${libraries[@]/%/:arm64}" googletest)
  for package in build/arm/packages/*.deb; do dpkg -x "$package" "$root"; done
  touch "$root/.complete"
fi
cmake -S tests/arm -B build/arm/release -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/tests/arm/toolchain.cmake" \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo >/dev/null
cmake --build build/arm/release
ctest --test-dir build/arm/release -j"$(nproc)" --output-on-failure "$@"
