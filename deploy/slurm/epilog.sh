#!/usr/bin/env bash
# Epilog of slurmd (slurm.conf: Epilog=): ends this node's agent after the last job on the node.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"

# Whether Slurm says that a job runs no longer. Without an answer, it runs.
has_ended() {
  local ended='BOOT_FAIL|CANCELLED|COMPLETED|COMPLETING|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|TIMEOUT'
  timeout 10 scontrol --oneliner show job "$1" 2>&1 | grep -qE "JobState=($ended)|Invalid job id"
}

lock_state
rm -f "$state/jobs/$SLURM_JOB_ID"
# A job whose epilog failed is still listed: without this, the agent would never end.
for job in $(ls "$state/jobs"); do
  if has_ended "$job"; then rm -f "$state/jobs/$job"; fi
done
[[ -z $(ls "$state/jobs") ]] || exit 0
agent_runs || exit 0
pid=$(<"$state/pid")
kill -TERM "$pid"
for ((i = 0; i < 200; i++)); do  # 20 s
  agent_runs || break
  sleep 0.1
done
agent_runs && kill -KILL "$pid"
rm -f "$state/pid"
