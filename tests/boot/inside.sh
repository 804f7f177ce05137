#!/usr/bin/env bash
# The steps of scripts/boot_test.sh, in the first booted system: packages are installed, used, upgraded and purged. Steps of
# the second system run there by ssh (second.sh). Each step prints "ok: STEP"; the first that fails ends the test.
set -uo pipefail
source /srv/boot/common.sh

fail() {
  echo "FAILED: $*"
  systemctl --no-pager --full status 'gradbus-*' | tail -60
  journalctl --no-pager -n 40 -u 'gradbus-*'
  ssh node-2 journalctl --no-pager -n 20 -u gradbus-agent
  exit 1
}
# step TEXT COMMAND...
step() {
  local text=$1
  shift
  "$@" >/srv/boot/log 2>&1 || { cat /srv/boot/log; fail "$text: $*"; }
  echo "ok: $text ($SECONDS s)"
}
by_trainer() { by='runuser -u trainer --' as_printed "$@"; }
# on_second FUNCTION: a function of second.sh.
on_second() { ssh node-2 /srv/boot/second.sh "$@"; }

has_user() { getent passwd gradbus && is "$(systemctl is-enabled gradbus-agent gradbus-server gradbus-shard | sort -u)" disabled; }
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
# Node by node: the second one is drained, upgraded, and used again. Then it goes back, in the same order.
is_drained() { gradbus status --json | python3 -c 'import json, sys
drained = {one["node"]: one["reason"] for one in json.load(sys.stdin)["drained_nodes"]}
print(drained)
sys.exit(not drained.get(sys.argv[1], "").endswith(": upgrade"))' "$1"; }
none_is_drained() { ! is_drained node-1 && ! is_drained node-2; }
one_node() {
  as_printed upgrade-and-backup "Upgrade node by node#1" && is_drained node-2 && on_second "$1" &&
    until_true 20 two_agents && is_drained node-2 && as_printed upgrade-and-backup "Upgrade node by node#3" && none_is_drained
}
everything_at_once() {
  local here='s/node-2 node-3/node-2/; s/node-3/node-2/g'
  as_printed upgrade-and-backup "Upgrade everything at once#1" "$here" && is_drained node-1 && on_second upgrades && upgrades &&
    until_true 20 two_agents && is_drained node-1 && is_drained node-2 &&
    as_printed upgrade-and-backup "Upgrade everything at once#2" "$here" && none_is_drained
}
upgrades() {
  before=$(pid_of gradbus-agent)
  echo '# changed by the administrator' >>/etc/gradbus/agent.toml
  as_printed deploy-with-systemd "Upgrade and remove#1" && until_true 20 answers && [[ $(pid_of gradbus-agent) != "$before" ]] &&
    grep -q administrator /etc/gradbus/agent.toml && is "$(systemctl is-enabled gradbus-agent)" enabled &&
    is "$(dpkg-query -W -f '${Version}' gradbus-agent)" "$(dpkg-deb -f new/gradbus-agent_*.deb Version)" &&
    is "$(systemctl is-active gradbus-shard)" active && is "$(systemctl is-enabled gradbus-shard)" disabled
}
# Two nodes, with the page's commands on each. The second one has had its own life until then.
second_is_ready() {
  wait "$second"
  local status=$?
  cat second.log
  return $status
}
several() {
  as_printed deploy-with-systemd "Start several nodes#1" && until_true 20 answers && on_second refused_without_token &&
    as_printed deploy-with-systemd "Start several nodes#2" && on_second joins && until_true 20 two_agents && gradbus status
}
two_agents() { gradbus status --json | python3 -c 'import json, sys; s = json.load(sys.stdin)
sys.exit(not s["healthy"] or sorted(one["name"] for one in s["agents"]) != ["node-1", "node-2"])'; }
trains_on_both() {
  by_trainer deploy-with-systemd "Start several nodes#4" && grep -q '"world_size": 4, "ranks_identical": true' log &&
    ranks_of_both
}
trains_by_page() {
  by_trainer run-daemons "Start a job#1" 's/-np 8/-np 4/; s/node-a:4,node-b:4/node-1:2,node-2:2/' \
    's#python train.py#python3 $PWD/examples/digits/train.py --epochs 2#' &&
    grep -q '"world_size": 4, "ranks_identical": true' log && ranks_of_both
}
ranks_of_both() { gradbus status --json | python3 -c 'import collections, json, sys
jobs = [collections.Counter(rank["agent"] for rank in job["ranks"]) for job in json.load(sys.stdin)["jobs"]]
print(jobs)
sys.exit([2, 2] not in [sorted(job.values()) for job in jobs])'; }
observed() {
  sed -i '/^\[agent\]/a metrics_listen = "127.0.0.1:9401"' /etc/gradbus/agent.toml
  printf '[server]\nlisten = "10.0.0.1:7400"\nmetrics_listen = "127.0.0.1:9400"\n' >/etc/gradbus/server.toml
  systemctl restart gradbus-server gradbus-agent && until_true 20 answers &&
    until_true 20 curl -sf http://127.0.0.1:9401/readyz
}
long_job() {
  runuser -u trainer -- gradbus run --job train -np 2 -- python3 examples/digits/train.py --epochs 100000 &>/srv/boot/train.log &
  until_true 60 eval "gradbus jobs | grep -q 'train .*running'"
}
# Both drop-ins of the page for devices, one after the other. No device is here, so the agent just runs with them.
devices() {
  local drop_ins=/etc/systemd/system/gradbus-agent.service.d
  as_printed deploy-with-systemd "Let GPUs and RDMA through" && until_true 20 answers && stays &&
    is "$(systemctl show -p PrivateDevices --value gradbus-agent)" no &&
    systemctl show -p DeviceAllow --value gradbus-agent | grep char-nvidia-uvm &&
    as_printed deploy-with-systemd "Let GPUs and RDMA through" 's/cuda/rdma/' && until_true 20 answers && stays &&
    systemctl show -p DeviceAllow --value gradbus-agent | grep infiniband &&
    rm $drop_ins/cuda.conf $drop_ins/rdma.conf && systemctl daemon-reload && systemctl restart gradbus-agent && until_true 20 answers
}
# A rank that is killed: each daemon's record of it has job, rank and code as fields, by which journalctl finds it.
journal_fields() {
  local pid unit
  runuser -u trainer -- gradbus run --job journal -np 2 -- python3 examples/digits/train.py --epochs 100000 &>/srv/boot/journal.log &
  until_true 60 eval "gradbus jobs | grep -q 'journal .*running'" || return
  pid=$(gradbus status --json | python3 -c 'import json, sys
print(*(rank["pid"] for job in json.load(sys.stdin)["jobs"] if job["job"] == "journal" for rank in job["ranks"] if rank["rank"] == 1))')
  kill -9 "$pid" || return
  for unit in gradbus-agent gradbus-server; do
    until_true 10 eval "journalctl -u $unit GRADBUS_JOB=journal GRADBUS_RANK=1 GRADBUS_CODE=GB-P101 | grep 'rank 1'" || return
  done
  journalctl -u gradbus-agent GRADBUS_JOB=journal -o json | python3 -c 'import json, sys
records = [json.loads(line) for line in sys.stdin]
lost = [record for record in records if record.get("GRADBUS_CODE") == "GB-P101"]
print(lost)
assert lost and all("job \"journal\"" in record["MESSAGE"] for record in records)
assert {(record["GRADBUS_RANK"], record["SYSLOG_IDENTIFIER"]) for record in lost} == {("1", "gradbus-agent")}
assert all(record["PRIORITY"] in "34" for record in lost)'
}
# Reloads under the running job: the log level, and then another token on both nodes.
changes() {
  as_printed deploy-with-systemd "Change settings" && grep -q 'log-level is now "\?debug' log && goes_on
}
new_token() {
  openssl rand -hex 32 | install -m 400 -o gradbus -g gradbus /dev/stdin /etc/gradbus/token || return
  by=env as_printed deploy-with-systemd "Start several nodes#2" && systemctl reload gradbus-server && gradbus status &&
    systemctl reload gradbus-agent && ssh node-2 systemctl reload gradbus-agent && until_true 20 took_token && goes_on
}
took_token() {
  journalctl -u gradbus-agent | grep "use the new cluster token" && ssh node-2 journalctl -u gradbus-agent | grep "use the new cluster token"
}
# The job "train" has done more operations a moment later.
operations() { gradbus status --json | python3 -c 'import json, sys
(job,) = [one for one in json.load(sys.stdin)["jobs"] if one["job"] == "train" and one["state"] == "running"]
print(min(rank["operations"] for rank in job["ranks"]))'; }
goes_on() {
  local before
  before=$(operations) && until_true 20 eval "(( \$(operations) > $before ))"
}
watches() {
  local here='s/node-2 node-3/node-2/; s/node-3/node-2/g'
  # Its last screen is the one that a signal ends; 124 is the status of timeout.
  as_printed run-daemons "Start a job#2" 's/^gradbus status --watch/timeout 3 & || [[ $? == 124 ]]/; s/NAME/train/' || return
  as_printed watch-a-cluster "Take a node out of service" "$here" &&
    as_printed monitor-a-cluster "Web page" && as_printed monitor-a-cluster "Logs" && as_printed capacity-planning "Measure a running job" 's/NAME/train/' &&
    as_printed protect-a-cluster "Give commands the token" 's#=token#=/etc/gradbus/token#'
}
# Each command between backticks in the runbook, with a lost node and a running job. `gradbus status` says 1 for a cluster
# that is not healthy; a job can only be stopped once.
runbook() {
  local command status done=0
  setpriv --reuid gradbus --regid gradbus --init-groups gradbus-agent --name node-x --socket /tmp/lost.sock \
    --bind 127.0.0.1:0 --coordinator 10.0.0.1:7400 --token-file /etc/gradbus/token 2>/dev/null &
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
removes() {
  as_printed deploy-with-systemd "Upgrade and remove#2" && is "$(systemctl is-active gradbus-agent)" inactive && [[ -f /etc/gradbus/agent.toml ]] &&
    [[ ! -e /lib/systemd/system/gradbus-agent.service && ! -e /usr/bin/gradbus ]]
}
purges() {
  as_printed deploy-with-systemd "Upgrade and remove#3" && [[ -f /etc/gradbus/token ]] &&
    [[ ! -e /etc/gradbus/agent.toml && ! -e /etc/gradbus/server.toml && ! -e /var/lib/gradbus ]] &&
    is "$(find /etc/systemd -name 'gradbus*')" "" && is "$(find /usr/lib/python3/dist-packages/gradbus 2>/dev/null)" ""
}

step "the second system is up" until_true 60 ssh node-2 true
ssh node-2 /srv/boot/second.sh alone &>second.log &
second=$!
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
step "a hung agent comes back, on the second node" second_is_ready
step "two nodes with one token" several
step "four ranks on two nodes train the digits" trains_on_both
grep accuracy log
step "the same by the page for daemons" trains_by_page
step "metrics" observed
step "job, rank and code are fields of the journal" journal_fields
step "a long job runs" long_job
step "commands of pages for operators" watches
step "a reload applies settings under a job" changes
step "a reload takes a new token under a job" new_token
step "commands of the runbook" runbook
step "drop-ins for GPUs and RDMA" devices
step "a shard starts" shard
step "a killed agent comes back" comes_back
step "two ranks train after it" trains
step "a drained node is upgraded, and takes jobs again" one_node upgrades
step "the node goes back to the older packages" one_node goes_back
step "an upgrade of everything restarts what runs and keeps settings" everything_at_once
step "four ranks train after the upgrade" trains_on_both
step "removal stops the daemons and keeps settings" removes
step "purging leaves nothing" purges
echo "all steps passed"
