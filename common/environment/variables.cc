#include "common/environment/variables.h"

namespace gradbus {
namespace {

constexpr Variable kVariables[] = {
    {"GRADBUS_SOCKET", "ranks, `gradbus`", "the agent's socket",
     "`/run/gradbus/agent.sock`, else `$XDG_RUNTIME_DIR/gradbus/agent.sock`"},
    {"GRADBUS_JOB", "ranks", "the name of the job", "from the launcher's variables"},
    {"GRADBUS_RANK", "ranks", "number of the rank", "from the launcher's variables"},
    {"GRADBUS_SIZE", "ranks", "how many ranks the job has", "from the launcher's variables"},
    {"GRADBUS_LOCAL_RANK", "ranks", "number of the rank on its node; `gradbus run` sets it", "-"},
    {"GRADBUS_LOCAL_SIZE", "ranks", "ranks of the node; `gradbus run` sets it", "-"},
    {"GRADBUS_START_TIMEOUT", "ranks", "seconds to wait for all ranks", "60"},
    {"GRADBUS_OP_TIMEOUT", "ranks",
     "seconds to wait for an operation. It ends deadlocks; deaths are detected separately", "1800"},
    {"GRADBUS_AGENT_TIMEOUT", "ranks",
     "seconds until a waiting rank gives up on an agent that does not read its socket", "60"},
    {"GRADBUS_ELASTIC_TIMEOUT", "ranks",
     "seconds in which `gradbus.elastic` must have all ranks again after a loss", "60"},
    {"GRADBUS_MODE", "ranks", "the [sync mode](modes.md), or the rules of a policy file", "`sync`"},
    {"GRADBUS_COMPRESSION", "ranks",
     "the [codec](codecs.md) between nodes, `auto`, a list of codecs, or the rules of a policy "
     "file",
     "none: dense"},
    {"GRADBUS_SCHEDULE", "PyTorch ranks, `gradbus_apply_schedule()`",
     "the [schedule](../concepts/schedules.md) of the gradients' exchange", "`auto`"},
    {"GRADBUS_PLAN", "PyTorch ranks",
     "1: schedule `auto` asks the coordinator for a [plan](../concepts/schedules.md) and tries it",
     "0"},
    {"GRADBUS_AUTOTUNE", "PyTorch ranks",
     "1: [tries schedules](../concepts/schedules.md#autotune); also HOROVOD_AUTOTUNE", "0"},
    {"GRADBUS_RECORD", "PyTorch ranks",
     "file for [what steps compute](../how-to/plan-a-cluster.md#ask-what-if)", "-"},
    {"GRADBUS_AUTOTUNE_LOG", "PyTorch ranks",
     "file for the time of each trial; also HOROVOD_AUTOTUNE_LOG", "-"},
    {"GRADBUS_AUTOTUNE_WARMUP_SAMPLES", "PyTorch ranks",
     "samples before the first setting is measured; also HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1"},
    {"GRADBUS_AUTOTUNE_STEPS_PER_SAMPLE", "PyTorch ranks",
     "steps of a setting that count; also HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "10"},
    {"GRADBUS_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "PyTorch ranks",
     "how many settings are tried; also HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "20"},
    {"GRADBUS_FENCE_EVERY", "PyTorch ranks",
     "steps after which `flush()` is called without a call of the program", "0: never"},
    {"GRADBUS_DEVICE_MEMORY", "PyTorch ranks",
     "1: gradients are in [GPU memory of the agent](../how-to/train-on-gpus.md)", "0"},
    {"GRADBUS_CUDA_PLUGIN", "agents, `gradbus`", "file of the CUDA plug-in", "beside the programs"},
    {"GRADBUS_NCCL", "agents", "library to use for [NCCL](../how-to/use-nccl.md)",
     "`libnccl.so.2`"},
    {"GRADBUS_COORDINATOR", "`gradbus`", "address of the coordinator",
     "of `/etc/gradbus`, else 127.0.0.1:7400"},
    {"GRADBUS_TOKEN_FILE", "daemons, `gradbus`",
     "file of the [cluster token](../concepts/security.md)", "for commands `/etc/gradbus/token`"},
    {"GRADBUS_VARIABLES_REPORTED", "all programs",
     "unknown variables that a parent process has reported; `gradbus` sets it", "-"},
};

// Of scripts, tests, examples and deploy/, which start programs that inherit them.
constexpr ToolVariable kToolVariables[] = {
    {"GRADBUS_BIN", "folder of the programs that scripts, tests and examples start"},
    {"GRADBUS_CLI", "the `gradbus` program that scripts/bench measures"},
    {"GRADBUS_CUDA_DOUBLE", "tests: how many GPUs the double of CUDA has, or what fails there"},
    {"GRADBUS_CUDA_DOUBLE_FILE", "tests: file that the double of CUDA shares between processes"},
    {"GRADBUS_CUDA_DOUBLE_REFUSES", "tests: what the double of CUDA refuses"},
    {"GRADBUS_EXPECT", "tests: where ranks expect tensors of GPUs"},
    {"GRADBUS_FUZZ_CODEC", "scripts/fuzz.sh: the codec that is fuzzed"},
    {"GRADBUS_GPU_PYTHON", "scripts/gpu.sh: the Python that has PyTorch"},
    {"GRADBUS_NCCL_DOUBLE", "tests: what fails in the double of NCCL"},
    {"GRADBUS_NCCL_DOUBLE_FILE", "tests: file that the double of NCCL shares between processes"},
    {"GRADBUS_PICTURES", "tests: folder for pictures of pages"},
    {"GRADBUS_SIM_SEED", "tests/sim: the seed to run again"},
    {"GRADBUS_SLURM_AGENT", "deploy/slurm: the agent's program"},
    {"GRADBUS_SLURM_LOG", "deploy/slurm: folder of logs"},
    {"GRADBUS_SLURM_OPTIONS", "deploy/slurm: options of the agent"},
    {"GRADBUS_SLURM_RUN", "deploy/slurm: folder of the agents' sockets"},
    {"GRADBUS_SLURM_SETTINGS", "deploy/slurm: file with the other settings"},
    {"GRADBUS_SLURM_STATE", "deploy/slurm: folder of state"},
    {"GRADBUS_SLURM_USER", "deploy/slurm: the user of agents"},
    {"GRADBUS_STAGING_DOUBLE_REFUSES", "tests: what the double of staging buffers refuses"},
    {"GRADBUS_TEST_SHARED_BY", "tests of memory that processes share"},
    {"GRADBUS_TEST_SHARED_BYTES", "tests of memory that processes share"},
    {"GRADBUS_TEST_SHARED_DESCRIPTOR", "tests of memory that processes share"},
    {"GRADBUS_TEST_SHARED_EVENT", "tests of memory that processes share"},
    {"GRADBUS_TEST_SHARED_HOW", "tests of memory that processes share"},
    {"GRADBUS_TEST_SHARED_MEMORY", "tests of memory that processes share"},
    {"GRADBUS_VM_NOTE", "tests/vm: file for what the machine has shown"},
};

// Each is a variable as well. scripts/reference.py compares these lists with the options' tables.
constexpr const char* kAgentOptions[] = {
    "ready-fd",       "exit-with-parent",   "metrics-listen",
    "log-level",      "log-format",         "snapshots",
    "snapshot-every", "snapshot-keep",      "coordinator",
    "shard",          "token-file",         "insecure-i-understand",
    "socket",         "socket-mode",        "name",
    "bind",           "transport",          "bandwidth",
    "streams",        "queue-pairs",        "peer-timeout-ms",
    "return-ms",      "congestion-control", "local-links",
    "clients-max",    "shm-bytes-max",      "huge-pages",
    "device-sharing", "health-listen",      "nccl-timeout-ms",
};
constexpr const char* kServerOptions[] = {
    "late-mode",
    "late-percent",
    "late-seconds",
    "loss-percent",
    "role",
    "listen",
    "token-file",
    "insecure-i-understand",
    "state-dir",
    "heartbeat-ms",
    "lease-ms",
    "chunk-kib",
    "algorithm",
    "deterministic",
    "nccl",
    "equal-shards",
    "keep-shards",
    "path-latency-us",
    "path-mbit",
    "metrics-listen",
    "prometheus-url",
    "log-level",
    "log-format",
    "ready-fd",
    "exit-with-parent",
};

}  // namespace

std::span<const Variable> variables() { return kVariables; }
std::span<const ToolVariable> tool_variables() { return kToolVariables; }
std::span<const char* const> agent_options() { return kAgentOptions; }
std::span<const char* const> server_options() { return kServerOptions; }

}  // namespace gradbus
