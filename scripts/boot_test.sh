#!/usr/bin/env bash
# Boots systemd in a container (systemd-nspawn) and goes through the life of the Debian packages: install, start, train,
# commands of the
# pages for operators, kill -9, upgrade, remove, purge. The root is this machine's own under a writable layer, so nothing here is changed.
#
#   scripts/boot_test.sh          needs build/packages (scripts/packages.sh), root, systemd-container, python3-torch
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "boot_test.sh: $*" >&2; exit 1; }
[[ $(id -u) == 0 ]] || fail "needs root, for systemd-nspawn"
command -v systemd-nspawn >/dev/null || fail "systemd-nspawn is missing: apt-get install systemd-container"
compgen -G 'build/packages/gradbus-agent_*.deb' >/dev/null || fail "no packages: run scripts/packages.sh"

place=$(mktemp -d)
finish() {
  umount -q "$place/layer/root" || true
  umount -q "$place/layer" || true
  rm -rf "$place"
}
trap finish EXIT
mkdir "$place/layer"
mount -t tmpfs -o size=1g tmpfs "$place/layer"
mkdir "$place"/layer/{upper,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$place/layer/upper,workdir=$place/layer/work" "$place/layer/root"
root=$place/layer/root

# The same packages with a higher version, for the upgrade.
mkdir -p "$root"/srv/boot/{old,new}
for package in build/packages/*.deb; do
  cp "$package" "$root/srv/boot/old"
  dpkg-deb --raw-extract "$package" "$place/raw"
  sed -i -E 's/^Version: .*/&+upgrade/; s/\(= [0-9.]+\)/(>= 0)/g' "$place/raw/DEBIAN/control"
  dpkg-deb --root-owner-group -Z none --build "$place/raw" "$root/srv/boot/new/$(basename "$package")" >/dev/null
  rm -rf "$place/raw"
done
mkdir "$root"/srv/boot/{examples,bin}
cp -r examples/digits examples/common "$root/srv/boot/examples"
cp -r docs/how-to tests/boot/page_commands.py "$root/srv/boot"
install -m 755 tests/boot/inside.sh "$root/srv/boot"
printf '#!/bin/sh\nexec "$@"\n' | install -m 755 /dev/stdin "$root/srv/boot/bin/sudo"  # the steps run as root
cat >"$root/etc/systemd/system/boot-test.service" <<'EOF'
[Unit]
Description=The steps of scripts/boot_test.sh
After=basic.target dbus.socket systemd-tmpfiles-setup.service
Wants=dbus.socket systemd-tmpfiles-setup.service
Requires=basic.target
[Service]
Type=oneshot
TimeoutStartSec=400
StandardOutput=file:/srv/boot/output
StandardError=inherit
ExecStart=/srv/boot/inside.sh
ExecStopPost=/bin/sh -c 'echo "$EXIT_STATUS" >/srv/boot/status; systemctl --no-block poweroff'
EOF
rm -f "$root/etc/machine-id" "$root/usr/sbin/policy-rc.d"  # the latter forbids starting services in container images
touch "$root/etc/machine-id"
timeout --kill-after=10 450 systemd-nspawn --quiet --directory="$root" --register=no --keep-unit --machine=gradbus-boot \
  --private-network --link-journal=no --boot -- systemd.unit=boot-test.service systemd.firstboot=off \
  >"$place/console" 2>&1 </dev/null || true
cat "$root/srv/boot/output" 2>/dev/null || { tail -40 "$place/console"; fail "the system did not boot"; }
[[ $(cat "$root/srv/boot/status" 2>/dev/null) == 0 ]] || { tail -20 "$place/console"; fail "a step failed"; }
