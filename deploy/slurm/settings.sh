# What the three scripts share; sourced. /etc/gradbus/slurm.env may set the variables, for example GRADBUS_SLURM_USER=.
# shellcheck shell=bash
if [[ -e ${GRADBUS_SLURM_SETTINGS:-/etc/gradbus/slurm.env} ]]; then
  . "${GRADBUS_SLURM_SETTINGS:-/etc/gradbus/slurm.env}"
fi
agent=${GRADBUS_SLURM_AGENT:-/usr/bin/gradbus-agent}
agent_user=${GRADBUS_SLURM_USER-gradbus}           # empty: root
run=${GRADBUS_SLURM_RUN:-/run/gradbus}             # the agent's directory, with its socket
state=${GRADBUS_SLURM_STATE:-/run/gradbus-slurm}   # root's: the jobs of this node, and the agent's process id
log=${GRADBUS_SLURM_LOG:-/var/log/gradbus-agent.log}
read -ra agent_options <<<"${GRADBUS_SLURM_OPTIONS:---config /etc/gradbus/agent.toml}"
export GRADBUS_TOKEN_FILE=${GRADBUS_TOKEN_FILE:-/etc/gradbus/token}

# One script at a time; descriptor 9 has the lock.
lock_state() {
  mkdir -p -m 700 "$state" "$state/jobs"
  exec 9>"$state/lock"
  flock 9
}

# Whether the process of the pid file is an agent, and not another program with a number that was used again.
agent_runs() {
  local pid
  pid=$(cat "$state/pid" 2>/dev/null) && [[ $(readlink "/proc/$pid/exe" 2>/dev/null) == "$(readlink -f "$agent")" ]]
}
