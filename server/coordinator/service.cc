#include "server/coordinator/service.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/check.h"
#include "common/daemon/daemon_monitor.h"
#include "common/daemon/health_port.h"
#include "common/errors.h"
#include "common/log.h"
#include "proto/control.h"
#include "server/coordinator/attach_stream.h"
#include "server/coordinator/listen_address.h"
#include "server/coordinator/own_load.h"
#include "server/coordinator/self_call.h"
#include "server/coordinator/status_desk.h"
#include "server/page/page.h"

namespace gradbus {
namespace {

constexpr size_t kMemoryBytesMax = 512 << 20;  // of all connections' buffers
// Pings a silent connection, so that those of vanished callers are closed. Leases find lost agents
// far sooner. After a pause of this process the answer to a ping may still wait to be read, so the
// time limit has to be longer than a pause may be.
constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 600'000;
constexpr int kPingPauseMsMin = 500;        // an agent may ping this often
constexpr int kStreamsPerConnection = 128;  // calls; more wait at their caller
constexpr int kHandshakeMs = 5'000;
constexpr int kIdleMs = 60'000;  // without a call; a caller connects again
constexpr int kStopMs = 300;

// Ends a stream that may not begin.
class RefusedStream final
    : public grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

// Status answers are bytes that many calls share; the other calls are messages.
using Rpc = v1::Coordinator;
using CallbackRpc = Rpc::WithCallbackMethod_Challenge<Rpc::WithCallbackMethod_Attach<
    Rpc::WithRawCallbackMethod_Status<Rpc::WithCallbackMethod_StopJob<
        Rpc::WithCallbackMethod_ForgetNode<Rpc::WithCallbackMethod_ChangeMode<
            Rpc::WithCallbackMethod_Trace<Rpc::WithCallbackMethod_Events<
                Rpc::WithCallbackMethod_DrainNode<Rpc::Service>>>>>>>>>;

class RefusedCall final : public grpc::ServerUnaryReactor {
 public:
  explicit RefusedCall(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

bool parse(const grpc::ByteBuffer& bytes, v1::StatusRequest& request) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return false;
  std::string text;
  for (const grpc::Slice& slice : slices)
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return request.ParseFromString(text);
}

class Calls final : public CallbackRpc {
 public:
  Calls(Desk* desk, StatusDesk* status_desk, TokenGuard* guard)
      : desk_(desk), status_desk_(status_desk), guard_(guard) {}

  grpc::ServerUnaryReactor* Challenge(grpc::CallbackServerContext* context,
                                      const v1::ChallengeRequest* request,
                                      v1::ChallengeReply* reply) override {
    *reply = guard_->challenge(*request);
    return finish(context, grpc::Status::OK);
  }

  grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage>* Attach(
      grpc::CallbackServerContext* context) override {
    const grpc::Status allowed = guard_->check(*context, "Attach", "");
    if (!allowed.ok()) return new RefusedStream(allowed);
    auto* stream = new AttachStream(desk_, context);
    desk_->add(stream);
    return stream;
  }

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* bytes,
                                   grpc::ByteBuffer* reply) override {
    v1::StatusRequest request;
    if (!parse(*bytes, request))
      return new RefusedCall({grpc::StatusCode::INVALID_ARGUMENT, "this is no StatusRequest"});
    const grpc::Status allowed = guard_->check(*context, "Status", request.SerializeAsString());
    if (!allowed.ok()) return new RefusedCall(allowed);
    return status_desk_->ask(context, request, reply);
  }

  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext* context,
                                    const v1::StopJobRequest* request,
                                    v1::StopJobReply* reply) override {
    return answer(context, "StopJob", *request, [&](Coordinator& coordinator, Nanos now) {
      *reply = coordinator.stop_job(*request, context->peer(), now);
    });
  }

  grpc::ServerUnaryReactor* ForgetNode(grpc::CallbackServerContext* context,
                                       const v1::ForgetNodeRequest* request,
                                       v1::ForgetNodeReply* reply) override {
    return answer(context, "ForgetNode", *request, [&](Coordinator& coordinator, Nanos now) {
      *reply = coordinator.forget_node(*request, context->peer(), now);
    });
  }

  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::DrainNodeReply* reply) override {
    return answer(context, "DrainNode", *request, [&](Coordinator& coordinator, Nanos now) {
      *reply = coordinator.drain_node(*request, context->peer(), now);
    });
  }

  grpc::ServerUnaryReactor* Events(grpc::CallbackServerContext* context,
                                   const v1::EventsRequest* request,
                                   v1::EventsReply* reply) override {
    return answer(context, "Events", *request, [&](Coordinator& coordinator, Nanos now) {
      *reply = coordinator.events(request->after(), now);
    });
  }

  grpc::ServerUnaryReactor* ChangeMode(grpc::CallbackServerContext* context,
                                       const v1::ChangeModeRequest* request,
                                       v1::ChangeModeReply* reply) override {
    return answer(context, "ChangeMode", *request, [&](Coordinator& coordinator, Nanos now) {
      *reply = coordinator.change_mode(*request, context->peer(), now);
    });
  }

  grpc::ServerUnaryReactor* Trace(grpc::CallbackServerContext* context,
                                  const v1::TraceRequest* request, v1::TraceReply* reply) override {
    return answer(context, "Trace", *request, [&](Coordinator& coordinator, Nanos now) {
      *reply = coordinator.trace(*request, context->peer(), now);
    });
  }

 private:
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const char* method,
                                   const google::protobuf::MessageLite& request,
                                   const std::function<void(Coordinator&, Nanos)>& event) {
    const grpc::Status allowed = guard_->check(*context, method, request.SerializeAsString());
    if (allowed.ok()) desk_->act(event);
    return finish(context, allowed);
  }

  static grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext* context,
                                          const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  Desk* const desk_;
  StatusDesk* const status_desk_;
  TokenGuard* const guard_;
};

