#!/usr/bin/env bash
# Boots systemd in two containers (systemd-nspawn) and goes through the life of the Debian packages: install, start, train,
# train on both, commands of the pages for operators, kill -9, upgrade, remove, purge. Each root is this machine's own under a
# writable layer, so nothing here is changed. A cable of the kernel (veth) joins the two, which have no other network.
#
#   scripts/boot_test.sh          needs build/packages (scripts/packages.sh), root, systemd-container, python3-torch,
#                                 build/sshd (scripts/setup.sh --frameworks)
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
refuse_other "${1:-}"
cd "$(dirname "$0")/.."
fail() { echo "boot_test.sh: $*" >&2; exit 1; }
[[ $(id -u) == 0 ]] || fail "needs root, for systemd-nspawn"
command -v systemd-nspawn >/dev/null || fail "systemd-nspawn is missing: apt-get install systemd-container"
[[ -x build/sshd/usr/sbin/sshd ]] || fail "build/sshd is missing: run scripts/setup.sh --frameworks"
compgen -G 'build/packages/gradbus-agent_*.deb' >/dev/null || fail "no packages: run scripts/packages.sh"

place=$(mktemp -d)
layer=$place/layer
nodes=(node-1 node-2)
network() { echo "gradbus-$$-$1"; }
# Each systemd needs a control group of its own. With version 1 it uses the hierarchy "systemd".
groups=/sys/fs/cgroup
[[ ! -d $groups/systemd ]] || groups=$groups/systemd
group() { echo "$groups/gradbus-$$-$1"; }
finish() {
  [[ -z ${second:-} ]] || { kill "$second" && wait "$second"; } 2>/dev/null || true
  for node in base "${nodes[@]}"; do
    umount -q "$layer/$node/root" || true
    ip netns delete "$(network "$node")" 2>/dev/null || true
    find "$(group "$node")" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
  umount -q "$layer" || true
  rm -rf "$place"
}
trap finish EXIT
mkdir "$layer"
mount -t tmpfs -o size=2g tmpfs "$layer"

# make_root NAME LOWER: a writable layer over these folders, at $layer/NAME/root.
make_root() {
  mkdir -p "$layer/$1"/{upper,work,root}
  mount -t overlay overlay -o "lowerdir=$2,upperdir=$layer/$1/upper,workdir=$layer/$1/work" "$layer/$1/root"
}
make_root base /
root=$layer/base/root

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
install -m 755 tests/boot/*.sh "$root/srv/boot"
printf '#!/bin/sh\nexec "$@"\n' | install -m 755 /dev/stdin "$root/srv/boot/bin/sudo"  # the steps run as root
ln -sf /srv/boot/bin/sudo "$root/usr/local/bin/sudo"                                     # also those by ssh

# What the page asks for before ssh is used: a user on each node, keys, and known hosts.
cp -r build/sshd/usr "$root/srv/boot/sshd"
getent passwd sshd >/dev/null || chroot "$root" useradd --system --home-dir /run/sshd sshd
chroot "$root" useradd --create-home --shell /bin/bash --password '*' trainer
ssh-keygen -q -t ed25519 -N '' -C trainer -f "$place/key"
ssh-keygen -q -t ed25519 -N '' -C host -f "$place/host"
echo "node-1,node-2,10.0.0.1,10.0.0.2 $(cat "$place/host.pub")" >"$place/known_hosts"
for user in root trainer; do
  home=$root$(chroot "$root" getent passwd $user | cut -d: -f6)
  rm -rf "$home/.ssh"
  install -d -m 700 "$home/.ssh"
  install -m 600 "$place/key" "$home/.ssh/id_ed25519"
  install -m 600 "$place/key.pub" "$home/.ssh/authorized_keys"
  install -m 600 "$place/known_hosts" "$home/.ssh/known_hosts"
  chroot "$root" chown -R $user: "${home#"$root"}/.ssh"
done
install -m 600 "$place/host" "$root/srv/boot/host_key"
printf '127.0.0.1 localhost\n10.0.0.1 node-1\n10.0.0.2 node-2\n' >"$root/etc/hosts"

rm -f "$root/etc/machine-id" "$root/usr/sbin/policy-rc.d"  # the latter forbids starting services in container images
umount "$root"

for node in "${nodes[@]}"; do
  make_root "$node" "$layer/base/upper:/"
  touch "$layer/$node/root/etc/machine-id"
  echo "$node" >"$layer/$node/root/etc/hostname"
  install -m 644 "tests/boot/$node.service" "$layer/$node/root/etc/systemd/system/boot-test.service"
  ip netns add "$(network "$node")"
  ip -n "$(network "$node")" link set lo up
done
ip -n "$(network node-1)" link add host0 type veth peer name host0 netns "$(network node-2)"
for number in 1 2; do
  ip -n "$(network node-$number)" address add 10.0.0.$number/24 dev host0
  ip -n "$(network node-$number)" link set host0 up
done

# boot NODE SECONDS
boot() {
  mkdir "$(group "$1")"
  echo $BASHPID >"$(group "$1")/cgroup.procs"
  exec timeout --kill-after=10 "$2" systemd-nspawn --quiet --directory="$layer/$1/root" --register=no --keep-unit \
    --machine="gradbus-boot-$1" --network-namespace-path="/run/netns/$(network "$1")" --resolv-conf=off \
    --link-journal=no --boot -- systemd.unit=boot-test.service systemd.firstboot=off >"$place/console-$1" 2>&1 </dev/null
}
(boot node-2 540) &
second=$!
(boot node-1 540) || true
root=$layer/node-1/root
cat "$root/srv/boot/output" 2>/dev/null || { tail -n 40 "$place"/console-*; fail "the system did not boot"; }
[[ $(cat "$root/srv/boot/status" 2>/dev/null) == 0 ]] || { tail -n 20 "$place"/console-*; fail "a step failed"; }
