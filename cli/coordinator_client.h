// Asks the coordinator, with a deadline on every question. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "gradbus/v1/coordinator.grpc.pb.h"

namespace gradbus {

class CoordinatorClient {
 public:
  // HOST is enough. What is no address is told by each call (GB-F100).
  explicit CoordinatorClient(const std::string& address);

  // `job`: "" for all. GB-C501 when nobody answers within 2 s.
  Result<v1::StatusReply> status(const std::string& job);
  // GB-C501, or the coordinator's own error (GB-J406: no such job).
  Status stop_job(const std::string& job, const std::string& reason);
  Status change_mode(const v1::ChangeModeRequest& request);

 private:
  Status lost(const std::string& reason) const;

  std::string address_;
  Status wrong_address_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

// `given`, else GRADBUS_COORDINATOR, else 127.0.0.1:7400.
std::string coordinator_address(const std::string& given);

// "gradbus stop by alice on node1": shown to the job's ranks, so that they know whom to ask.
std::string asker(const std::string& command);

}  // namespace gradbus
