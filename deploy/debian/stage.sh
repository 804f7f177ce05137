#!/usr/bin/env bash
# Completes the files of one package, which `cmake --install` has put into ROOT/usr. stage.cmake calls it.
#
#   deploy/debian/stage.sh COMPONENT PACKAGE ROOT
#
# scripts/packages.sh has written manual pages and completions into build/package-files before.
set -euo pipefail
component=$1 package=$2 root=$3
cd "$(dirname "$0")/../.."
made=build/package-files
doc=$root/usr/share/doc/$package

# units NAMES...: the units with their drop-ins as examples, settings, user and folders.
units() {
  local unit
  for unit in "$@"; do install -D -m 644 "deploy/systemd/$unit.service" -t "$root/lib/systemd/system"; done
  install -D -m 644 deploy/systemd/sysusers.conf "$root/usr/lib/sysusers.d/$package.conf"
  install -D -m 644 deploy/systemd/tmpfiles.conf "$root/usr/lib/tmpfiles.d/$package.conf"
  install -D -m 644 deploy/systemd/{rdma,cuda}.conf -t "$doc/examples"
}

# manual PAGES...: compressed as Debian wants them, without a time.
manual() {
  local page
  for page in "$@"; do
    install -d "$root/usr/share/man/man${page##*.}"
    gzip -9nc "$made/man${page##*.}/$page" >"$root/usr/share/man/man${page##*.}/$page.gz"
  done
}

completions() {
  install -D -m 644 "$made/gradbus.bash" "$root/usr/share/bash-completion/completions/gradbus"
  ln -s gradbus "$root/usr/share/bash-completion/completions/gradbus-agent"
  ln -s gradbus "$root/usr/share/bash-completion/completions/gradbus-server"
  install -D -m 644 "$made/_gradbus" -t "$root/usr/share/zsh/vendor-completions"
  install -D -m 644 "$made/gradbus.fish" -t "$root/usr/share/fish/vendor_completions.d"
}

case $component in
  agent)
    units gradbus-agent
    install -D -m 644 deploy/debian/files/agent.toml -t "$root/etc/gradbus"
    manual gradbus-agent.8 gradbus-nccl.1
    ;;
  server)
    units gradbus-server gradbus-shard
    install -D -m 644 deploy/debian/files/{server,shard}.toml -t "$root/etc/gradbus"
    manual gradbus-server.8
    ;;
  cli)
    (cd "$made/man1" && ls) | grep -v nccl | while read -r page; do manual "$page"; done
    completions
    ;;
esac

install -D -m 644 deploy/debian/copyright -t "$doc"
gzip -9nc deploy/debian/changelog >"$doc/changelog.gz"
chmod 644 "$doc/changelog.gz"
if [[ -f deploy/debian/files/$package.overrides ]]; then
  install -D -m 644 "deploy/debian/files/$package.overrides" "$root/usr/share/lintian/overrides/$package"
fi
# Programs find the libraries in the system's folders, so they have no search path.
find "$root" -type f \( -perm -100 -o -name '*.so*' \) -print0 | while IFS= read -r -d '' file; do
  if readelf -d "$file" 2>/dev/null | grep -qE 'R(UN)?PATH'; then patchelf --remove-rpath "$file"; fi
done
find "$root" -name '*.so*' -type f -exec strip --strip-unneeded {} + -exec chmod 644 {} +
find "$root" -type f \( -perm -100 -o -name '*.so*' \) ! -name '*.sh' -exec strip --remove-section=.comment --remove-section=.note {} + 2>/dev/null || true
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
