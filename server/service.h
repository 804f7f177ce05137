// The coordinator's gRPC service: Attach, Status, StopJob, ChangeMode, health, reflection.
//
// Thin: every call becomes one event of the pure Coordinator, under the Desk's mutex; a thread of
// its own makes it tick. start() and stop() are for one thread; gRPC's threads do the rest.
//
// Connections are not encrypted or authenticated yet, so listening beyond loopback must be asked
// for.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <thread>

#include "common/fd.h"
#include "common/status.h"
#include "server/attach_stream.h"
#include "server/coordinator.h"
#include "server/listen_address.h"

namespace gradbus {

struct ServiceOptions {
  std::string listen = "127.0.0.1:7400";  // host:port; port 0: any free one
  bool allow_remote = false;              // listen beyond loopback
  CoordinatorOptions coordinator;
  size_t queue_bytes_max = kQueueBytesMax;  // that an agent has not read; more ends its stream
};

class Service {
 public:
  // GB-F100 for an address that is not one or not loopback, GB-D603 when it cannot be listened on.
  static Result<std::unique_ptr<Service>> start(const ServiceOptions& options);
  ~Service();  // stops

  // "127.0.0.1:7400", with the real port.
  const std::string& address() const { return address_; }

  // Ends all calls and streams; returns within a second.
  void stop();

 private:
  explicit Service(const ServiceOptions& options);
  Status listen(ListenAddress address);
  void start_ticking();
  void tick_until_stopped();

  std::unique_ptr<Desk> desk_;
  std::unique_ptr<grpc::Service> calls_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  Fd stop_event_;
  std::thread ticker_;
};

}  // namespace gradbus
