#!/usr/bin/env bash
# Makes a folder that runs on any x86-64 Linux with glibc 2.36 or newer, without installing anything:
# the programs, libgradbus.so with its headers, and every library that they need but glibc's own.
# They find each other relative to themselves, so the folder may lie anywhere.
#
#   scripts/bundle.sh [DIRECTORY]     writes DIRECTORY/gradbus-VERSION-linux-x86_64.tar.gz (default: dist)
#
# Libraries that Gradbus loads when there is hardware for them (libibverbs, libcuda, libnccl) stay
# out: they have to fit that machine's drivers.
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
refuse_options "${1:-}"
cd "$(dirname "$0")/.."

out=${1:-dist}
version=$(sed -n 's/^project(gradbus VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=gradbus-$version-linux-x86_64
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/$name

# The parts of glibc: they belong to the kernel's side of the machine, and only fit each other.
is_glibc() {
  [[ $1 =~ ^(ld-linux-x86-64|libc|libm|libmvec|libpthread|libdl|librt|libresolv|libutil|libanl|libnsl|libBrokenLocale)\.so ]]
}

elf_files() { find "$root/bin" "$root/lib" -type f \( -perm -100 -o -name '*.so*' \) ! -name '*.cmake' ! -name '*.pc'; }

install_build() {
  [[ -x build/release/bin/gradbus-bench-rank && -x build/release/bin/gradbus-server ]] || {
    cmake --preset release
    cmake --build --preset release --target all
  } >&2
  cmake --install build/release --prefix "$root" --strip >/dev/null
}

# What the programs need, and what that needs: ldd follows all of it.
copy_libraries() {
  local file library path
  elf_files | while read -r file; do
    ldd "$file" | awk '$2 == "=>" {print $1, $3}'
  done | sort -u | while read -r library path; do
    is_glibc "$library" && continue
    [[ $path == "$root"/* ]] && continue
    [[ -f $path ]] || { echo "bundle.sh: $library is not on this machine; run scripts/setup.sh" >&2; exit 1; }
    install -m 755 "$path" "$root/lib/$library"
    keep_licence "$path"
  done
}

# Debian's record of who holds the rights in a library and under which licence it may go on.
keep_licence() {
  local package
  package=$(dpkg-query -S "$1" 2>/dev/null || dpkg-query -S "$(readlink -f "$1")" 2>/dev/null || true)
  package=${package%%:*}
  [[ -n $package && -f /usr/share/doc/$package/copyright ]] || return 0
  cp "/usr/share/doc/$package/copyright" "$root/licences/$package"
}

set_paths() {
  local file
  elf_files | while read -r file; do
    case $file in
      "$root"/bin/*) patchelf --set-rpath '$ORIGIN/../lib' "$file" ;;
      *) patchelf --set-rpath '$ORIGIN' "$file" ;;
    esac
  done
}

write_readme() {
  cat >"$root/README" <<EOF
Gradbus $version for x86-64 Linux with glibc 2.36 or newer.

bin/gradbus doctor                                        what this machine has
bin/gradbus bench all_reduce --agents 2 --check            runs: an all-reduce between two agents
include/, lib/libgradbus.so                               for programs of your own
licences/                                                 of the libraries in lib/
EOF
  cp LICENSE "$root/licences/gradbus"
}

mkdir -p "$root/licences" "$out"
install_build
copy_libraries
set_paths
write_readme
tar -C "$stage" --owner=0 --group=0 --sort=name -czf "$out/$name.tar.gz" "$name"
echo "$out/$name.tar.gz"
