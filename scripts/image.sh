#!/usr/bin/env bash
# Builds the container image localhost/gradbus with buildah, from a bundle of the release build.
#
#   scripts/image.sh [--base IMAGE] [--bundle FILE] [--tag NAME]
#
# --base IMAGE   a Debian 12 image; default: one that mmdebstrap makes of Debian's libc6 and busybox-static, for
#                machines without an image registry
# --bundle FILE  default: made by scripts/bundle.sh
# --tag NAME     default: localhost/gradbus
# buildah's own variables say where images are kept (CONTAINERS_STORAGE_CONF). deploy/container has the Containerfile.
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
cd "$(dirname "$0")/.."

base= bundle= tag=localhost/gradbus
while [[ $# -gt 0 ]]; do
  case $1 in
    --base) base=${2:?--base needs an image}; shift 2 ;;
    --bundle) bundle=${2:?--bundle needs a file}; shift 2 ;;
    --tag) tag=${2:?--tag needs a name}; shift 2 ;;
    *) echo "scripts/image.sh: unknown option $1; one of --base, --bundle, --tag" >&2; exit 2 ;;
  esac
done
need() { command -v "$1" >/dev/null || { echo "scripts/image.sh: $1 is missing; run scripts/setup.sh" >&2; exit 1; }; }
need buildah
[[ -n $base ]] || need mmdebstrap
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
chmod 755 "$context"

# An image with glibc of Debian 12, for which the bundle was built, and busybox. Nothing of this machine is in it.
make_base() {
  local root=$context/base
  mmdebstrap --quiet --mode=root --variant=extract --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --include=base-files,libc6,busybox-static bookworm "$root" >/dev/null
  chroot "$root" /bin/busybox --install -s /bin
  printf 'FROM scratch\nCOPY base/ /\n' >"$context/base.Containerfile"
  buildah bud -q --isolation chroot -t "$tag-base" -f "$context/base.Containerfile" "$context" >/dev/null
  base=$tag-base
}

mkdir -p "$context/dist" "$context/deploy"
if [[ -n $bundle ]]; then cp "$bundle" "$context/dist"; else scripts/bundle.sh "$context/dist" >/dev/null; fi
cp -r deploy/container "$context/deploy"
[[ -n $base ]] || make_base
buildah bud -q --isolation chroot --build-arg BASE="$base" -t "$tag" -f deploy/container/Containerfile "$context" >/dev/null
echo "$tag"
