#include "worker_agent/control/conductor.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>

#include "common/cgroup.h"
#include "common/check.h"
#include "common/daemon/daemon_monitor.h"
#include "common/errors.h"
#include "common/guarded.h"
#include "common/log.h"

namespace gradbus {
namespace {

constexpr int kTickMs = 50;
constexpr int kIdleTickMs = 250;  // without clients only the coordinator must be watched

}  // namespace

Conductor::Conductor(ConductorOptions options, AttachListener listener, Engine& engine,
                     Mailbox<JobBroken>& broken)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      engine_(engine),
      broken_(broken),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      quota_{options_.shm_bytes_max, 0, [this] { keep_lease(); }, options_.huge_pages,
             [] { return read_cgroup_limits().memory; }},
      ps_jobs_(engine, options_.keeper),
      control_(options_.coordinator, options_.token, control_events_) {
  GRADBUS_CHECK(epoll_.valid());
  if (!options_.shard) GRADBUS_CHECK(watch(listener_.fd(), EPOLLIN));
  for (const int fd : {broken_.fd(), control_events_.fd(), path_answers_->fd(), nccl_.news->fd(),
                       tensors_gone_->fd()})
    GRADBUS_CHECK(watch(fd, EPOLLIN));
}

Conductor::~Conductor() {
  for (auto& [id, job] : jobs_)
    job->fail(
        Status(Code::kPeerLost, "GB-A301 AGENT_LOST: agent \"" + options_.name +
                                    "\" is stopping | next: gradbus status; then restart the job"));
  ps_jobs_.end_all();
}

bool Conductor::watch(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Conductor::rewatch(const AttachedClient& client) {
  epoll_event event{};
  event.events = EPOLLIN | (client.wants_to_write() ? EPOLLOUT : 0u);
  event.data.fd = client.fd();
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fd(), &event);
}

void Conductor::watch_full_sockets() {
  for (const auto& [fd, client] : clients_)
    if (client->wants_to_write()) rewatch(*client);
}

void Conductor::run(int signal_fd, const std::function<bool()>& on_signal) {
  GRADBUS_CHECK(watch(signal_fd, EPOLLIN));
  tell_readiness(
      error("C501", "the coordinator " + options_.coordinator + " has not answered yet"));
  say_hello();
  for (;;) {
    std::array<epoll_event, 64> ready;
    const int count = epoll_wait(epoll_.get(), ready.data(), ready.size(),
                                 clients_.empty() ? kIdleTickMs : kTickMs);
    bool clients_wait = false;
    for (int i = 0; i < count; ++i) {
      const int fd = ready[static_cast<size_t>(i)].data.fd;
      if (fd == signal_fd && on_signal()) return;
      clients_wait = clients_wait || fd == listener_.fd();
      on_ready(fd);
    }
    // Last, because a new client's socket may reuse the number of one that was closed a moment ago.
    // An event of that one may still be among the current events.
    if (clients_wait) accept_clients();
    const Status turn = guarded([this] { take_messages(); });
    if (!turn.ok()) spdlog::error("a turn of the conductor: {}", turn.message());
  }
}

// Requests of clients and of the coordinator are guarded where they are handled. Other errors
// belong to no job.
void Conductor::take_messages() {
  turns_.add(1);
  for (const ControlEvent& event : control_events_.take()) take_control(event);
  for (const JobBroken& event : broken_.take()) on_job_broken(event);
  for (const PathAnswer& answer : path_answers_->take()) on_path_answer(answer);
  for (const NcclNews& news : nccl_.news->take()) on_nccl_news(news);
  for (const TensorGone& gone : tensors_gone_->take())
    if (WorkerControlJob* running = job(gone.job)) running->free_tensor(gone.tensor);
  flush_registrations();
  tick();
}

void Conductor::on_ready(int fd) {
  if (const auto process = client_of_process_.find(fd); process != client_of_process_.end())
    return on_process_ended(process->second);
  const auto client = clients_.find(fd);
  if (client != clients_.end()) on_client(*client->second);
}

void Conductor::keep_lease() {
  if (connected_ && monotonic_now() >= next_heartbeat_) send_heartbeat();
}

void Conductor::tick() {
  const Nanos now = monotonic_now();
  keep_lease();
  send_traces(now);
  if (options_.monitor != nullptr && now >= next_metrics_) publish_metrics(now);
  if (next_reconnect_ != 0 && now >= next_reconnect_) say_hello();
  for (auto link = broken_links_.begin(); link != broken_links_.end();) {
    const auto current = link++;
    if (now < current->second.deadline) continue;
    const Status status = current->second.status;
    const uint64_t id = current->first;
    broken_links_.erase(current);
    fail_job(id, status, true);
  }
  look_for_ended_processes(now);
  expire_silent_clients(now);
  drop_stuck_clients();
  end_patience();
  remove_finished_jobs();
}

void Conductor::say_ready() {
  if (said_ready_ || options_.ready_fd < 0) return;
  said_ready_ = true;
  nlohmann::json line{{"socket", listener_.path()}, {"pid", getpid()}, {"name", options_.name}};
  for (const auto& [transport, address] : options_.addresses) line["address"] = address;
  if (options_.monitor != nullptr && !options_.monitor->address().empty())
    line["metrics"] = options_.monitor->address();
  const std::string text = line.dump() + "\n";
  if (write(options_.ready_fd, text.data(), text.size()) < 0)
    spdlog::warn("no process reads --ready-fd {}", options_.ready_fd);
  close(options_.ready_fd);
}

}  // namespace gradbus
