// gradbus-server: parses options, serves until SIGTERM or SIGINT, ends with 0. With --role=shard it
// becomes gradbus-agent --shard.
//
// Signals are blocked in every thread and taken by sigwait in the main one, so no handler runs.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "common/daemon/daemon_log.h"
#include "common/daemon/daemon_monitor.h"
#include "common/daemon/descriptor_limit.h"
#include "common/daemon/reload.h"
#include "common/environment/state_folder.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/options.h"
#include "common/policy/sync_mode.h"
#include "common/system_error.h"
#include "common/trust/token_file.h"
#include "server/coordinator/service.h"
#include "server/page/page.h"

namespace gradbus {
namespace {

struct ServerOptions {
  std::string role = "coordinator";
  std::string state_dir;
  std::string listen = "127.0.0.1:7400";
  std::string token_file;
  bool insecure = false;
  int64_t heartbeat_ms = 500;
  int64_t lease_ms = 1500;
  int64_t chunk_kib = 0;
  std::string algorithm = "auto";
  bool deterministic = false;
  bool nccl = false;
  std::string late_mode;
  int64_t late_percent = 20;
  int64_t late_seconds = 60;
  int64_t loss_percent = 0;
  bool equal_shards = false;
  bool keep_shards = false;
  int64_t path_latency_us = 0;
  int64_t path_mbit = 0;
  std::string metrics_listen;
  std::string prometheus_url;
  std::string log_level = "info";
  std::string log_format = "auto";
  int64_t ready_fd = -1;
  bool exit_with_parent = false;

  // That change a running job's mode.
  void declare_rules(OptionTable& table) {
    table.add(
        "late-mode", &late_mode,
        "Mode that a synchronous job changes to at its next fence when its ranks wait too long "
        "for a slow rank, e.g. delayed:k=1; default: none");
    table.add("late-percent", &late_percent, 1, 100,
              "Share of their time that ranks may wait before late-mode applies");
    table.add("late-seconds", &late_seconds, 1, 3600,
              "Interval over which late-percent is measured");
    table.add(
        "loss-percent", &loss_percent, 0, 1'000'000,
        "A job returns to mode sync when its reported losses rise to this percentage of their "
        "earlier value, e.g. 200, or are not finite; 0: never");
  }

