#!/usr/bin/env bash
# The steps of scripts/boot_test.sh, in the booted system: packages are installed, used, upgraded and purged.
#
# /srv/boot has old/ and new/ packages, the example and the pages. Commands are those that the pages print: as_printed().
# Each step prints "ok: STEP"; the first that fails ends the test.
set -uo pipefail
cd /srv/boot
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root PATH=/srv/boot/bin:/usr/sbin:/usr/bin:/sbin:/bin

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
# as_printed PAGE HEADING [SED...]: the commands that the page leaves to this test, changed by sed where they name a place.
as_printed() {
  local page=$1 heading=$2 code words=()
  shift 2
  for change in "$@"; do words+=(-e "$change"); done
  code=$(python3 page_commands.py how-to/"$page".md "$heading") || return
  [[ ${#words[@]} == 0 ]] || code=$(sed "${words[@]}" <<<"$code")
  echo "$code"
  ${by:-env} bash -euo pipefail -c "$code"
}
by_trainer() { by='runuser -u trainer --' as_printed "$@"; }
pid_of() { systemctl show -p MainPID --value "$1"; }
is() { [[ $1 == "$2" ]] || { echo "\"$1\" is not \"$2\""; return 1; }; }

# Everything that the packages need is installed, so apt needs no network.
installs() { USER=trainer as_printed deploy-with-systemd "Install a node" '/^sudo apt-get update/d' 's#./packages/#./old/#'; }
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
starts() { as_printed deploy-with-systemd "Start one node" && until_true 20 answers; }
# However it was copied here.
token() {
  is "$(stat -c '%a %U' /etc/gradbus/token)" "400 gradbus" || return
  chown root /etc/gradbus/token && chmod 644 /etc/gradbus/token && systemd-tmpfiles --create gradbus-agent.conf
  is "$(stat -c '%a %U' /etc/gradbus/token)" "400 gradbus"
}
answers() { systemctl is-active gradbus-server gradbus-agent && [[ -S /run/gradbus/agent.sock ]]; }
stays() { sleep 3; is "$(systemctl show -p NRestarts --value gradbus-agent gradbus-server | paste -sd' ')" "0  0" && answers; }
closed() { is "$(stat -c '%a %U %G' /run/gradbus)" "750 gradbus gradbus" && is "$(stat -c '%a' /run/gradbus/agent.sock)" 660; }
trains() {
  by_trainer deploy-with-systemd "Train" && grep -q '"world_size": 2, "ranks_identical": true' log
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
# Two nodes are not here: the page's commands for the first and for another one, with this machine's address.
several() {
  local place='s/10\.0\.0\.[12]/127.0.0.1/g'
  as_printed deploy-with-systemd "Start several nodes" "$place" && until_true 20 answers && stays_with_settings
}
stays_with_settings() { gradbus status --json | grep -q '"healthy": *true'; }
observed() {
  sed -i '/^\[agent\]/a metrics_listen = "127.0.0.1:9401"' /etc/gradbus/agent.toml
  printf '[server]\nlisten = "127.0.0.1:7400"\nmetrics_listen = "127.0.0.1:9400"\n' >/etc/gradbus/server.toml
  systemctl restart gradbus-server gradbus-agent && until_true 20 answers &&
    until_true 20 curl -sf http://127.0.0.1:9401/readyz
}
long_job() {
  runuser -u trainer -- gradbus run --job train -np 2 -- python3 examples/digits/train.py --epochs 100000 &>/srv/boot/train.log &
  until_true 60 eval "gradbus jobs | grep -q 'train .*running'"
}
changes() { as_printed deploy-with-systemd "Change settings" && grep -q 'log-level is now "\?debug' log; }
watches() {
  local here="s/node-[123]\( node-[0-9]\)*/$(hostname)/g"
  as_printed watch-a-cluster "Take a node out of service" "$here" && as_printed upgrade-and-backup "Upgrade everything at once" "$here" &&
    as_printed monitor-a-cluster "Web page" && as_printed monitor-a-cluster "Logs" && as_printed capacity-planning "Measure a running job" 's/NAME/train/' &&
    as_printed protect-a-cluster "Give commands the token" 's/10\.0\.0\.1/127.0.0.1/; s#=token#=/etc/gradbus/token#'
}
# Each command between backticks in the runbook, with a lost node and a running job. `gradbus status` says 1 for a cluster
# that is not healthy; a job can only be stopped once.
runbook() {
  local command status done=0
  setpriv --reuid gradbus --regid gradbus --init-groups gradbus-agent --name node-x --socket /tmp/lost.sock \
    --bind 127.0.0.1:0 --coordinator 127.0.0.1:7400 --token-file /etc/gradbus/token 2>/dev/null &
  until_true 20 eval "gradbus status | grep 'node-x '" || return
  kill -9 $! && until_true 20 eval "(gradbus status || true) | grep 'node-x is lost'" || return
  while read -r command; do
    [[ $command != gradbus\ stop* ]] || continue
    command=$(sed "s/--forget NODE/--forget node-x/; s/NODE/$(hostname)/; s/NAME/train/; s/explain CODE/explain GB-P101/; s/DEVICE/lo/" <<<"$command")
    echo "\$ $command"
    bash -c "$command"
    status=$?
    [[ $status == 0 || ($status == 1 && $command == "gradbus status"*) ]] || { echo "$command: $status"; return 1; }
    done=$((done + 1))
  done < <(python3 page_commands.py how-to/runbook.md --inline)
  ((done >= 12)) && gradbus stop train && until_true 20 eval "! gradbus jobs | grep -q 'train .*running'"
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

useradd -m trainer
step "packages are installed" installs
step "a user, and nothing enabled" has_user
step "limits" limits
step "coordinator and agent start" starts
step "the token belongs to the daemons" token
step "they keep running" stays
step "the socket is closed to others" closed
step "two ranks train the digits" trains
grep accuracy log
step "a user outside the group is refused" refused
step "settings of several nodes" several
step "metrics" observed
step "a long job runs" long_job
step "commands of pages for operators" watches
step "commands of the runbook" runbook
step "a reload applies settings" changes
step "a shard starts" shard
step "a killed agent comes back" comes_back
step "two ranks train after it" trains
step "an upgrade restarts what runs and keeps settings" upgrades
step "two ranks train after the upgrade" trains
step "removal stops the daemons and keeps settings" removes
step "purging leaves nothing" purges
echo "all steps passed"
