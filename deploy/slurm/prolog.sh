#!/usr/bin/env bash
# Prolog of slurmd (slurm.conf: Prolog=, PrologFlags=Alloc): starts this node's agent for the first job on the node.
# Jobs that share the node share the agent. If the agent cannot start, the job is held and Slurm drains the node.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"

lock_state
: >"$state/jobs/$SLURM_JOB_ID"
agent_runs && exit 0

user=()
if [[ -n $agent_user ]]; then
  install -d -m 750 -o "$agent_user" -g "$agent_user" "$run"
  user=(setpriv --reuid "$agent_user" --regid "$agent_user" --init-groups)
else
  mkdir -p "$run"
fi
rm -f "$state/ready"
mkfifo "$state/ready"
# Its own session: slurmd ends what is left of the prolog's.
setsid "${user[@]}" "$agent" "${agent_options[@]}" --name "$SLURMD_NODENAME" --socket "$run/agent.sock" --ready-fd 8 \
  8>"$state/ready" 9>&- </dev/null >>"$log" 2>&1 &
echo $! >"$state/pid"
if ! read -r -t 30 _ <"$state/ready"; then
  rm -f "$state/jobs/$SLURM_JOB_ID"
  echo "gradbus: the agent of $SLURMD_NODENAME did not start: $(tail -n 1 "$log")" >&2
  exit 1
fi
