#!/usr/bin/env bash
# What the steps of both nodes use (inside.sh, second.sh). /srv/boot has old/ and new/ packages, the example and the pages.
# Commands are those that the pages print: as_printed().
cd /srv/boot || exit
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root PATH=/srv/boot/bin:/usr/sbin:/usr/bin:/sbin:/bin

# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}
# as_printed PAGE HEADING [SED...]: the commands that the page leaves to this test, changed by sed where they name a place.
# HEADING#2 is the second block below the heading.
as_printed() {
  local page=$1 heading=$2 code words=()
  shift 2
  for change in "$@"; do words+=(-e "$change"); done
  code=$(python3 page_commands.py how-to/"$page".md "$heading") || return
  [[ ${#words[@]} == 0 ]] || code=$(sed "${words[@]}" <<<"$code")
  echo "$code"
  ${by:-env} bash -euo pipefail -c "$code"
}
pid_of() { systemctl show -p MainPID --value "$1"; }
is() { [[ $1 == "$2" ]] || { echo "\"$1\" is not \"$2\""; return 1; }; }

# Everything that the packages need is installed, so apt needs no network.
installs() { USER=trainer as_printed deploy-with-systemd "Install a node" '/^sudo apt-get update/d' 's#./packages/#./old/#'; }
# Where the machine may not raise limits (no CAP_SYS_RESOURCE), the units get what there is.
limits() {
  prlimit --memlock=unlimited:unlimited true && prlimit --nofile=65536:65536 true && return
  for unit in gradbus-agent gradbus-server gradbus-shard; do
    mkdir -p /run/systemd/system/$unit.service.d
    printf '[Service]\nLimitMEMLOCK=%s\nLimitNOFILE=%s\n' "$(ulimit -H -l | sed 's/unlimited/infinity/; /^[0-9]/s/$/K/')" \
      "$(ulimit -H -n)" >/run/systemd/system/$unit.service.d/limits.conf
  done
  systemctl daemon-reload
}
