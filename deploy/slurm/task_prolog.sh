#!/usr/bin/env bash
# TaskProlog of slurmd (slurm.conf: TaskProlog=): tells each task where the socket is. Slurm reads the export from the output.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"
echo "export GRADBUS_SOCKET=$run/agent.sock"
