#include "server/coordinator/status_desk.h"

#include <algorithm>
#include <chrono>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};  // for callers that do not read

grpc::Status busy() {
  return {grpc::StatusCode::RESOURCE_EXHAUSTED,
          error("C506", std::to_string(kStatusCallsMax) + " calls for the status wait already")
              .message()};
}

grpc::ByteBuffer serialize(const v1::StatusReply& reply) {
  grpc::Slice bytes(reply.SerializeAsString());
  return {&bytes, 1};
}

}  // namespace

// Deletes itself after gRPC's last reaction.
class StatusDesk::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(StatusDesk* desk, grpc::CallbackServerContext* context, std::string job,
       grpc::ByteBuffer* reply)
      : desk_(desk), context_(context), job_(std::move(job)), reply_(reply) {}

  const std::string& job() const { return job_; }
  void answer(const grpc::ByteBuffer& answer) {
    *reply_ = answer;
    Finish(grpc::Status::OK);
  }
  void refuse(const grpc::Status& status) { Finish(status); }
  void give_up() { context_->TryCancel(); }

  void OnCancel() override { desk_->cancelled(this); }
  void OnDone() override {
    desk_->done(this);
    delete this;
  }

 private:
  StatusDesk* const desk_;
  grpc::CallbackServerContext* const context_;
  const std::string job_;
  grpc::ByteBuffer* const reply_;
};

grpc::ServerUnaryReactor* StatusDesk::ask(grpc::CallbackServerContext* context,
                                          const v1::StatusRequest& request,
                                          grpc::ByteBuffer* reply) {
  auto* call = new Call(this, context, request.job(), reply);
  {
    const Lock lock(mutex_);
    if (!stopped_ && waiting_.size() < kStatusCallsMax) {
      waiting_.push_back(call);
      changed_.notify_all();
      return call;
    }
  }
  call->refuse(busy());
  return call;
}

void StatusDesk::cancelled(Call* call) {
  {
    const Lock lock(mutex_);
    if (std::erase(waiting_, call) == 0) return;  // it is being answered
  }
  call->refuse(grpc::Status::CANCELLED);
}

void StatusDesk::done(Call* call) {
  const Lock lock(mutex_);
  if (sending_.erase(call) > 0) changed_.notify_all();
}

void StatusDesk::serve() {
  for (;;) {
    std::string job;
    {
      Lock lock(mutex_);
      changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
      const Nanos rest = rest_until_ - monotonic_now();
      if (rest > 0)
        changed_.wait_for(lock, std::chrono::nanoseconds(rest), [this] { return stopped_; });
      if (stopped_) return;
      if (waiting_.empty()) continue;
      job = waiting_.front()->job();
    }
    std::vector<Call*> calls = take_alike(job);
    if (!calls.empty()) hand_out(calls, build(job));
  }
}

// They have come, so an answer that is built from now on is not older than their question. Each is
// counted as one that is being answered: a cancellation must not end it twice.
std::vector<StatusDesk::Call*> StatusDesk::take_alike(const std::string& job) {
  std::vector<Call*> calls;
  const Lock lock(mutex_);
  std::erase_if(waiting_, [&](Call* call) {
    if (call->job() != job) return false;
    calls.push_back(call);
    return true;
  });
  return calls;
}

grpc::ByteBuffer StatusDesk::build(const std::string& job) {
  v1::StatusRequest request;
  request.set_job(job);
  v1::StatusReply reply;
  Nanos taken = 0;
  desk_->act([&](Coordinator& coordinator, Nanos now) {
    const Nanos begin = monotonic_now();
    reply = coordinator.status(request, now);
    taken = monotonic_now() - begin;
  });
  grpc::ByteBuffer answer = serialize(reply);
  rest_until_ = monotonic_now() + kStatusRestFactor * taken;
  return answer;
}

void StatusDesk::hand_out(const std::vector<Call*>& calls, const grpc::ByteBuffer& answer) {
  for (Call* call : calls) {
    {
      Lock lock(mutex_);
      while (!stopped_ && sending_.size() >= kStatusSendingMax) {
        changed_.wait_for(lock, kLookEvery);
        end_slow_readers(monotonic_now());
      }
      sending_[call] = monotonic_now();
    }
    call->answer(answer);
  }
}

void StatusDesk::end_slow_readers(Nanos now) {
  for (auto& [call, since] : sending_)
    if (now - since > kStatusSendMax) call->give_up();
}

void StatusDesk::stop() {
  std::deque<Call*> left;
  {
    const Lock lock(mutex_);
    stopped_ = true;
    left.swap(waiting_);
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  for (Call* call : left)
    call->refuse({grpc::StatusCode::UNAVAILABLE, "the coordinator is being stopped"});
}

}  // namespace gradbus
