#!/usr/bin/env bash
# Epilog of slurmd (slurm.conf: Epilog=): ends this node's agent after the last job on the node.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"

lock_state
rm -f "$state/jobs/$SLURM_JOB_ID"
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
