#include "worker_agent/control/control_link.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>

#include "common/clock.h"
#include "common/errors.h"
#include "common/trust/handshake.h"

namespace gradbus {
namespace {

constexpr std::chrono::seconds kChallengeDeadline{5};
constexpr int kPingEveryMs = 10'000;
// A coordinator that is only busy or suspended keeps its agents. They wait for much longer than a
// lease, which does not expire meanwhile. A flood of calls that are reset can occupy gRPC for
// longer than a minute.
constexpr int kPingAnswerMaxMs = 300'000;
constexpr std::chrono::milliseconds kGoodbyeMax{500};
constexpr std::chrono::milliseconds kEndMax{2'000};
constexpr Nanos kStuckMax = 2 * kSecond;

}  // namespace

// Lives until gRPC has called OnDone: it owns itself.
class ControlLink::Stream final
    : public grpc::ClientBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
 public:
  Stream(const std::string& coordinator, const std::optional<Secret>& token,
         Mailbox<ControlEvent>& events)
      : coordinator_(coordinator), events_(events) {
    if (token) proof_.emplace(*token);
  }

  void open(v1::Coordinator::Stub& stub, std::shared_ptr<Stream> self,
            const v1::AgentMessage& hello) {
    self_ = std::move(self);
    stub_ = &stub;
    outgoing_.push_back(hello);
    if (!proof_) return begin();
    challenge_context_.set_wait_for_ready(false);
    challenge_context_.set_deadline(std::chrono::system_clock::now() + kChallengeDeadline);
    challenge_.set_nonce(proof_->nonce());
    stub.async()->Challenge(&challenge_context_, &challenge_, &answer_,
                            [this](grpc::Status status) { on_challenge(status); });
  }

  bool send(const v1::AgentMessage& message) {
    {
      const std::lock_guard lock(lock_);
      if (!closed_) {
        outgoing_.push_back(message);
        if (begun_ && outgoing_.size() == 1) StartWrite(&outgoing_.front());
        return true;
      }
      if (!is_stuck()) return false;
    }
    context_.TryCancel();  // without the lock: gRPC may call OnDone here
    return false;
  }

  size_t unsent() {
    const std::lock_guard lock(lock_);
    return outgoing_.size();
  }

  void cancel() {
    challenge_context_.TryCancel();
    context_.TryCancel();
  }
  // The mailbox may go away after this returns true.
  bool wait_ended(std::chrono::milliseconds time_max) {
    std::unique_lock lock(lock_);
    return done_.wait_for(lock, time_max, [this] { return ended_; });
  }

  void OnReadDone(bool ok) override {
    if (!ok) return close();
    events_.post({false, "", incoming_});
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(lock_);
    outgoing_.pop_front();
    if (ok && !outgoing_.empty()) StartWrite(&outgoing_.front());
  }

  void OnDone(const grpc::Status& status) override { finish(status); }

 private:
  void on_challenge(const grpc::Status& status) {
    const bool unknown_call = status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
    if (!status.ok() && !unknown_call) return finish(status);
    if (!proof_->coordinator_knows(answer_.nonce(), answer_.proof())) {
      const std::string what = "the coordinator at " + coordinator_ +
                               " does not prove that it knows this agent's cluster token";
      return finish({grpc::StatusCode::UNAUTHENTICATED, error("C503", what).message()});
    }
    context_.AddMetadata(kProofKey, proof_->metadata(answer_.nonce(), "Attach", ""));
    begin();
  }

  void begin() {
    context_.set_wait_for_ready(false);
    stub_->async()->Attach(&context_, this);
    AddHold();  // our threads write outside of gRPC's reactions; released when the stream ends
    {
      const std::lock_guard lock(lock_);
      begun_ = true;
      StartWrite(&outgoing_.front());
    }
    StartRead(&incoming_);
    StartCall();
  }

  // The last thing that happens to a stream.
  void finish(const grpc::Status& status) {
    {
      const std::lock_guard lock(lock_);
      closed_ = true;
    }
    events_.post({true, status.ok() ? "closed by the coordinator" : status.error_message(), {}});
    const std::shared_ptr<Stream> self = std::move(self_);
    const std::lock_guard lock(lock_);
    ended_ = true;
    done_.notify_all();
  }

  void close() {
    {
      const std::lock_guard lock(lock_);
      closed_ = true;
      closed_at_ = monotonic_now();
    }
    RemoveHold();
  }

  // After a message that gRPC could not read, the end of the stream waits behind it for ever.
  bool is_stuck() const {
    return !ended_ && closed_at_ != 0 && monotonic_now() - closed_at_ > kStuckMax;
  }

  const std::string coordinator_;
  Mailbox<ControlEvent>& events_;
  std::optional<CallProof> proof_;
  v1::Coordinator::Stub* stub_ = nullptr;
  grpc::ClientContext challenge_context_;
  v1::ChallengeRequest challenge_;
  v1::ChallengeReply answer_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  std::shared_ptr<Stream> self_;
  std::mutex lock_;
  std::condition_variable done_;
  std::deque<v1::AgentMessage> outgoing_;
  bool begun_ = false;   // the stream has begun, after its challenge
  bool closed_ = false;  // nothing can be sent any more
  Nanos closed_at_ = 0;  // when reading ended; 0: it has not
  bool ended_ = false;   // OnDone has run
};

namespace {

grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingAnswerMaxMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  return arguments;
}

}  // namespace

ControlLink::ControlLink(std::string coordinator, const std::optional<Secret>& token)
    : coordinator_(std::move(coordinator)),
      token_(token),
      channel_(grpc::CreateCustomChannel(coordinator_, grpc::InsecureChannelCredentials(),
                                         channel_arguments())),
      stub_(v1::Coordinator::NewStub(channel_)) {}

void ControlLink::close() {
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(lock_);
    stream = std::move(stream_);
  }
  if (stream == nullptr) return;
  // A coordinator that gets it closes the stream. Without a goodbye it would report the node as
  // lost.
  v1::AgentMessage goodbye;
  goodbye.mutable_goodbye();
  if (!stream->send(goodbye) || !stream->wait_ended(kGoodbyeMax)) {
    stream->cancel();
    stream->wait_ended(kEndMax);
  }
  // OnDone releases it a moment later. If that were the last reference, gRPC's thread would destroy
  // the call while this process may already be ending.
  for (int pauses = 0; stream.use_count() > 1 && pauses < 1000; ++pauses)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void ControlLink::reconnect(const v1::AgentMessage& hello) {
  auto stream = std::make_shared<Stream>(coordinator_, token_, events_);
  {
    const std::lock_guard lock(lock_);
    stream_ = stream;
  }
  stream->open(*stub_, stream, hello);
}

size_t ControlLink::unsent() {
  const std::lock_guard lock(lock_);
  return stream_ == nullptr ? 0 : stream_->unsent();
}

bool ControlLink::send(const v1::AgentMessage& message) {
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(lock_);
    stream = stream_;
  }
  return stream != nullptr && stream->send(message);
}

}  // namespace gradbus
