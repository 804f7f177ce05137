#include "common/errors.h"

#include <algorithm>

#include "common/check.h"

namespace gradbus {
namespace {

// Areas: A attach and agent, C coordinator, D data plane, F files and options, H launcher, J job
// start, M membership, O operations, P peers, S shared memory, V versions.
constexpr ErrorInfo kErrors[] = {
    {"A300", "NO_AGENT", Code::kUnavailable,
     "No agent answers on the socket, so this process cannot join a job of several ranks.",
     "start gradbus-agent, or launch with: gradbus run -np N -- COMMAND"},
    {"A301", "AGENT_LOST", Code::kPeerLost,
     "The node's agent ended the connection: it was stopped, killed, or it crashed.",
     "gradbus status; then restart the job"},
    {"A302", "NO_PERMISSION", Code::kPermission,
     "The operating system does not let this user open the agent's socket.",
     "join the group that owns the socket, or name another one in GRADBUS_SOCKET"},
    {"A303", "SOCKET_IN_USE", Code::kUnavailable, "Another agent already serves this socket.",
     "stop that agent, or choose another --socket"},
    {"A304", "QUOTA", Code::kExhausted, "A per-agent limit on clients or jobs is reached.",
     "end other jobs on this node, or raise the limit in the agent's configuration"},
    {"C501", "COORDINATOR_LOST", Code::kUnavailable,
     "The coordinator does not answer. Running jobs continue; joining and registering wait or "
     "fail.",
     "start gradbus-server, then retry"},
    {"C502", "AGENT_REFUSED", Code::kInvalid, "The coordinator does not accept this agent.",
     "see the reason; give each node its own --name"},
    {"C503", "TOKEN_NOT_PROVEN", Code::kPermission,
     "A program and the coordinator must prove to each other that they know the cluster token. One "
     "of them has none, or another one.",
     "give every program of the cluster the same token: --token-file, or GRADBUS_TOKEN_FILE"},
    {"C505", "NO_SUCH_NODE", Code::kInvalid,
     "No node has this name, or it is not in the "
     "state that the call asks for.",
     "gradbus status"},
    {"C506", "COORDINATOR_BUSY", Code::kExhausted,
     "Too many programs request the coordinator's status at the same time.",
     "try again in a few seconds, and ask less often"},
    {"C507", "NODE_DRAINED", Code::kUnavailable,
     "A person has drained this node: it takes no new jobs. Jobs that run on it continue.",
     "use other nodes, or gradbus drain --undo NODE"},
    {"C508", "NO_PAGE", Code::kUnavailable, "The coordinator serves no web page.",
     "start gradbus-server with --metrics-listen HOST:PORT"},
    {"D601", "BAD_FRAME", Code::kCorrupt,
     "A frame's header or checksum is wrong. The link was closed before anything was used.",
     "gradbus doctor; check the network card and cables of the two nodes"},
    {"D602", "BAD_RPC", Code::kCorrupt, "A control message holds a value that is not allowed.",
     "check that all programs are of one version: gradbus status"},
    {"D603", "CANNOT_LISTEN", Code::kUnavailable, "The address cannot be listened on.",
     "choose another port (0 takes any free one)"},
    {"D604", "CANNOT_CONNECT", Code::kUnavailable,
     "The other agent's data address does not answer.",
     "check the agent's --bind address and the firewall between the nodes"},
    {"D605", "NO_TRANSPORT", Code::kUnavailable, "The agents of a job share no transport.",
     "give every agent a common transport: gradbus doctor"},
    {"D606", "CANNOT_REGISTER", Code::kExhausted,
     "Memory cannot be registered with the RDMA device, which needs it pinned.",
     "ulimit -l unlimited, in a systemd unit LimitMEMLOCK=infinity; or use --transport tcp"},
    {"D607", "NO_RDMA", Code::kUnavailable, "No RDMA device of this machine can be used.",
     "gradbus doctor; or use --transport tcp"},
    {"D608", "SLOW_CLIENTS", Code::kExhausted,
     "Clients of a port for metrics, the web page or health send or read too slowly, or are too "
     "many. Slow ones are disconnected, and others wait for their turn.",
     "let only Prometheus, probes and administrators reach this port"},
    {"D610", "WRONG_RESULT", Code::kCorrupt,
     "A benchmark with --check got elements that differ from the known result.",
     "run it again with --check and other --algorithm or --transport, and report what differs"},
    {"D611", "BAD_PAYLOAD", Code::kCorrupt,
     "A compressed payload of another agent is not valid for its codec.",
     "run the same version on all nodes; if you do already, report a bug"},
    {"D612", "PAYLOAD_CHANGED", Code::kCorrupt,
     "A payload differs from the one that its sender computed a checksum of. The usual cause is a "
     "program that wrote into a tensor while it was being sent.",
     "wait before you change a tensor: wait=\"backward\", synchronize() or gradbus_wait(); if no "
     "program does that, run gradbus doctor"},
    {"D620", "NO_CUDA_PLUGIN", Code::kUnavailable,
     "The GPU plug-in libgradbus_cuda.so is missing or cannot be loaded.",
     "without GPUs, do nothing; else build with nvcc and -DGRADBUS_CUDA=ON, or name the "
     "file: GRADBUS_CUDA_PLUGIN"},
    {"D621", "CUDA_PLUGIN_VERSION", Code::kVersion,
     "libgradbus_cuda.so was built for another version of Gradbus.",
     "install programs and plug-in from one build"},
    {"D622", "NO_GPU", Code::kUnavailable,
     "There is no NVIDIA driver, the driver is too old for the plug-in, or it shows no GPU.",
     "nvidia-smi; without GPUs, do nothing: processors do the same work"},
    {"D623", "GPU_MEMORY", Code::kExhausted,
     "A GPU does not have enough free memory, or the host cannot pin more memory.",
     "nvidia-smi shows which processes use it; or compress on the processor"},
    {"D624", "GPU_FAILED", Code::kUnavailable,
     "A call of the CUDA runtime failed. After some failures a process can no longer use the GPU.",
     "look at nvidia-smi and dmesg; then start the process again"},
    {"D625", "NO_NCCL", Code::kUnavailable,
     "libnccl.so.2 cannot be loaded, lacks a function, or is older than 2.18.",
     "install libnccl2 2.18 or newer; without it GPUs exchange through memory of the host"},
    {"D626", "NCCL_FAILED", Code::kUnavailable,
     "An NCCL operation failed, on this rank or on another one. Its communicator was aborted.",
     "look at the other ranks' messages; NCCL_DEBUG=WARN shows more"},
    {"D627", "NCCL_TIMEOUT", Code::kUnavailable,
     "An NCCL operation did not end by its deadline. Its communicator was aborted.",
     "look for the rank that did not call it; NCCL_DEBUG=INFO shows NCCL's paths"},
    {"D628", "NOT_ON_GPU", Code::kUnavailable,
     "A tensor's elements are in shared memory although a GPU was requested.",
     "do nothing: elements are copied; to avoid the copies, follow the message"},
    {"F100", "BAD_OPTION", Code::kInvalid, "An option has a value that is not allowed.",
     "see --help"},
    {"F101", "UNKNOWN_OPTION", Code::kInvalid, "There is no option of this name.", "see --help"},
    {"F102", "BAD_FILE", Code::kInvalid, "The configuration file cannot be read or parsed.",
     "fix the file at the line named, or leave out --config"},
    {"F104", "BAD_TOKEN_FILE", Code::kPermission,
     "The file of the cluster token cannot be used: it is missing, other users can read it, or it "
     "has other contents.",
     "copy the cluster's token there; for a new cluster: (umask 077; openssl rand -hex 32 > FILE)"},
    {"F105", "UNKNOWN_VARIABLE", Code::kInvalid,
     "An environment variable begins with GRADBUS_, but no program of Gradbus reads it.",
     "unset it, or correct its name (docs/reference/environment.md)"},
    {"F110", "BAD_SNAPSHOT", Code::kCorrupt,
     "A snapshot of parameter-server shards is cut short or damaged.",
     "put an older one in its place"},
    {"F111", "NO_SNAPSHOT", Code::kUnavailable,
     "There is no snapshot of the tensors that mode option restore requests.",
     "give all shards the same --snapshots directory, with the files of all of them; or leave out "
     "restore"},
    {"F112", "OTHER_SNAPSHOT", Code::kMismatch, "A snapshot belongs to another model or optimizer.",
     "restore with the program and the mode that made it, or leave out restore"},
    {"F113", "CANNOT_WRITE", Code::kUnavailable, "A snapshot could not be written.",
     "free disk space or grant access; the older snapshot is kept, and the job continues"},
    {"F114", "CANNOT_WRITE_TRACE", Code::kUnavailable, "A trace could not be written.",
     "name a file in a directory that this user may write to, on a disk with room"},
    {"F115", "BAD_TRACE", Code::kInvalid, "A file is not a trace that gradbus has written.",
     "write one: gradbus run --timeline FILE, or gradbus trace JOB -o FILE"},
    {"F116", "CANNOT_KEEP_STATE", Code::kUnavailable,
     "The coordinator cannot write to the folder of its --state-dir.",
     "make the folder writable for its user, free space, or leave out --state-dir: settings are "
     "then kept in memory"},
    {"H200", "BAD_LAUNCH", Code::kInvalid,
     "The launch options contradict each other or the machine.", "gradbus run --help"},
    {"H201", "COMMAND_FAILED", Code::kUnavailable, "The program to run could not be started.",
     "check the command after --"},
    {"H202", "RANK_FAILED", Code::kPeerLost, "A rank of a launched job ended with an error.",
     "look at that rank's last lines above; its own error says why"},
    {"H203", "NO_LINK", Code::kUnavailable,
     "The simulated network of --link could not be created on this machine.",
     "see the reason; it needs root, iproute2 and Linux' veth, bridge, sch_tbf and sch_netem"},
    {"J401", "BAD_RANK", Code::kInvalid, "Rank or world size is not a number or out of range.",
     "check the launcher's variables: 0 <= rank < world size <= 4096"},
    {"J402", "RANK_TAKEN", Code::kMismatch, "Two processes claim the same rank of one job.",
     "give each process its own rank, or the second job its own GRADBUS_JOB"},
    {"J403", "SIZE_MISMATCH", Code::kMismatch, "Ranks of one job disagree about the world size.",
     "start all ranks with one launcher"},
    {"J404", "START_TIMEOUT", Code::kTimeout, "Not every rank joined the job in time.",
     "look at the missing ranks' output, or raise GRADBUS_START_TIMEOUT"},
    {"J405", "JOB_STOPPED", Code::kClosed, "The job was stopped by an administrator.",
     "ask who stopped it"},
    {"J406", "NO_SUCH_JOB", Code::kInvalid, "No job of this name is known.", "gradbus status"},
    {"J407", "ALONE", Code::kInvalid,
     "A process has a world of one rank, although a launcher has started several.",
     "set GRADBUS_RANK, GRADBUS_SIZE and GRADBUS_JOB, or use gradbus run"},
    {"J408", "NOT_OWNER", Code::kPermission,
     "The job belongs to another user. Only that user's processes may join it, and only that user "
     "and root may stop it or change its mode.",
     "run all ranks as one user, or give this job its own name: GRADBUS_JOB"},
    {"J409", "OBJECT_NOT_PROVEN", Code::kPermission,
     "A Python object arrived without proof that a rank of this job sent it. It was not "
     "unpickled, because that would run the sender's code.",
     "make all ranks call the same operation with the same name; else look for other senders"},
    {"J410", "JOB_NOT_TAKEN_BACK", Code::kPeerLost,
     "The coordinator was restarted while the job ran, and could not resume the job: a node did "
     "not reconnect "
     "in time, or its nodes reported different states.",
     "see the reason; then restart the job"},
    {"M004", "FENCED", Code::kClosed,
     "The node was silent for longer than its lease, and the coordinator has ended its jobs.",
     "restart the job; with gradbus.elastic the ranks join again by themselves"},
    {"M005", "NO_COMMON_COMMIT", Code::kMismatch,
     "The ranks of gradbus.elastic have no common commit to return to.",
     "restart the whole job: a single process of it cannot be replaced"},
    {"M006", "NOT_REJOINED", Code::kTimeout,
     "After an agent was lost, gradbus.elastic could not join the job again in time.",
     "start the missing agent or rank sooner, or raise GRADBUS_ELASTIC_TIMEOUT"},
    {"O900", "BAD_ARGUMENT", Code::kInvalid, "An argument of an operation is not allowed.",
     "see the function's documentation"},
    {"O901", "BAD_NUMBER", Code::kInvalid, "A NaN or Inf was found before the reduction.",
     "look at the named rank's data and learning rate"},
    {"O902", "TENSOR_MISMATCH", Code::kMismatch,
     "Ranks registered one tensor with different shapes, dtypes, operations or roots.",
     "make all ranks call the same operation with the same arguments"},
    {"O903", "TENSOR_MISSING", Code::kMismatch,
     "Every rank waits for a tensor that not all ranks have registered.",
     "check that all ranks use the same tensor names"},
    {"O904", "TOO_LARGE", Code::kExhausted, "The tensor exceeds the maximum size.",
     "split it into smaller tensors"},
    {"O905", "IN_FLIGHT", Code::kBusy, "The program has not waited for the tensor's last round.",
     "wait for it before you start the next one"},
    {"O906", "REPLICAS_DIFFER", Code::kMismatch,
     "Ranks have different parameters or optimizers, so their models drift apart.",
     "call gradbus.broadcast_parameters(model, root_rank=0) before the first step"},
    {"O907", "FORKED", Code::kClosed, "A forked child used a session of its parent.",
     "use Gradbus in the parent only, or start the child with spawn and give it its own rank"},
    {"O908", "SHUT_DOWN", Code::kClosed, "A call used a session that was shut down.",
     "open a session again with gradbus_init() and register its tensors"},
    {"O910", "BAD_COMPRESSION", Code::kInvalid, "The requested compression does not exist.",
     "gradbus bench codec --list"},
    {"O911", "BAD_MODE", Code::kInvalid, "The requested sync mode does not exist.",
     "use one of docs/concepts/modes.md, e.g. sync or delayed:k=1"},
    {"O912", "NO_SHARDS", Code::kUnavailable,
     "The mode needs parameter-server shards and the job has none.",
     "start gradbus-server --role=shard before the job, or use gradbus run --shards 2"},
    {"P101", "PEER_LOST", Code::kPeerLost, "A rank of the job died.",
     "look at that rank's output; then restart the job"},
    {"P102", "LINK_LOST", Code::kPeerLost, "The connection to another agent of the job broke.",
     "gradbus status; check that node and the network"},
    {"P103", "SHARD_LOST", Code::kPeerLost,
     "A parameter-server shard with a part of the job's tensors died.",
     "start it again, then restart the job"},
    {"P104", "NODE_LOST", Code::kPeerLost,
     "The agent of some ranks of the job died or was stopped, or its whole node failed.",
     "gradbus status; then restart the job, or let gradbus.elastic do that "
     "(docs/how-to/train-elastically.md)"},
    {"P105", "RANK_LEFT", Code::kPeerLost, "A rank ended cleanly while others still wait for it.",
     "look at that rank's output for an error; else make all ranks do the same number of steps"},
    {"P110", "STALLED", Code::kTimeout, "An operation did not end before its deadline.",
     "look at the ranks named: gradbus status"},
    {"S201", "SHM_FULL", Code::kExhausted,
     "There is not enough shared memory for the job's tensors.",
     "unregister tensors that are not used any more (in PyTorch: drop the old optimizer), use "
     "fewer ranks per node, or raise the agent's --shm-bytes-max"},
    {"S202", "OUT_OF_MEMORY", Code::kExhausted,
     "A daemon could not allocate memory for a job. That job ended; other jobs continue.",
     "free memory on that machine or raise the daemon's limit, or use smaller tensors"},
    {"S203", "CONTAINER_FULL", Code::kExhausted,
     "The memory limit of the agent's container does not leave room for the job's tensors.",
     "raise the memory limit of the agent (Kubernetes: limits.memory; systemd: MemoryMax), end "
     "other jobs on this node, or use fewer ranks per node"},
    {"S210", "SHM_CORRUPT", Code::kCorrupt, "A client wrote invalid data into its shared memory.",
     "look for stray writes in that process; its job ended, other jobs continue"},
    {"S211", "BAD_PACKET", Code::kCorrupt,
     "A packet on the attach socket is not what the protocol allows.",
     "check that library and agent are of one version"},
    {"S212", "BAD_SEGMENT", Code::kCorrupt,
     "A shared-memory segment is not sealed, has the wrong size, or has a foreign header.",
     "check what listens on the agent's socket"},
    {"S220", "NO_DESCRIPTORS", Code::kExhausted,
     "A process has opened as many files, sockets and pipes as its limit allows.",
     "raise the limit: ulimit -n 4096, in a systemd unit LimitNOFILE=4096"},
    {"V801", "VERSION_SKEW", Code::kVersion, "Two programs use different versions of a protocol.",
     "install the same Gradbus version on both sides"},
    {"X001", "INTERNAL", Code::kInternal, "A defect in Gradbus itself.",
     "please report it with this line"},
    {"X002", "STUCK", Code::kInternal,
     "A thread of a daemon makes no progress. Under systemd the watchdog restarts the daemon.",
     "look at the daemon's log and the machine's memory; report it if it returns"},
};

std::string_view without_prefix(std::string_view id) {
  return id.starts_with("GB-") ? id.substr(3) : id;
}

}  // namespace

std::span<const ErrorInfo> all_errors() { return kErrors; }

const ErrorInfo* find_error(std::string_view id) {
  const auto row = std::find_if(std::begin(kErrors), std::end(kErrors), [&](const ErrorInfo& info) {
    return info.id == without_prefix(id);
  });
  return row == std::end(kErrors) ? nullptr : row;
}

Status error(std::string_view id, std::string_view what, std::string_view next) {
  const ErrorInfo* row = find_error(id);
  GRADBUS_CHECK(row != nullptr);
  std::string message = "GB-";
  message.append(row->id).append(" ").append(row->name).append(": ").append(what);
  message.append(" | next: ").append(next.empty() ? row->next : next);
  return Status(row->code, std::move(message));
}

}  // namespace gradbus
