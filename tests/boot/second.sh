#!/usr/bin/env bash
# Steps of the second booted system, which the first one starts by ssh: second.sh FUNCTION.
set -uo pipefail
source /srv/boot/common.sh

answers() { systemctl is-active gradbus-agent && [[ -S /run/gradbus/agent.sock ]]; }
# A daemon that does not move at all. The unit's half a minute is cut to two seconds.
hung_agent_comes_back() {
  local before drop_in=/run/systemd/system/gradbus-agent.service.d/watchdog.conf
  mkdir -p "$(dirname $drop_in)"
  printf '[Service]\nWatchdogSec=2\nTimeoutAbortSec=1\n' >$drop_in
  systemctl daemon-reload && systemctl restart gradbus-agent && until_true 20 answers || return
  before=$(pid_of gradbus-agent)
  kill -STOP "$before"
  until_true 30 eval "[[ \$(pid_of gradbus-agent) != 0 && \$(pid_of gradbus-agent) != $before ]] && answers" || return
  journalctl --no-pager -u gradbus-agent | grep "Watchdog timeout" || return
  rm $drop_in && systemctl daemon-reload
}
# This system alone, while the first one is busy. Afterwards it has the packages, and no token or service.
alone() {
  installs && limits && as_printed deploy-with-systemd "Start one node" && until_true 20 answers && hung_agent_comes_back &&
    systemctl disable --now gradbus-server gradbus-agent && rm /etc/gradbus/token
}
refused_without_token() {
  systemctl start gradbus-agent
  until_true 20 eval "journalctl -u gradbus-agent | grep -q 'GB-F104.*/etc/gradbus/token'"
}
# The agent's own settings, and a start with the token that the first node has sent.
joins() {
  is "$(stat -c '%a %U %G' /etc/gradbus/token)" "400 gradbus gradbus" && as_printed deploy-with-systemd "Start several nodes#3" &&
    until_true 20 answers
}
# installs_over FOLDER COMMAND...: installs what the folder has; the agent is another process then.
installs_over() {
  local before folder=$1
  shift
  before=$(pid_of gradbus-agent)
  "$@" && until_true 20 answers && [[ $(pid_of gradbus-agent) != "$before" ]] &&
    is "$(dpkg-query -W -f '${Version}' gradbus-agent)" "$(dpkg-deb -f "$folder"/gradbus-agent_*.deb Version)"
}
upgrades() { installs_over new as_printed upgrade-and-backup "Upgrade node by node#2"; }
goes_back() { installs_over old as_printed upgrade-and-backup "Go back"; }

"$@"
