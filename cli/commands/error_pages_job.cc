// Pages of errors of jobs, operations, peers and shared memory.
#include "cli/commands/error_pages.h"

#include <algorithm>

namespace gradbus {
namespace {

constexpr ErrorPage kJobPages[] = {
    {"J401", "Rank or world size is missing, not a number, or out of range.",
     "The launch: variables of a launcher, or arguments of init().",
     "Run gradbus env in the same place. Ranks count from 0 to world size - 1.",
     "GRADBUS_RANK=4 with GRADBUS_SIZE=4: the last rank is 3."},
    {"J402", "Two processes joined one job as the same rank.",
     "The launch: a job was started twice under one name, or a rank is set by hand.",
     "Give the second job its own GRADBUS_JOB. End processes of the first.",
     "Two terminals run the same script with GRADBUS_JOB=test."},
    {"J403", "Ranks of one job have different world sizes.",
     "The launch: two launches share one job name.",
     "Start all ranks with one launcher and one world size. Use a new job name.",
     "torchrun --nproc-per-node 4 on one node and 2 on the other."},
    {"J404", "Some ranks did not join before the start timeout.",
     "The missing ranks: they crashed, wait in a queue, or load data before init().",
     "Look at the output of the ranks that the message names. Raise GRADBUS_START_TIMEOUT.",
     "Rank 3 ended with an ImportError: correct it; the others waited for it."},
    {"J405", "Somebody stopped the job with gradbus stop.", "The person in the message.",
     "Ask that person. Start the job again when it may run.",
     "gradbus stop by alice on node-1: maintenance at noon."},
    {"J406", "No job with this name is known to the coordinator.",
     "The caller: a typing error, another coordinator, or the job ended long ago.",
     "Run gradbus status for the names. Check --coordinator.",
     "gradbus stop train although the job is called run-kobatilu."},
    {"J407",
     "A process found a world of one rank, although a launcher has set variables of several. It "
     "trains alone, and so does every other process.",
     "The launch: init() does not read this launcher's variables, or some are missing.",
     "Set GRADBUS_RANK, GRADBUS_SIZE and GRADBUS_JOB for each process, or use gradbus run. If one "
     "process is right, set GRADBUS_RANK=0 GRADBUS_SIZE=1.",
     "flux run -n 4 sh -c 'GRADBUS_RANK=$FLUX_TASK_RANK GRADBUS_SIZE=$FLUX_JOB_SIZE "
     "GRADBUS_JOB=$FLUX_JOB_ID python3 train.py'"},
    {"J408", "A user tried to join, stop or change a job that belongs to another user.",
     "The caller: another user's job has this name, or the ranks run as different users.",
     "Run all ranks as one user. Set another GRADBUS_JOB. Ask the owner that the error names.",
     "alice and bob both set GRADBUS_JOB=train: bob sets GRADBUS_JOB=bob-train."},
    {"J409", "A Python object arrived without proof that a rank of the job sent it.",
     "The program: ranks call different operations under one name. Else another program on the "
     "network.",
     "Make all ranks call the same operation with the same name. Check who can reach the nodes.",
     "Rank 0 calls broadcast() and rank 1 broadcast_object() with name \"x\": use one of them."},
    {"J410",
     "The coordinator was restarted and could not resume a running job: a node was missing, or "
     "nodes "
     "reported different states.",
     "The cluster: an agent died or was cut off while the coordinator was away.",
     "Run gradbus status to see which nodes are there. Start the missing agent, then the job. With "
     "gradbus.elastic the ranks join again by themselves.",
     "A machine with the coordinator and one agent was rebooted: the other node's ranks get this."},
    {"M004",
     "The coordinator had not heard of a node for as long as its lease lasts, and ended its jobs.",
     "The network or the node: it was cut off or stopped, and came back too late.",
     "Start the job again. With gradbus.elastic the ranks join again by themselves.",
     "A node was suspended for five minutes and then resumed."},
    {"M005", "The ranks of an elastic job have no common commit to return to.",
     "The launch: processes were replaced, and only the old ones had commits.",
     "Restart the whole job from its last checkpoint file.",
     "All nodes were restarted at once: commits live in memory of the ranks."},
    {"M006", "After a loss the elastic job did not get all ranks back in time.",
     "The replacement: it was started too late or not at all.",
     "Start the missing agent, shard or rank sooner. Raise GRADBUS_ELASTIC_TIMEOUT.",
     "Slurm needs three minutes for a new node: set it to 300."},
    {"O900", "An argument of a function is not allowed.", "The program.",
     "Read the message: it names the argument and what it accepts.",
     "DistributedOptimizer(model): give it an optimizer, not a model."},
    {"O901", "A value that is NaN or Inf was found before the reduction.",
     "The training: learning rate, data, or half precision without scaling.",
     "Look at the named rank's loss and input. Lower the learning rate or scale the loss.",
     "One image file is broken and gives NaN on rank 2 only."},
    {"O902", "Ranks gave one tensor different shapes, dtypes, operations or roots.",
     "The program: ranks built different models or call different operations.",
     "Compare what the message shows for both ranks. Make them equal.",
     "rank 0 has f32[100] and rank 1 f32[101]: the vocabularies differ."},
    {"O903", "All ranks wait for tensors that only some of them have registered.",
     "The program: ranks take different branches, or names or orders differ.",
     "Look for a collective inside `if rank == 0`. Make all ranks call the same operations.",
     "Only rank 0 calls allreduce on the metrics: let all ranks call it."},
    {"O904", "The tensor has more elements than a tensor may have.", "The program.",
     "Split it into smaller tensors.", "An embedding of 2^40 elements: register it in slices."},
    {"O905",
     "A tensor was started again, or changed, before the program waited for its last round. Or a "
     "rank gave up a step, by a timeout, Ctrl-C or an exception, which others may have made.",
     "The program.",
     "Call wait() or optimizer.synchronize() first. After a step that was given up, do what the "
     "message says: mostly, broadcast the parameters and make a new optimizer on all ranks.",
     "Two backward() calls in a step: set backward_passes_per_step=2."},
    {"O906",
     "Ranks train different models: their parameters, the options or the state of their "
     "optimizers differ where they must be equal.",
     "The program: broadcast_parameters() is missing, seeds differ, or a rank changed weights "
     "or the learning rate.",
     "Call broadcast_parameters() after the model is built or loaded, or pass broadcast=True.",
     "Only rank 0 loads the checkpoint: broadcast after loading."},
    {"O907", "A forked child called Gradbus with the session of its parent.", "The program.",
     "Use Gradbus in the parent only. Start the child with spawn if it is a rank itself.",
     "A DataLoader worker logs with allreduce(): send the value to the parent instead."},
    {"O908", "A call used a session that was shut down before or during the call.", "The program.",
     "End the threads that use a session before you shut it down, or let them stop at this error.",
     "A thread logs a metric while the main thread calls gradbus.shutdown(): join it first."},
    {"O910", "The compression is unknown or its options are not allowed.", "The caller.",
     "Run gradbus bench codec --list. Correct the name or option.",
     "topk:ration=0.01: the option is called ratio."},
    {"O911", "The sync mode is unknown or its options are not allowed.", "The caller.",
     "Take a mode of docs/concepts/modes.md.", "delay:k=1: the mode is called delayed."},
    {"O912", "The mode keeps parameters on shards, and the job has none.", "The launch.",
     "Start gradbus-server --role=shard before the job, or gradbus run --shards 2.",
     "mode ps:async under plain gradbus run: add --shards 1."},
    {"P101", "A process of the job ended without leaving it, so no sum can be complete.",
     "The rank in the message. Frequent causes: an exception, out of memory, kill.",
     "Read that rank's output and exit status. On its node look at dmesg for \"Out of memory\". "
     "Restart the job.",
     "Rank 3 was killed by the kernel at step 1200: use a smaller batch or more memory."},
    {"P102", "The connection between two agents of the job broke.",
     "The network, or the other agent's node.",
     "Run gradbus status to see if that agent lives. Check the network between both nodes.",
     "A switch was restarted: restart the job."},
    {"P103", "A parameter-server shard that holds parts of the job's tensors was lost.",
     "The shard's node or process.",
     "Start the shard and restart the job. Use replicas=2 so that a job survives one loss.",
     "mode ps:async,replicas=2"},
    {"P104", "The agent of some ranks was lost: it died, was stopped, or its node did.",
     "That node, or the administrator who stopped the agent.",
     "Run gradbus status. Start the node or agent. Restart the job or use gradbus.elastic.",
     "A spot instance was taken away: gradbus.elastic continues after a replacement joins."},
    {"P105",
     "A rank left the job, by shutdown() or the end of its program, and others wait for it.",
     "The program: ranks make different numbers of steps, or an exception ended one.",
     "Give all ranks the same number of batches, for example with drop_last=True.",
     "1001 samples on 2 ranks: rank 0 has one batch more."},
    {"P110",
     "An operation did not end before its deadline, although no process is known to be dead.",
     "The late ranks in the message: they compute, load data, or take another branch.",
     "Run gradbus status. Use py-spy dump --pid on the late rank. Raise GRADBUS_OP_TIMEOUT for "
     "long evaluations.",
     "Rank 0 evaluates for an hour: let all ranks evaluate, or raise the limit."},
    {"S201", "The node does not have enough shared memory for the job's tensors.",
     "The node's memory, the agent's limit, or a program that registers more and more tensors.",
     "Free memory, use fewer ranks per node, or raise --shm-bytes-max. Release optimizers and "
     "tensors that are no longer used.",
     "A program makes a new model per fold: shut down and init() again between them."},
    {"S202", "The agent or shard reached a memory limit while it prepared a job's tensors.",
     "The job's size, or a limit of the daemon: ulimit -v, a container, a full machine.",
     "Compare the two numbers in the message. Raise the limit, compress in smaller tensors, or use "
     "more nodes.",
     "topk of an 800 MB tensor in a container of 3 GiB: the residual does not fit."},
    {"S203", "The agent reserves the memory of tensors, and its container has too little left.",
     "The limit of the agent's container or service, or other processes in it.",
     "Raise limits.memory (Kubernetes) or MemoryMax (systemd) of the agent. Use fewer ranks per "
     "node. End other jobs.",
     "An agent with a limit of 1 GiB, and a job of four ranks with 300 MiB of gradients each."},
    {"S210", "A client wrote values into its shared memory that the format does not allow.",
     "That process: a stray pointer, or a library of another version.",
     "Run the program under AddressSanitizer. Only its job ended.",
     "A C extension writes past the end of its buffer."},
    {"S211", "A packet on the agent's socket does not follow the protocol.",
     "The process that connected: another version, or a program that is no client.",
     "Install one version of library and agent.",
     "A port scanner connected to the socket: harmless."},
    {"S212", "A shared segment is not sealed, has a wrong size, or a foreign header.",
     "What listens on the socket is not an agent of this version.",
     "Check GRADBUS_SOCKET and compare versions.",
     "GRADBUS_SOCKET names the socket of another program."},
    {"S220",
     "The process has opened as many files, sockets and pipes as its limit (RLIMIT_NOFILE) "
     "allows.",
     "The limit of the shell, container or unit. Sometimes the program leaks files.",
     "Show it with ulimit -n. Raise it: ulimit -n 4096, LimitNOFILE=4096 in a unit, or docker run "
     "--ulimit nofile=4096.",
     "64 ranks on a node under ulimit -n 256."},
    {"V801", "A program met one of another version, whose protocol or memory layout differs.",
     "The installation.", "Install the same version of library, agent and coordinator.",
     "pip upgraded the Python package, and the agent is still the old one."},
    {"X001", "Gradbus found an inconsistency in its own state.", "Gradbus.",
     "Report it with this line, the log and the version.",
     "gradbus --version; journalctl -u gradbus-agent"},
    {"X002", "A thread of a daemon has not moved for ten seconds.",
     "The machine swaps or its disk does not answer; else Gradbus.",
     "Under systemd the watchdog restarts the daemon. Look at the memory of the machine.",
     "curl -s http://127.0.0.1:9400/healthz; journalctl -u gradbus-agent"},
};

const ErrorPage* find_in(std::span<const ErrorPage> pages, std::string_view id) {
  const auto at = std::find_if(pages.begin(), pages.end(),
                               [&](const ErrorPage& page) { return page.id == id; });
  return at == pages.end() ? nullptr : &*at;
}

}  // namespace

std::span<const ErrorPage> job_error_pages() { return kJobPages; }

const ErrorPage* find_error_page(std::string_view id) {
  const ErrorPage* page = find_in(cluster_error_pages(), id);
  return page != nullptr ? page : find_in(job_error_pages(), id);
}

}  // namespace gradbus
