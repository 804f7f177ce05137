#include "data_plane/engine.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/check.h"
#include "common/errors.h"
#include "common/guarded.h"
#include "common/log.h"

namespace gradbus {
namespace {

constexpr size_t kEventsPerTurn = 64;
// Usually one; a few, because the next may arrive before the last one's link has closed.
constexpr size_t kEchoesMax = 4;
constexpr int kSleepMsMax = 100;
constexpr Nanos kFruitlessMax = 10 * kMillisecond;
constexpr int kIdleSleepMsMax = 1000;  // without a job

}  // namespace

Engine::Engine(std::unique_ptr<Transport> transport, Mailbox<JobBroken>& broken, uint32_t cores)
    : transport_(std::move(transport)),
      broken_(broken),
      cores_(cores),
      pending_links_(*transport_),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  GRADBUS_CHECK(epoll_.valid());
  GRADBUS_CHECK(watch(bell_.get(), EPOLLET));
  GRADBUS_CHECK(watch(commands_.fd()));
  GRADBUS_CHECK(transport_->wait_fd() < 0 || watch(transport_->wait_fd()));
}

// Errors of a job are caught where its work begins. Other errors belong to no job.
void Engine::run() {
  while (!stopping_.load(std::memory_order_relaxed)) {
    const Status turn = guarded([this] { do_work() == 0 ? rest() : wake_up(); });
    if (!turn.ok()) spdlog::error("a turn of the engine: {}", turn.message());
  }
  take_commands();  // jobs that the conductor has ended on its way out: their last snapshots
}

size_t Engine::do_work() {
  turns_.add(1);
  size_t work = take_commands();  // the conductor: jobs and tensors that come and go
  work += poll_transport();       // frames that came or went -> collectives
  work += work_on_jobs();         // submissions, local sums, frames to post
  work += work_on_probes();       // paths being measured
  return work;
}

void Engine::stop() {
  stopping_.store(true);
  post(EndJob{0});
}

// ---- jobs

size_t Engine::take_commands() {
  const std::vector<std::unique_ptr<PostedCommand>> commands = commands_.take();
  for (const auto& command : commands) run_command(*command);
  return commands.size();
}

void Engine::run_command(PostedCommand& command) {
  const uint64_t job = command.job();
  const Status done = guarded([&] { command.carry_out_in(*this); });
  if (done.ok()) return;
  end(job);
  broken_.post(JobBroken{job, done});
}

void Engine::begin(std::unique_ptr<DataJob> job) {
  const uint64_t id = job->id();
  for (const int doorbell : job->doorbells())
    if (!watch(doorbell, EPOLLET))
      broken_.post(JobBroken{
          id, error("A304", std::string("the agent cannot watch one more process of job id ") +
                                std::to_string(id) + ": " + std::strerror(errno))});
  DataJob& started = *(jobs_[id] = std::move(job));
  started.expect_reports_by(reports_by_);
  if (started.remote()) admit_pending_links(started);
}

void Engine::admit_pending_links(DataJob& job) {
  const auto is_for = [&job](const FrameHeader& hello) {
    return hello.job == job.id() && job.knows_peer(hello.source);
  };
  for (const auto& [link, hello, deadline] : pending_links_.take(is_for)) offer(job, link, hello);
}

void Engine::offer(DataJob& job, LinkId link, const FrameHeader& hello) {
  const Status accepted = job.on_accepted(link, hello);
  if (!accepted.ok()) pending_links_.refuse(link, accepted.message());
}

void Engine::add_shards(const AddShards& command) {
  DataJob* const job = find(command.job);
  if (job == nullptr) return;
  job->add_shards(command);
  if (job->remote()) admit_pending_links(*job);
}

void Engine::expect_reports_by(Nanos at) {
  reports_by_ = at;
  for (const auto& [id, job] : jobs_) job->expect_reports_by(at);
}

void Engine::end(uint64_t job) {
  if (const auto at = jobs_.find(job); at != jobs_.end()) end(at);
}