  void declare(OptionTable& table) {
    table.add("role", &role,
              "Role of this process: coordinator, or shard, which takes the options of "
              "gradbus-agent --shard");
    table.add("listen", &listen,
              "host:port to listen on, where port 0 takes any free one; or unix:/PATH");
    table.add("token-file", &token_file,
              "File of the cluster token, which agents, shards and tools must prove; default: the "
              "variable GRADBUS_TOKEN_FILE (docs/concepts/security.md)");
    table.add(
        "insecure-i-understand", &insecure,
        "Listen on host:port without a token: any program that reaches the port may do everything");
    table.add("state-dir", &state_dir,
              "Folder for the settings that gradbus run --autotune finds, for later jobs; must be "
              "writable; default: they are kept in memory");
    table.add("heartbeat-ms", &heartbeat_ms, 10, 60'000, "How often agents report");
    table.add("lease-ms", &lease_ms, 50, 600'000, "An agent silent for longer is lost");
    table.add("chunk-kib", &chunk_kib, 0, 1024,
              "Chunk size to aim at, in KiB; 0: by the path's latency times its bandwidth");
    table.add("algorithm", &algorithm,
              "Algorithm between nodes: auto (the fastest by a cost model), ring, chain, "
              "halving_doubling, recursive_doubling, tree or direct. If it does not fit a "
              "collective, auto "
              "is used");
    table.add("deterministic", &deterministic,
              "Results have the same bits in every run and for every chunk size");
    table.add(
        "nccl", &nccl,
        "NCCL sums gradients in memory of GPUs (GRADBUS_DEVICE_MEMORY=1) between nodes, if all "
        "nodes of a job support it (docs/how-to/use-nccl.md)");
    declare_rules(table);
    table.add("equal-shards", &equal_shards,
              "Parameter-server shards hold equal parts, even if their networks differ "
              "(docs/how-to/use-a-parameter-server.md)");
    table.add(
        "keep-shards", &keep_shards,
        "Running jobs keep their first shards: they do not use shards that are added later, and "
        "the data of a lost shard keeps a single copy");
    table.add(
        "path-latency-us", &path_latency_us, 0, 10'000'000,
        "Latency of one way between two agents, for the cost model; 0: as the agents measure it");
    table.add("path-mbit", &path_mbit, 0, 10'000'000,
              "Mbit/s between two agents, for the cost model; 0: as the agents measure it");
    table.add("metrics-listen", &metrics_listen,
              "HOST:PORT for /metrics, /healthz, /readyz and the web page by HTTP, e.g. "
              "127.0.0.1:9400; default: "
              "none (docs/how-to/monitor-a-cluster.md)");
    table.add("prometheus-url", &prometheus_url,
              "Where browsers reach the Prometheus that watches this cluster, e.g. "
              "http://head:9090: the web page shows its alerts; default: none");
    table.add("log-level", &log_level, "trace, debug, info, warn or error");
    table.add("log-format", &log_format,
              "text, json, journal (fields for job, rank and error code), or auto: journal if "
              "stderr is the journal's, else text");
    table.add("ready-fd", &ready_fd, -1, 1 << 20,
              "Write one line of JSON with the address to this descriptor once listening");
    table.add("exit-with-parent", &exit_with_parent, "Stop when the starting process ends");
  }
};

Status check(const ServerOptions& options) {
  if (options.role == "shard") {
    return error("F100", "role \"shard\" is set in a file, which is read too late for it",
                 "use --role=shard or GRADBUS_SERVER_ROLE=shard");
  }
  if (options.role != "coordinator") {
    return error("F100", "--role \"" + options.role + "\" is not known",
                 "use --role=coordinator or --role=shard");
  }
  if (options.lease_ms < 2 * options.heartbeat_ms) {
    return error("F100",
                 "--lease-ms " + std::to_string(options.lease_ms) +
                     " is less than two heartbeats of " + std::to_string(options.heartbeat_ms) +
                     " ms",
                 "raise --lease-ms or lower --heartbeat-ms");
  }
  if (const Result<SyncMode> mode = parse_mode(options.late_mode); !mode.ok())
    return mode.status().with_context("--late-mode");
  if (options.nccl && options.deterministic)
    return error("F100", "--nccl does not give the same bits in every run",
                 "leave out --nccl or --deterministic");
  if (!options.prometheus_url.empty() && !is_web_origin(options.prometheus_url))
    return error("F100", "--prometheus-url \"" + options.prometheus_url + "\" is no address",
                 "write http://HOST:PORT without a path");
  return parse_algorithm(options.algorithm, options.deterministic).status();
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// The engines' own part of a message comes on top of the network's.
PathFigures told_path(const ServerOptions& options) {
  PathFigures told;
  if (options.path_latency_us > 0)
    told.alpha_us = kTcpPath.alpha_us + static_cast<double>(options.path_latency_us);
  if (options.path_mbit > 0) told.beta_ns = 8000 / static_cast<double>(options.path_mbit);
  return told;
}

Result<ServiceOptions> service_options(const ServerOptions& options) {
  ServiceOptions service;
  service.listen = options.listen;
  Result<std::optional<Secret>> token =
      read_optional_token(token_file_path(options.token_file), TokenReader::kDaemon);
  if (!token.ok()) return token.status();
  service.token = token.take();
  service.insecure = options.insecure;
  if (!options.state_dir.empty()) GRADBUS_RETURN_IF_ERROR(check_state_folder(options.state_dir));
  service.state_dir = options.state_dir;
  service.coordinator.heartbeat_ms = static_cast<uint32_t>(options.heartbeat_ms);
  service.coordinator.lease_ms = static_cast<uint32_t>(options.lease_ms);
  service.coordinator.plan.chunk_bytes = static_cast<uint64_t>(options.chunk_kib) << 10;
  service.coordinator.plan.algorithm =
      parse_algorithm(options.algorithm, options.deterministic).value();
  service.coordinator.late = {options.late_mode, static_cast<double>(options.late_percent) / 100,
                              static_cast<uint32_t>(options.late_seconds)};
  service.coordinator.loss.share_max = static_cast<double>(options.loss_percent) / 100;
  service.coordinator.plan.deterministic = options.deterministic;
  service.coordinator.plan.nccl = options.nccl;
  service.coordinator.plan.told = told_path(options);
  service.coordinator.equal_shards = options.equal_shards;
  service.coordinator.keep_shards = options.keep_shards;
  service.coordinator.seed = random_seed();
  service.coordinator.key = random_secret();
  return service;
}

// Ends the process with the thread that started it. A parent that died before this call is noticed
// when the ready line cannot be written.
void follow_parent() { prctl(PR_SET_PDEATHSIG, SIGTERM); }

sigset_t block_signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is an error of one write
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);  // a reload
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

Status announce(const std::string& address, const std::string& metrics, int fd) {
  const Fd owner(fd);
  const std::string more = metrics.empty() ? "" : ",\"metrics\":\"" + metrics + "\"";
  const std::string line =
      "{\"address\":\"" + address + "\",\"pid\":" + std::to_string(getpid()) + more + "}\n";
  const ssize_t written = write(fd, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return Status();
  return error("F100", "--ready-fd " + std::to_string(fd) + ": " +
                           (written < 0 ? std::strerror(errno) : "short write"));
}

// The arguments without the role, when they or the environment say that it is a shard.
std::optional<std::vector<char*>> shard_arguments(int argc, char** argv) {
  const char* role = std::getenv("GRADBUS_SERVER_ROLE");
  std::string_view chosen = role == nullptr ? "" : role;
  std::vector<char*> others;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("--role=")) {
      chosen = word.substr(7);
    } else if (word == "--role" && i + 1 < argc) {
      chosen = argv[++i];
    } else {
      others.push_back(argv[i]);
    }
  }
  return chosen == "shard" ? std::optional(others) : std::nullopt;
}

// A shard moves gradients as an agent does, with the agent's engine: it is that program.
Status become_shard(std::vector<char*> arguments) {
  std::error_code problem;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", problem);
  std::string program = (self.parent_path() / "gradbus-agent").string();
  std::string flag = "--shard";
  arguments.insert(arguments.begin(), {program.data(), flag.data()});
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  return error("F100", "--role=shard needs " + program + ": " + std::strerror(errno),
               "install all programs into one directory");
}

// gRPC answers or cancels every call that has begun, and a flood may have begun very many. The
// coordinator has nothing to save, so it does not wait for them longer than this.
void end_soon() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    spdlog::warn("calls are still open after 5 s; ended without them");
    spdlog::default_logger()->flush();
    _exit(0);
  }).detach();
}

