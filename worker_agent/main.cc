// gradbus-agent: the daemon of one node. It reads its options, starts the engine's thread, and runs
// the conductor until a signal ends it.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <thread>

#include "common/cgroup.h"
#include "common/daemon/daemon_log.h"
#include "common/daemon/daemon_monitor.h"
#include "common/daemon/descriptor_limit.h"
#include "common/daemon/reload.h"
#include "common/daemon/service_manager.h"
#include "common/endpoint.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/options.h"
#include "common/system_error.h"
#include "common/trust/token_file.h"
#include "data_plane/engine.h"
#include "data_plane/reduce_rate.h"
#include "server/parameter_server/snapshot_keeper.h"
#include "transport/registry.h"
#include "worker_agent/control/conductor.h"
#include "worker_agent/option_checks.h"

namespace gradbus {
namespace {

struct AgentOptions {
  bool shard = false;
  std::string coordinator = "127.0.0.1:7400";
  std::string token_file;
  bool insecure = false;
  std::string socket = "/run/gradbus/agent.sock";
  std::string socket_mode = "0660";
  std::string name;
  std::string bind = "127.0.0.1";
  std::string transport = "tcp";
  std::string bandwidth;
  int64_t streams = 2;
  int64_t queue_pairs = 1;
  int64_t peer_timeout_ms = 1500;
  int64_t return_ms = 10'000;
  std::string congestion_control = "auto";
  bool local_links = true;
  int64_t clients_max = 256;
  int64_t shm_bytes_max = 0;
  std::string huge_pages = "transparent";
  std::string snapshots;
  int64_t snapshot_every = 60;
  int64_t snapshot_keep = 0;
  int64_t ready_fd = -1;
  std::string device_sharing = "auto";
  int64_t nccl_timeout_ms = 20'000;
  bool exit_with_parent = false;
  std::string metrics_listen;
  std::string health_listen;
  std::string log_level = "info";
  std::string log_format = "auto";
};

std::string host_name() {
  char name[256] = "node";
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string node_name(const AgentOptions& o) {
  return o.name.empty() ? host_name() + (o.shard ? "-shard" : "") : o.name;
}

// Of the machine or of this process's container, whichever is smaller.
int64_t half_of_memory() {
  struct sysinfo info {};
  sysinfo(&info);
  const uint64_t machine = uint64_t{info.totalram} * info.mem_unit;
  return static_cast<int64_t>(std::min(machine, read_cgroup_limits().memory_bytes_max) / 2);
}

void add_process_options(AgentOptions& o, OptionTable& table) {
  table.add("ready-fd", &o.ready_fd, -1, 1 << 20,
            "Writes one line of JSON to this descriptor when clients can attach.");
  table.add("exit-with-parent", &o.exit_with_parent, "Ends when the process that started it ends.");
  table.add("metrics-listen", &o.metrics_listen,
            "HOST:PORT for /metrics, /healthz and /readyz by HTTP, e.g. 127.0.0.1:9401; default: "
            "none (docs/how-to/monitor-a-cluster.md).");
  table.add("health-listen", &o.health_listen,
            "HOST:PORT for the standard gRPC health service, e.g. 127.0.0.1:9402; default: none "
            "(docs/how-to/monitor-a-cluster.md).");
  table.add("log-level", &o.log_level, "trace, debug, info, warn or error.");
  table.add("log-format", &o.log_format,
            "text, json, journal (fields for job, rank and error code), or auto: journal if stderr "
            "is the journal's, else text.");
}

// Of a shard.
void add_snapshot_options(AgentOptions& o, OptionTable& table) {
  table.add(
      "snapshots", &o.snapshots,
      "Directory for snapshots of the parameters that a shard holds; default: none are kept.");
  table.add("snapshot-every", &o.snapshot_every, 0, 86'400,
            "Seconds from one snapshot of a job to the next; 0: when the job ends.");
  table.add("snapshot-keep", &o.snapshot_keep, 0, 1'000'000,
            "Starts of a job whose snapshots are kept; older ones are removed. 0: all.");
}

Result<bool> read_options(AgentOptions& o, int argc, char** argv, OptionValues& values) {
  OptionTable table("agent", "Moves the gradients of this node's training processes.");
  table.add("coordinator", &o.coordinator, "Address of gradbus-server --role=coordinator.");
  table.add("shard", &o.shard,
            "Be a parameter-server shard (gradbus-server --role=shard): no processes attach here.");
  table.add("token-file", &o.token_file,
            "File of the cluster token, which this agent and the coordinator prove to each other; "
            "default: the variable GRADBUS_TOKEN_FILE (docs/concepts/security.md).");
  table.add("insecure-i-understand", &o.insecure,
            "Run without a token: any program that reaches the coordinator or --bind may act as an "
            "agent.");
  table.add("socket", &o.socket, "Unix socket that training processes attach to.");
  table.add("socket-mode", &o.socket_mode, "Permissions of the socket, octal.");
  table.add("name", &o.name, "Name of this node, unique in the cluster; default: the host's name.");
  table.add(
      "bind", &o.bind,
      "Data-plane address to listen on: host or host:port; port 0 is any. Several with commas "
      "between give one path each.");
  table.add("transport", &o.transport,
            "How agents exchange data: tcp, rdma, or several with commas between in the order of "
            "preference; a link whose path breaks then continues on another.");
  table.add(
      "bandwidth", &o.bandwidth,
      "Bandwidth of this node's network interface, e.g. 10gbit: slower shards hold less. Set it "
      "on all nodes if their interfaces differ; default: unknown.");
  table.add("streams", &o.streams, 1, 16, "Connections per link between two agents.");
  table.add("queue-pairs", &o.queue_pairs, 1, 16,
            "RDMA: queue pairs per link between two agents; the smaller number of the two counts.");
  table.add("peer-timeout-ms", &o.peer_timeout_ms, 100, 600'000,
            "A link silent for this long is lost.");
  table.add("return-ms", &o.return_ms, 0, 3'600'000,
            "With several paths: how often a link checks whether a preferred path works again; 0: "
            "never.");
  table.add("congestion-control", &o.congestion_control,
            "For TCP links: system, a name that the kernel has, or auto (the system's, except that "
            "BBR is used only by links with long round trips).");
  table.add("local-links", &o.local_links,
            "TCP links between processes of one machine use shared memory; false: TCP there, too.");
  table.add("clients-max", &o.clients_max, 1, 65'536, "Maximum of attached processes.");
  table.add(
      "shm-bytes-max", &o.shm_bytes_max, 1 << 20, INT64_MAX,
      "Memory for all jobs, in bytes: shared memory and what codecs need; default: half of the "
      "memory of the machine or container.");
  table.add(
      "huge-pages", &o.huge_pages,
      "transparent (where the kernel gives them to shared memory), reserved (from the pool of "
      "vm.nr_hugepages while it lasts) or never. reserved is for users who trust each other: a "
      "rank can take such a page away, and the agent ends.");
  add_snapshot_options(o, table);
  table.add("device-sharing", &o.device_sharing,
            "How ranks open memory of GPUs: legacy (CUDA's IPC handles), vmm (file descriptors), "
            "fabric, or auto (the first of these that all ranks of the node support).");
  table.add("nccl-timeout-ms", &o.nccl_timeout_ms, 100, 3'600'000,
            "What a collective of NCCL may take from the time when all nodes are ready.");
  add_process_options(o, table);
  Result<bool> parsed = table.parse(argc, argv);
  values = table.values();
  return parsed;
}

Result<std::unique_ptr<Transport>> open_transport(const AgentOptions& o) {
  TransportOptions options;
  options.bind_address = o.bind;
  options.streams = static_cast<uint32_t>(o.streams);
  options.queue_pairs = static_cast<uint32_t>(o.queue_pairs);
  options.peer_timeout_ms = static_cast<uint32_t>(o.peer_timeout_ms);
  options.congestion_control = o.congestion_control;
  options.local_links = o.local_links;
  options.return_ms = static_cast<uint32_t>(o.return_ms);
  return open_transports(o.transport, options);
}

Fd open_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);                    // a reload
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread exists
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is an error of one job
  return Fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Every user of the machine can reach loopback addresses.
Result<std::optional<Secret>> read_token(const AgentOptions& o) {
  Result<std::optional<Secret>> token =
      read_optional_token(token_file_path(o.token_file), TokenReader::kDaemon);
  if (!token.ok() || token.value() || o.insecure) return token;
  return error("F100",
               "--bind " + o.bind + " can be reached by other users, and there is no cluster token",
               "add --token-file FILE, or, where every user and machine that reaches the cluster's "
               "ports is trusted, --insecure-i-understand");
}

// The command line, and the values that it gave at the start.
struct Invocation {
  int argc;
  char** argv;
  OptionValues values;
};

Result<ReloadedOptions> read_again(const Invocation& invocation) {
  AgentOptions o;
  o.shm_bytes_max = half_of_memory();
  ReloadedOptions again;
  const Result<bool> read = read_options(o, invocation.argc, invocation.argv, again.values);
  if (!read.ok()) return read.status();
  Result<std::optional<Secret>> token = read_token(o);
  if (!token.ok()) return token.status();
  again.log_level = o.log_level;
  again.token = token.take();
  return again;
}

// Whether one of the signals that came ends the daemon.
bool take_signals(int signals, const std::function<void()>& on_hangup) {
  signalfd_siginfo signal{};
  bool ends = false;
  while (read(signals, &signal, sizeof(signal)) == sizeof(signal)) {
    if (signal.ssi_signo != SIGHUP)
      ends = true;
    else
      on_hangup();
  }
  return ends;
}

// Without the address of the data plane and the monitor, which exist later.
Result<ConductorOptions> conductor_options(const AgentOptions& o) {
  GRADBUS_RETURN_IF_ERROR(check_node_name(node_name(o)));
  const Result<HugePages> huge_pages = parse_huge_pages(o.huge_pages);
  if (!huge_pages.ok()) return huge_pages.status();
  const Result<uint64_t> bandwidth = parse_bandwidth(o.bandwidth);
  if (!bandwidth.ok()) return bandwidth.status();
  Result<std::vector<CudaSharing>> sharings = parse_device_sharing(o.device_sharing);
  if (!sharings.ok()) return sharings.status();
  const Result<std::string> coordinator = coordinator_endpoint(o.coordinator, "--coordinator");
  if (!coordinator.ok()) return coordinator.status();
  Result<std::optional<Secret>> token = read_token(o);
  if (!token.ok()) return token.status();
  ConductorOptions options;
  options.name = node_name(o);
  options.coordinator = coordinator.value();
  options.token = token.take();
  options.cores = usable_cores(read_cgroup_limits(), affinity_cores());
  options.reduce_ns = measured_reduce_ns();
  options.clients_max = static_cast<uint64_t>(o.clients_max);
  options.nccl_timeout = o.nccl_timeout_ms * kMillisecond;
  options.shm_bytes_max = static_cast<uint64_t>(o.shm_bytes_max);
  options.huge_pages = huge_pages.value();
  options.shard = o.shard;
  options.bits_per_s = bandwidth.value();
  if (o.shard && !o.snapshots.empty())
    options.keeper = std::make_shared<SnapshotKeeper>(o.snapshots, o.snapshot_every * kSecond,
                                                      static_cast<size_t>(o.snapshot_keep));
  options.device_sharings = sharings.take();
  options.ready_fd = static_cast<int>(o.ready_fd);
  return options;
}

void conduct(Conductor& conductor, const Fd& signals, DaemonMonitor& monitor, Reloader& reloader) {
  monitor.watch().add("conductor", conductor.turns());
  monitor.start();
  conductor.run(signals.get(), [&] {
    return take_signals(signals.get(), [&] {
      static_cast<void>(reloader.reload());  // it has logged the result
      monitor.reloaded();
    });
  });
  monitor.stop();
}

Status serve(const AgentOptions& o, const Invocation& invocation) {
  raise_descriptor_limit();
  GRADBUS_RETURN_IF_ERROR(check_daemon_files());
  Fd signals = open_signals();
  const Result<mode_t> mode = parse_socket_mode(o.socket_mode);
  if (!mode.ok()) return mode.status();
  Result<ConductorOptions> checked = conductor_options(o);
  if (!checked.ok()) return checked.status();
  ConductorOptions options = checked.take();
  Result<AttachListener> listener =
      o.shard ? AttachListener::none() : AttachListener::open(o.socket, mode.value());
  if (!listener.ok()) return listener.status();
  Result<std::unique_ptr<Transport>> transport = open_transport(o);
  if (!transport.ok()) return transport.status();

  const std::string address = transport.value()->local_address();
  options.addresses[common_name(o.transport, o.bind)] = address;
  DaemonMonitor monitor(o.shard ? "shard" : "agent");
  options.monitor = &monitor;
  GRADBUS_RETURN_IF_ERROR(monitor.listen(o.metrics_listen));
  GRADBUS_RETURN_IF_ERROR(monitor.listen_health(o.health_listen));

  Mailbox<JobBroken> broken;
  Engine engine(transport.take(), broken, options.cores);
  monitor.watch().add("engine", engine.turns());
  std::thread engine_thread([&engine] {
    pthread_setname_np(pthread_self(), "engine");
    engine.run();
  });
  if (o.shard) {
    spdlog::info("a parameter-server shard, data at {}", address);
  } else {
    spdlog::info("clients attach at {}, data at {}", o.socket, address);
  }
  {
    Conductor conductor(options, listener.take(), engine, broken);
    Reloader reloader(
        invocation.values, options.token, [&] { return read_again(invocation); },
        [&](const Secret& changed) { conductor.set_token(changed); });
    conduct(conductor, signals, monitor, reloader);
  }
  engine.stop();
  engine_thread.join();
  if (options.keeper != nullptr) options.keeper->drain();  // its tasks read the engine's data
  spdlog::info("stopped");
  return {};
}

}  // namespace
}  // namespace gradbus

int main(int argc, char** argv) {
  gradbus::AgentOptions options;
  options.shm_bytes_max = gradbus::half_of_memory();
  gradbus::Invocation invocation{argc, argv, {}};
  const gradbus::Result<bool> go_on = gradbus::read_options(options, argc, argv, invocation.values);
  if (go_on.ok() && !go_on.value()) return 0;
  gradbus::Status status = go_on.status();
  if (status.ok())
    status = gradbus::start_daemon_log(options.shard ? "gradbus-shard" : "gradbus-agent",
                                       options.log_level, options.log_format);
  if (status.ok() && options.exit_with_parent) prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (status.ok()) status = gradbus::serve(options, invocation);
  if (status.ok()) return 0;
  std::fprintf(stderr, "gradbus-agent: %s\n", status.message().c_str());
  return 1;
}