void Engine::end(std::map<uint64_t, std::unique_ptr<DataJob>>::iterator job) {
  for (const int doorbell : job->second->doorbells()) unwatch(doorbell);
  job->second->end();
  if (!job->second->ended()) ending_.push_back(std::move(job->second));
  jobs_.erase(job);
}

void Engine::report_broken(const DataJob& job, const Status& status) {
  broken_.post(JobBroken{job.id(), status});
}

size_t Engine::work_on_jobs() {
  size_t work = 0;
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto current = job++;
    DataJob& hosted = *current->second;
    if (const Status done = guarded([&] { work += hosted.do_work(); }); !done.ok())
      hosted.fail(done);
    if (hosted.broken().ok()) continue;
    report_broken(hosted, hosted.broken());
    end(current);
  }
  return work;
}

// ---- the transport

size_t Engine::poll_transport() {
  std::array<TransportEvent, kEventsPerTurn> events;
  const size_t count = transport_->poll(events);
  for (size_t i = 0; i < count; ++i) on_event(events[i]);
  std::erase_if(ending_, [](const auto& job) { return job->ended(); });
  pending_links_.expire();
  return count;
}

void Engine::on_event(const TransportEvent& event) {
  if (event.kind == TransportEvent::Kind::kAccepted) return on_accepted(event);
  if (on_probe_event(event)) return;
  DataJob* job = owner_of(event.link);
  if (job == nullptr) {
    if (event.kind == TransportEvent::Kind::kClosed) pending_links_.forget(event.link);
    return;
  }
  if (const Status done = guarded([&] { tell(*job, event); }); !done.ok()) job->fail(done);
}

void Engine::tell(DataJob& job, const TransportEvent& event) {
  switch (event.kind) {
    case TransportEvent::Kind::kConnected: return job.on_connected(event.link);
    case TransportEvent::Kind::kSent: return job.on_sent(event);
    case TransportEvent::Kind::kReceived: return job.on_received(event);
    case TransportEvent::Kind::kClosed:
      return job.on_closed(event, transport_->link_error(event.link));
    case TransportEvent::Kind::kAccepted: return;
  }
}

void Engine::on_accepted(const TransportEvent& event) {
  if (event.hello.job == kProbeJob) return on_probe_accepted(event.link);
  const auto job = jobs_.find(event.hello.job);
  if (job != jobs_.end() && job->second->remote() && job->second->knows_peer(event.hello.source))
    return offer(*job->second, event.link, event.hello);
  pending_links_.add(event.link, event.hello);
}

DataJob* Engine::owner_of(LinkId link) {
  for (const auto& [id, job] : jobs_)
    if (job->owns(link)) return job.get();
  for (const auto& job : ending_)
    if (job->owns(link)) return job.get();
  return nullptr;
}

// ---- paths being measured

// A measurement during a job would also measure the job.
void Engine::measure(MeasurePath command) {
  if (probe_ != nullptr || !jobs_.empty()) {
    command.answer->post({command.probe});
    return;
  }
  asked_ = std::move(command);
  probe_ = std::make_unique<PathProbe>(*transport_, asked_.address, transport_->now());
}

void Engine::on_probe_accepted(LinkId link) {
  if (echoes_.size() == kEchoesMax) return transport_->disconnect(link);
  echoes_.push_back(std::make_unique<ProbeEcho>(*transport_, link, transport_->now()));
}

bool Engine::on_probe_event(const TransportEvent& event) {
  if (probe_ != nullptr && probe_->owns(event.link)) {
    probe_->on_event(event, transport_->now());
    return true;
  }
  const auto echo = std::find_if(echoes_.begin(), echoes_.end(),
                                 [&](const auto& known) { return known->owns(event.link); });
  if (echo != echoes_.end()) (*echo)->on_event(event);
  return echo != echoes_.end();
}

