#!/usr/bin/env bash
# The steps of scripts/boot_test.sh, in the booted system: packages are installed, used, upgraded and purged.
#
# /srv/boot has old/ and new/ packages and the example. Each step prints "ok: STEP"; the first that fails ends the test.
set -uo pipefail
cd /srv/boot
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin

fail() {
  echo "FAILED: $*"
  systemctl --no-pager --full status 'gradbus-*' | tail -60
  journalctl --no-pager -n 40 -u 'gradbus-*'
  exit 1
}
# step TEXT COMMAND...
step() {
  local text=$1
  shift
  "$@" >/srv/boot/log 2>&1 || { cat /srv/boot/log; fail "$text: $*"; }
  echo "ok: $text ($SECONDS s)"
}
# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}
pid_of() { systemctl show -p MainPID --value "$1"; }
is() { [[ $1 == "$2" ]] || { echo "\"$1\" is not \"$2\""; return 1; }; }

installs() { dpkg -i old/*.deb; }
has_user() { getent passwd gradbus && is "$(systemctl is-enabled gradbus-agent gradbus-server gradbus-shard | sort -u)" disabled; }
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
token() {
  openssl rand -hex 32 | install -m 644 /dev/stdin /etc/gradbus/token
  systemd-tmpfiles --create gradbus-agent.conf
  is "$(stat -c '%a %U' /etc/gradbus/token)" "400 gradbus"
}
answers() { systemctl is-active gradbus-server gradbus-agent && [[ -S /run/gradbus/agent.sock ]]; }
starts() { systemctl enable --now gradbus-server gradbus-agent && until_true 20 answers; }
stays() { sleep 3; is "$(systemctl show -p NRestarts --value gradbus-agent gradbus-server | paste -sd' ')" "0  0" && answers; }
closed() { is "$(stat -c '%a %U %G' /run/gradbus)" "750 gradbus gradbus" && is "$(stat -c '%a' /run/gradbus/agent.sock)" 660; }
trains() {
  runuser -u trainer -- timeout 100 gradbus run -np 2 -- /usr/bin/python3 digits/train.py --epochs 2 &&
    grep -q '"world_size": 2, "ranks_identical": true' log
}
refused() {
  runuser -u nobody -- python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("/run/gradbus/agent.sock")'
  [[ $? == 1 ]] && grep -q "PermissionError: .Errno 13" log
}
comes_back() {
  local before
  before=$(pid_of gradbus-agent)
  kill -9 "$before"
  until_true 20 eval "[[ \$(pid_of gradbus-agent) != 0 && \$(pid_of gradbus-agent) != $before ]] && answers" &&
    is "$(systemctl show -p NRestarts --value gradbus-agent)" 1
}
upgrades() {
  before=$(pid_of gradbus-agent)
  echo '# changed by the administrator' >>/etc/gradbus/agent.toml
  dpkg -i new/*.deb && until_true 20 answers && [[ $(pid_of gradbus-agent) != "$before" ]] &&
    grep -q administrator /etc/gradbus/agent.toml && is "$(systemctl is-enabled gradbus-agent)" enabled &&
    is "$(dpkg-query -W -f '${Version}' gradbus-agent)" "$(dpkg-deb -f new/gradbus-agent_*.deb Version)" &&
    is "$(systemctl is-active gradbus-shard)" active && is "$(systemctl is-enabled gradbus-shard)" disabled
}
shard() { systemctl start gradbus-shard && sleep 2 && is "$(systemctl is-active gradbus-shard)" active; }
names=(gradbus gradbus-agent gradbus-server python3-gradbus libgradbus-dev libgradbus0)
removes() {
  dpkg -r "${names[@]}" && is "$(systemctl is-active gradbus-agent)" inactive && [[ -f /etc/gradbus/agent.toml ]] &&
    [[ ! -e /lib/systemd/system/gradbus-agent.service && ! -e /usr/bin/gradbus ]]
}
purges() {
  dpkg -P "${names[@]}" && [[ ! -e /etc/gradbus/agent.toml && ! -e /etc/gradbus/server.toml && ! -e /var/lib/gradbus ]] &&
    is "$(find /etc/systemd -name 'gradbus*')" "" && is "$(find /usr/lib/python3/dist-packages/gradbus 2>/dev/null)" ""
}

step "packages are installed" installs
step "a user, and nothing enabled" has_user
step "limits" limits
useradd -m -G gradbus trainer
step "the token belongs to the daemons" token
step "coordinator and agent start" starts
step "they keep running" stays
step "the socket is closed to others" closed
step "two ranks train the digits" trains
grep accuracy log
step "a user outside the group is refused" refused
step "a shard starts" shard
step "a killed agent comes back" comes_back
step "two ranks train after it" trains
step "an upgrade restarts what runs and keeps settings" upgrades
step "two ranks train after the upgrade" trains
step "removal stops the daemons and keeps settings" removes
step "purging leaves nothing" purges
echo "all steps passed"
