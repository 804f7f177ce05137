// The coordinator's gRPC service: Challenge, Attach, Status, StopJob, ChangeMode, Trace, Events,
// DrainNode, health and reflection.
//
// Every call becomes one event of the pure Coordinator, under the Desk's mutex. A separate thread
// makes the Coordinator tick. The StatusDesk answers Status calls, and the QuestionDesk answers
// questions of ranks. One thread calls start() and stop(); gRPC's threads do the rest.
//
// With a token every call must prove it (token_guard.h). Without a token the service listens only
// on a Unix socket, which has the permissions of a file, unless the user allows more. Nothing is
// encrypted yet.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/fd.h"
#include "common/metrics/tally.h"
#include "common/status.h"
#include "server/coordinator/attach_stream.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/listen_address.h"
#include "server/coordinator/question_desk.h"
#include "server/coordinator/status_desk.h"
#include "server/coordinator/token_guard.h"

namespace gradbus {

class DaemonMonitor;
class Page;

struct ServiceOptions {
  // host:port, where port 0 is any free one, or unix:/path/of/socket.
  std::string listen = "127.0.0.1:7400";
  std::optional<Secret> token;  // of the cluster
  bool insecure = false;        // listen on host:port without a token
  std::string state_dir;        // of settings that jobs have tuned; empty: kept in memory
  CoordinatorOptions coordinator;
  DaemonMonitor* monitor = nullptr;         // gets metrics; outlives the service
  Page* page = nullptr;                     // gets the state; the same
  size_t queue_bytes_max = kQueueBytesMax;  // that an agent has not read; more ends its stream
};

class Service {
 public:
  // GB-F100 for an address that is not one or that needs a token, GB-D603 when it cannot be
  // listened on.
  static Result<std::unique_ptr<Service>> start(const ServiceOptions& options);
  ~Service();  // stops

  // "127.0.0.1:7400", with the real port.
  const std::string& address() const { return address_; }

  // Any thread.
  void set_token(const Secret& token) { guard_.set_token(token); }
  void reloaded(const Status& result);           // the configuration was read again
  const Tally& turns() const { return turns_; }  // grows while the coordinator is not stuck

  // What gRPC's health service of this port answers (common/daemon/health_port.h).
  void set_health(bool serves, bool moves);

  // Ends all calls and streams; returns within a second.
  void stop();

 private:
  explicit Service(const ServiceOptions& options);
  Status listen(ListenAddress address);
  void start_ticking();
  void tick_until_stopped();
  void publish_metrics(Nanos now);
  void publish_page(Nanos now);

  std::unique_ptr<Desk> desk_;
  std::unique_ptr<StatusDesk> status_desk_;
  std::unique_ptr<QuestionDesk> question_desk_;
  TokenGuard guard_;
  std::unique_ptr<grpc::Service> calls_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  DaemonMonitor* const monitor_;
  Page* const page_;
  Nanos next_metrics_ = 0;
  Tally turns_;
  Fd stop_event_;
  std::thread ticker_;
};

}  // namespace gradbus
