// The standard gRPC health service (grpc.health.v1.Health) of a daemon whose other ports do not
// speak gRPC: agent and shard. Check, Watch and List of two services:
//   ""          SERVING while the daemon can serve jobs, as /readyz
//   "liveness"  SERVING while its threads make progress, as /healthz
//
// One thread takes connections, at most kConnectionsMax at a time; the kernel keeps or refuses the
// others, and a line of the log says so (GB-D608). gRPC closes those that ask nothing or stay too
// long, so a flood of clients costs few descriptors and delays probes, and nothing else. set() is
// for any thread.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "common/metrics/slow_clients.h"
#include "common/status.h"

namespace grpc {
class CallbackGenericService;
class HealthCheckServiceInterface;
class Server;
}  // namespace grpc

namespace gradbus {

inline constexpr const char* kLiveness = "liveness";

// Shows both states in gRPC's health service.
void show_health(grpc::HealthCheckServiceInterface* service, bool serves, bool moves);

class HealthPort {
 public:
  // `address`: HOST:PORT, where port 0 is any free one. GB-F100 for another text, GB-D603 when it
  // cannot be listened on.
  static Result<std::unique_ptr<HealthPort>> start(const std::string& address);
  ~HealthPort();  // tells watchers NOT_SERVING
  HealthPort(const HealthPort&) = delete;
  HealthPort& operator=(const HealthPort&) = delete;

  const std::string& address() const { return address_; }  // with the real port
  void set(bool serves, bool moves);

 private:
  HealthPort();
  void accept_until_stopped();
  void accept_one();

  std::unique_ptr<grpc::CallbackGenericService> others_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  SlowClients slow_;
  Fd listener_;
  Fd stop_;
  std::vector<Fd> open_;  // a second descriptor of each connection, which tells when it has ended
  std::thread thread_;
};

}  // namespace gradbus