size_t Engine::work_on_probes() {
  if (probe_ == nullptr && echoes_.empty()) return 0;
  const Nanos now = transport_->now();
  size_t work = 0;
  for (const auto& echo : echoes_) work += echo->do_work(now);
  std::erase_if(echoes_, [](const auto& echo) { return echo->closed(); });
  if (probe_ == nullptr) return work;
  work += probe_->do_work(now);
  if (!probe_->closed()) return work;
  asked_.answer->post({asked_.probe, probe_->alpha_us(), probe_->beta_ns()});
  probe_.reset();  // the next request may follow
  return work + 1;
}

// ---- sleeping

void Engine::rest() {
  const Nanos now = transport_->now();
  if (idle_since_ == 0) idle_since_ = now;
  if (may_spin() && now - idle_since_ < spin_.length()) {
    spin(true);
    sched_yield();  // lets a rank or agent run that has just been woken
    return;
  }
  if (!spinning_) return sleep();
  spin(false);  // one more search, after which it is safe to sleep
}

void Engine::wake_up() {
  if (idle_since_ == 0) return;
  spin_.paused(transport_->now() - idle_since_);
  idle_since_ = 0;
  if (spinning_) spins_paid_.add(1);
  spin(false);
}

void Engine::spin(bool on) {
  if (spinning_ == on) return;
  spinning_ = on;
  if (on) spins_.add(1);
  transport_->expect_polls(on);
}

bool Engine::may_spin() const {
  size_t clients = 0;
  for (const auto& [id, job] : jobs_) clients += job->clients();
  return clients > 0 && clients < cores_;
}

bool Engine::nothing_waits() const {
  return std::all_of(jobs_.begin(), jobs_.end(),
                     [](const auto& entry) { return entry.second->idle(); });
}

int Engine::sleep_ms() const {
  int longest = jobs_.empty() ? kIdleSleepMsMax : kSleepMsMax;
  for (const auto& [id, job] : jobs_) {
    if (job->wake_at() == 0) continue;
    const Nanos left = std::max<Nanos>(job->wake_at() - transport_->now(), 0);
    longest = std::min(longest, static_cast<int>(left / kMillisecond) + 1);
  }
  return longest;
}

// The flag is set before the last look at the rings, and a client reads the flag after its push.
// One of the two sees the other, so no submission is missed.
void Engine::sleep() {
  for (const auto& [id, job] : jobs_) job->set_sleeping(true);
  std::array<epoll_event, 16> ready;
  const bool waits = !nothing_waits();
  // What a rank does is usually done within microseconds. A rank that was stopped or wrote garbage
  // does nothing for long, and then a look every millisecond is enough.
  const int pause_ms = transport_->now() - idle_since_ > kFruitlessMax ? 1 : 0;
  epoll_wait(epoll_.get(), ready.data(), ready.size(), waits ? pause_ms : sleep_ms());
  for (const auto& [id, job] : jobs_) job->set_sleeping(false);
}

// Doorbells are edge-triggered and never read: a client shares the descriptor, so it could make a
// read block. Each write is an edge. The rings contain the reason for it.
bool Engine::watch(int fd, uint32_t mode) {
  epoll_event event{};
  event.events = EPOLLIN | mode;
  event.data.fd = fd;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Engine::unwatch(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

// ---- commands of every job

void carry_out(Engine& engine, const RemoveTensor& command) {
  if (DataJob* const job = engine.find(command.job); job != nullptr) job->remove_tensor(command);
}

void carry_out(Engine& engine, const LoseShard& command) {
  if (DataJob* const job = engine.find(command.job); job != nullptr) job->lose_shard(command.shard);
}

void carry_out(Engine& engine, const ExpectReports& command) {
  engine.expect_reports_by(command.at);
}

void carry_out(Engine& engine, const AddShards& command) { engine.add_shards(command); }

void carry_out(Engine& engine, const EndJob& command) { engine.end(command.job); }

void carry_out(Engine& engine, MeasurePath command) { engine.measure(std::move(command)); }

}  // namespace gradbus