// The command line, and the values that it gave at the start.
struct Invocation {
  int argc;
  char** argv;
  OptionValues values;
};

Result<bool> read_options(ServerOptions& options, Invocation& invocation) {
  OptionTable table("server", "The control plane of Gradbus.");
  options.declare(table);
  Result<bool> parsed = table.parse(invocation.argc, invocation.argv);
  invocation.values = table.values();
  if (parsed.ok() && parsed.value()) GRADBUS_RETURN_IF_ERROR(check(options));
  return parsed;
}

Result<ReloadedOptions> read_again(const Invocation& used) {
  ServerOptions options;
  Invocation invocation{used.argc, used.argv, {}};
  const Result<bool> read = read_options(options, invocation);
  if (!read.ok()) return read.status();
  Result<std::optional<Secret>> token =
      read_optional_token(token_file_path(options.token_file), TokenReader::kDaemon);
  if (!token.ok()) return token.status();
  return ReloadedOptions{invocation.values, options.log_level, token.take()};
}

// Returns the signal that ends the daemon.
int wait_for_end(const sigset_t& signals, Reloader& reloader, DaemonMonitor& monitor,
                 Service& service) {
  for (;;) {
    int number = 0;
    sigwait(&signals, &number);
    if (number != SIGHUP) return number;
    service.reloaded(reloader.reload());
    monitor.reloaded();
  }
}

Status serve(const ServerOptions& options, const Invocation& invocation, const sigset_t& signals) {
  GRADBUS_RETURN_IF_ERROR(check_daemon_files());
  Result<ServiceOptions> wanted = service_options(options);
  if (!wanted.ok()) return wanted.status();
  ServiceOptions service_wanted = wanted.take();
  Page page(service_wanted.token, options.prometheus_url);
  DaemonMonitor monitor("coordinator");
  GRADBUS_RETURN_IF_ERROR(monitor.listen(
      options.metrics_listen, [&](const HttpRequest& request) { return page.answer(request); }));
  service_wanted.coordinator.page = monitor.address();
  service_wanted.monitor = &monitor;
  if (!monitor.address().empty()) service_wanted.page = &page;
  Result<std::unique_ptr<Service>> service = Service::start(service_wanted);
  if (!service.ok()) return service.status();
  const std::string address = service.value()->address();
  if (options.ready_fd >= 0) {
    GRADBUS_RETURN_IF_ERROR(
        announce(address, monitor.address(), static_cast<int>(options.ready_fd)));
  }
  monitor.watch().add("coordinator", service.value()->turns());
  monitor.on_health([&](bool serves, bool moves) { service.value()->set_health(serves, moves); });
  monitor.set_ready({}, "serving at " + address);
  monitor.start();
  Reloader reloader(
      invocation.values, service_wanted.token, [&] { return read_again(invocation); },
      [&](const Secret& changed) {
        service.value()->set_token(changed);
        page.set_token(changed);
      });
  spdlog::info("coordinator listens on {}{}", address,
               service_wanted.token ? "" : ", without a cluster token");
  const int signal_number = wait_for_end(signals, reloader, monitor, *service.value());
  monitor.stop();
  spdlog::info("stopping: {}", strsignal(signal_number));
  end_soon();
  service.value()->stop();
  return Status();
}

Status run(int argc, char** argv, const sigset_t& signals) {
  ServerOptions options;
  Invocation invocation{argc, argv, {}};
  const Result<bool> parsed = read_options(options, invocation);
  if (!parsed.ok()) return parsed.status();
  if (!parsed.value()) return Status();
  GRADBUS_RETURN_IF_ERROR(
      start_daemon_log("gradbus-server", options.log_level, options.log_format));
  if (options.exit_with_parent) follow_parent();
  return serve(options, invocation, signals);
}

}  // namespace
}  // namespace gradbus

int main(int argc, char** argv) {
  gradbus::raise_descriptor_limit();
  auto shard = gradbus::shard_arguments(argc, argv);
  const gradbus::Status status = shard ? gradbus::become_shard(std::move(*shard))
                                       : gradbus::run(argc, argv, gradbus::block_signals());
  if (status.ok()) return 0;
  std::fprintf(stderr, "gradbus-server: %s\n", status.message().c_str());
  return 1;
}