// gRPC's own log: for us a detail, and never more than one line of ours for one error.
void log_line(gpr_log_func_args* line) {
  spdlog::debug("grpc {}:{}: {}", line->file, line->line, line->message);
}

// Process-wide, and to be set before the first builder.
void prepare_grpc_once() {
  static const bool done = [] {
    gpr_set_log_function(log_line);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  static_cast<void>(done);
}

void limit(grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("gradbus-server");
  quota.Resize(kMemoryBytesMax);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kControlMessageBytesMax);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two servers must not share a port
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // A client that connects and sends nothing holds a descriptor for this time.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kPingPauseMsMin);
}

Status cannot_listen(const ListenAddress& address) {
  const auto [reason, next] = why_not_bindable(address);
  return error("D603", address.text() + ": " + (reason.empty() ? "gRPC could not listen" : reason),
               next);
}

}  // namespace

Result<std::unique_ptr<Service>> Service::start(const ServiceOptions& options) {
  Result<ListenAddress> address = parse_listen_address(options.listen);
  if (!address.ok()) return address.status();
  if (!options.token && !options.insecure && !address.value().is_unix()) {
    return error("F100",
                 "--listen " + address.value().text() +
                     " can be reached by other users, and there is no cluster token to tell them "
                     "from agents",
                 "add --token-file FILE, listen on unix:/PATH, or, where every user and machine "
                 "that reaches the port is trusted, add --insecure-i-understand");
  }
  std::unique_ptr<Service> service(new Service(options));
  GRADBUS_RETURN_IF_ERROR(service->listen(address.take()));
  service->start_ticking();
  return service;
}

Service::Service(const ServiceOptions& options)
    : desk_(std::make_unique<Desk>(options.coordinator, options.queue_bytes_max)),
      status_desk_(std::make_unique<StatusDesk>(desk_.get())),
      question_desk_(std::make_unique<QuestionDesk>(desk_.get(), options.state_dir)),
      guard_(options.token),
      calls_(std::make_unique<Calls>(desk_.get(), status_desk_.get(), &guard_)),
      monitor_(options.monitor),
      page_(options.page) {}

Status Service::listen(ListenAddress address) {
  // gRPC would take the path away from the coordinator that has it.
  if (address.is_unix() && somebody_answers(address.path))
    return error("D603", address.text() + ": Address already in use", "stop the other coordinator");
  prepare_grpc_once();
  grpc::ServerBuilder builder;
  limit(builder);
  builder.RegisterService(calls_.get());
  int port = 0;
  builder.AddListeningPort(address.text(), grpc::InsecureServerCredentials(), &port);
  // A Unix socket is for this user alone. Whoever shall share it gets it by chmod or a token.
  const mode_t before = address.is_unix() ? umask(0177) : 0;
  server_ = builder.BuildAndStart();
  if (address.is_unix()) umask(before);
  if (server_ == nullptr || port <= 0) return cannot_listen(address);
  address.port = static_cast<uint16_t>(port);
  address_ = address.text();
  return Status();
}

void Service::start_ticking() {
  stop_event_.reset(eventfd(0, EFD_CLOEXEC));
  GRADBUS_CHECK(stop_event_.valid());
  ticker_ = std::thread([this] { tick_until_stopped(); });
}

void Service::tick_until_stopped() {
  pollfd stop{.fd = stop_event_.get(), .events = POLLIN, .revents = 0};
  SelfCall self(address_);
  OwnLoad load;
  while (poll(&stop, 1, LoopClock::kTurnMs) <= 0) {
    const Nanos ticked = monotonic_now();
    const Nanos since = self.waits_since();
    const bool waits = since != 0 && ticked - since > LoopClock::kGapMax;
    const bool full = load.is_full(ticked);
    desk_->set_deaf(waits || full);
    self.begin(ticked);
    desk_->act([](Coordinator& coordinator, Nanos now) { coordinator.tick(now); });
    turns_.add(1);
    if (monitor_ != nullptr && ticked >= next_metrics_) publish_metrics(ticked);
  }
}

void Service::set_health(bool serves, bool moves) {
  show_health(server_->GetHealthCheckService(), serves, moves);
}

void Service::reloaded(const Status& result) {
  desk_->act([&](Coordinator& coordinator, Nanos now) { coordinator.reloaded(result, now); });
}

void Service::publish_metrics(Nanos now) {
  next_metrics_ = now + kMetricsEvery;
  MetricPage page;
  desk_->act([&](Coordinator& coordinator, Nanos at) { coordinator.add_metrics(page, at); });
  monitor_->board().publish(std::move(page), now);
  if (page_ != nullptr) publish_page(now);
}

void Service::publish_page(Nanos now) {
  v1::StatusReply reply;
  v1::EventsReply events;
  Timelines::ById timelines;
  desk_->act([&](Coordinator& coordinator, Nanos at) {
    reply = coordinator.status({}, at, 0);
    events = coordinator.events(0, at, kPageEventsMax);
    timelines = coordinator.timelines();
  });
  page_->publish(std::move(reply), std::move(events), std::move(timelines), address_, now);
}

void Service::stop() {
  if (ticker_.joinable()) {
    const uint64_t one = 1;
    GRADBUS_CHECK(write(stop_event_.get(), &one, sizeof(one)) == sizeof(one));
    ticker_.join();
  }
  if (server_ == nullptr) return;
  status_desk_->stop();
  question_desk_->stop();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(kStopMs));
  server_->Wait();
  server_.reset();
}

Service::~Service() { stop(); }

}  // namespace gradbus
