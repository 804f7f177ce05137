#include "cli/cluster/embedded_cluster.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <utility>

#include "cli/cluster/cluster_token.h"
#include "cli/process/rank_env.h"
#include "cli/process/stop_ladder.h"
#include "common/errors.h"
#include "common/text/json_text.h"

namespace gradbus {
namespace {

constexpr size_t kReadyLineBytesMax = 4096;
// These daemons share cores with the ranks that they serve, so one may be silent because it does
// not get to run. One that dies closes its connection, which is seen without any lease.
constexpr char kLeaseMs[] = "15000";
constexpr char kStartAdvice[] =
    "gradbus doctor; run it again with --verbose to see the daemons' logs";

Status not_found(const std::string& path) {
  return error("H201", path + " is not there, so no embedded daemons can be started",
               "install all programs into one directory, or start the daemons and unset --agents");
}

// Reads what is there; true when the line is whole or nothing more will come.
bool read_ready(const Fd& fd, std::string* line) {
  char buffer[512];
  const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
  if (got < 0) return errno != EAGAIN && errno != EINTR;
  line->append(buffer, static_cast<size_t>(got));
  return got == 0 || line->ends_with('\n') || line->size() > kReadyLineBytesMax;
}

}  // namespace

EmbeddedCluster::EmbeddedCluster(Screen& screen, OrphanGuard& guard, bool verbose)
    : screen_(screen), guard_(guard), verbose_(verbose) {}

EmbeddedCluster::~EmbeddedCluster() { stop(); }

Status EmbeddedCluster::start(const ClusterLayout& layout, SignalQueue& signals) {
  Result<PrivateDir> directory = PrivateDir::create();
  if (!directory.ok()) return directory.status();
  directory_ = std::make_unique<PrivateDir>(directory.take());
  guard_.watch_directory(directory_->path());
  Result<std::string> token_file = create_embedded_token(directory_->path());
  if (!token_file.ok()) return token_file.status();
  token_file_ = token_file.take();
  if (!layout.links.empty()) {
    Result<LinkLab> lab = LinkLab::create(layout.links);
    if (!lab.ok()) return lab.status();
    lab_ = std::make_unique<LinkLab>(lab.take());
  }
  const Nanos until = monotonic_now() + kDaemonStart;
  GRADBUS_RETURN_IF_ERROR(start_coordinator());
  Result<std::string> address = await_ready(daemons_.back(), "address", signals, until);
  if (!address.ok()) return address.status();
  coordinator_ = address.take();
  GRADBUS_RETURN_IF_ERROR(announce_embedded(directory_->path(), coordinator_));
  GRADBUS_RETURN_IF_ERROR(start_agents(layout));
  GRADBUS_RETURN_IF_ERROR(start_shards(layout));
  return await_nodes(signals, until);
}

// On loopback, or where every agent of the lab can reach it and nobody else.
Status EmbeddedCluster::start_coordinator() {
  const std::string host = lab_ ? lab_->coordinator_address() : "127.0.0.1";
  std::vector<std::string> words = {sibling_program("gradbus-server"),
                                    "--role=coordinator",
                                    "--listen",
                                    host + ":0",
                                    "--lease-ms",
                                    kLeaseMs};
  return start_daemon({"server", std::move(words), EmbeddedDaemon::Role::kCoordinator,
                       lab_ ? lab_->coordinator_netns() : -1});
}

// Where a node's daemons listen and, as the coordinator cannot see it, how fast that network is.
std::vector<std::string> EmbeddedCluster::network_words(const ClusterLayout& layout,
                                                        int node) const {
  if (lab_ == nullptr) return {"--bind", "127.0.0.1"};
  const uint64_t rate = layout.links[static_cast<size_t>(node)].bits_per_second;
  return {"--bind", lab_->address(node), "--bandwidth", std::to_string(rate) + "bit"};
}

Status EmbeddedCluster::start_agents(const ClusterLayout& layout) {
  for (int i = 0; i < layout.agents; ++i) {
    const std::string name = "agent-" + std::to_string(i);
    std::vector<std::string> words = {
        sibling_program("gradbus-agent"),          "--coordinator", coordinator_, "--socket",
        directory_->path() + "/" + name + ".sock", "--name",        name};
    std::ranges::copy(network_words(layout, i), std::back_inserter(words));
    GRADBUS_RETURN_IF_ERROR(start_daemon(
        {name, std::move(words), EmbeddedDaemon::Role::kAgent, lab_ ? lab_->netns(i) : -1}));
  }
  return {};
}

Status EmbeddedCluster::start_shards(const ClusterLayout& layout) {
  for (size_t i = 0; i < layout.shard_nodes.size(); ++i) {
    const std::string name = "shard-" + std::to_string(i);
    const int node = layout.shard_nodes[i];
    std::vector<std::string> words = {sibling_program("gradbus-server"),
                                      "--role=shard",
                                      "--coordinator",
                                      coordinator_,
                                      "--name",
                                      name};
    std::ranges::copy(network_words(layout, node), std::back_inserter(words));
    GRADBUS_RETURN_IF_ERROR(start_daemon(
        {name, std::move(words), EmbeddedDaemon::Role::kShard, lab_ ? lab_->netns(node) : -1}));
  }
  return {};
}

Status EmbeddedCluster::await_nodes(SignalQueue& signals, Nanos until) {
  for (EmbeddedDaemon& daemon : daemons_) {
    if (!daemon.ready.valid()) continue;  // the coordinator: it is ready
    Result<std::string> socket = await_ready(daemon, "socket", signals, until);
    if (!socket.ok()) return socket.status();
    if (daemon.spec.role == EmbeddedDaemon::Role::kAgent) sockets_.push_back(socket.take());
  }
  return {};
}

Status EmbeddedCluster::start_daemon(EmbeddedDaemon::Spec spec) {
  Result<EmbeddedDaemon> daemon = make_daemon(std::move(spec));
  if (!daemon.ok()) return daemon.status();
  daemons_.push_back(daemon.take());
  return {};
}

Result<EmbeddedDaemon> EmbeddedCluster::make_daemon(EmbeddedDaemon::Spec spec) {
  const std::string& program = spec.words.front();
  if (access(program.c_str(), X_OK) != 0) return not_found(program);
  Result<Pipe> ready = make_pipe(PipeUse::kForPolling);
  if (!ready.ok()) return ready.status();
  Result<Pipe> log = make_pipe(PipeUse::kForPolling);
  if (!log.ok()) return log.status();
  ChildSpec wanted{spec.words, own_environment()};
  wanted.words.insert(wanted.words.end(), {"--token-file", token_file_, "--ready-fd",
                                           std::to_string(kReadyFd), "--exit-with-parent"});
  wanted.stdout_fd = wanted.stderr_fd = log.value().write.get();
  wanted.ready_fd = ready.value().write.get();
  wanted.netns_fd = spec.netns_fd;
  wanted.death_signal = SIGTERM;
  Result<Child> child = start_child(wanted);
  if (!child.ok()) return child.status();
  auto last_line = std::make_shared<std::string>();
  std::vector<OutputPipe> pipes;
  pipes.push_back({std::move(log.value().read),
                   std::make_unique<TailStream>(screen_, Label{"[" + spec.name + "] ", 0}, verbose_,
                                                TailStream::Lines{last_line, shown_wait_})});
  Process process("embedded " + spec.name, child.take(), std::move(pipes), guard_);
  return EmbeddedDaemon{std::move(spec), std::move(process), std::move(ready.value().read),
                        last_line};
}

Result<std::string> EmbeddedCluster::await_ready(EmbeddedDaemon& daemon, const char* key,
                                                 SignalQueue& signals, Nanos until) {
  PollSet set;
  std::string line;
  while (monotonic_now() < until) {
    set.clear();
    set.watch(daemon.ready.get(), POLLIN);
    set.watch(signals.fd(), POLLIN);
    turn(set, until);
    if (signals.take()) return Status(Code::kClosed, "stopped");
    if (set.events(daemon.ready.get()) == 0 || !read_ready(daemon.ready, &line)) continue;
    daemon.ready.reset();
    if (!line.empty()) return parse_ready_line(line, key);
    // The pipe ended without a word, so the process has ended or soon will.
    for (const Nanos soon = monotonic_now() + kSecond;
         !daemon.process.done() && monotonic_now() < soon;) {
      set.clear();
      turn(set, soon);
    }
    return error(daemon.error_id(),
                 daemon.process.name() + " did not start: " + daemon.last_words(), kStartAdvice);
  }
  return error(daemon.error_id(), daemon.process.name() + " was not ready within " +
                                      std::to_string(kDaemonStart / kSecond) +
                                      " s: " + daemon.last_words());
}

void EmbeddedCluster::watch(PollSet& set) const {
  for (const EmbeddedDaemon& daemon : daemons_) daemon.process.watch(set, false);
}

void EmbeddedCluster::serve(const PollSet& set, Nanos now) {
  for (EmbeddedDaemon& daemon : daemons_) daemon.process.serve(set, now, false);
  restart_ended();
}

Nanos EmbeddedCluster::deadline() const {
  Nanos next = kNever;
  for (const EmbeddedDaemon& daemon : daemons_) next = std::min(next, daemon.process.deadline());
  return next;
}

// Counts it, too.
bool EmbeddedCluster::is_started_again(const EmbeddedDaemon& daemon) {
  if (daemon.spec.role == EmbeddedDaemon::Role::kCoordinator) return false;
  int& left = daemon.spec.role == EmbeddedDaemon::Role::kAgent ? restarts_left_.agents
                                                               : restarts_left_.shards;
  return left > 0 && left-- > 0;
}

Status EmbeddedCluster::take_death() {
  if (!restart_failure_.ok()) return std::exchange(restart_failure_, Status());
  for (EmbeddedDaemon& daemon : daemons_) {
    if (!daemon.process.take_ended()) continue;
    daemon.restarting = is_started_again(daemon);
    if (daemon.spec.role == EmbeddedDaemon::Role::kShard)
      tell_lost_shard(daemon);
    else if (daemon.restarting)
      screen_.note("gradbus run: " + daemon.obituary() + "; it is started again (" +
                   std::to_string(restarts_left_.agents) + " more times)");
    else
      return error(daemon.error_id(), daemon.obituary(),
                   "run it again; with --verbose the daemons' logs are shown");
  }
  return {};
}

// The coordinator knows whether the job has backup replicas. If not, its ranks get the error.
void EmbeddedCluster::tell_lost_shard(const EmbeddedDaemon& daemon) {
  screen_.note("gradbus run: " + daemon.obituary() + "; a job with replicas=2 goes on with the " +
               "backup replica, any other that uses shards ends with GB-P103; the shard is " +
               (daemon.restarting
                    ? "started again (" + std::to_string(restarts_left_.shards) + " more times)"
                    : "not started again"));
}

// The ranks of an agent find it by its socket, which it takes over. A shard joins the job at the
// next fence.
void EmbeddedCluster::restart_ended() {
  for (EmbeddedDaemon& daemon : daemons_) {
    if (!daemon.restarting || !daemon.process.done()) continue;
    daemon.restarting = false;
    Result<EmbeddedDaemon> next = make_daemon(daemon.spec);
    if (next.ok())
      daemon = next.take();
    else if (daemon.spec.role == EmbeddedDaemon::Role::kShard)
      screen_.note("gradbus run: " + next.status().message());
    else
      restart_failure_ = next.status();
  }
}

void EmbeddedCluster::stop() {
  for (EmbeddedDaemon& daemon : daemons_) daemon.restarting = false;
  signal_all(SIGTERM);
  PollSet set;
  const Nanos patience =
      std::getenv("GRADBUS_AGENT_SNAPSHOTS") == nullptr ? kDaemonStop : kSnapshotStop;
  for (const Nanos until = monotonic_now() + patience; !all_done() && monotonic_now() < until;) {
    set.clear();
    turn(set, until);
  }
  signal_all(SIGKILL);
  // A killed process ends in moments; the second of settling is for whatever holds its log open.
  for (const Nanos until = monotonic_now() + 2 * kSecond; !all_done() && monotonic_now() < until;) {
    set.clear();
    turn(set, until);
  }
  daemons_.clear();
  lab_.reset();
  directory_.reset();
  guard_.forget_directory();
}

void EmbeddedCluster::signal_all(int number) const {
  for (const EmbeddedDaemon& daemon : daemons_) daemon.process.signal(number);
}

bool EmbeddedCluster::all_done() const {
  return std::all_of(daemons_.begin(), daemons_.end(),
                     [](const EmbeddedDaemon& daemon) { return daemon.process.done(); });
}

// One turn for the daemons alone, on top of what the caller put into `set`.
void EmbeddedCluster::turn(PollSet& set, Nanos until) {
  watch(set);
  set.wait_until(std::min(until, deadline()));
  serve(set, monotonic_now());
  screen_.flush();
}

std::string sibling_program(const char* name) {
  std::error_code problem;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", problem);
  return (self.parent_path() / name).string();
}

Result<std::string> parse_ready_line(const std::string& line, const char* key) {
  const auto object = parse_json(line);
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (object.is_object() && found != object.end() && found->is_string())
    return found->get<std::string>();
  return error("D602",
               "a daemon's ready line has no \"" + std::string(key) + "\": " + line.substr(0, 80));
}

}  // namespace gradbus
