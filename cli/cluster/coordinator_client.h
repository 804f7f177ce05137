// Asks the coordinator, with a deadline on every question. One thread at a time.
//
// With a token file (cli/cluster/cluster_token.h) every call proves the token, and the coordinator
// has to prove it first. A call names the user who makes it: whoever has the token is believed.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/status.h"
#include "gradbus/v1/coordinator.grpc.pb.h"

namespace gradbus {

// A coordinator answers in milliseconds, one of thousands of ranks in a second. One that swaps, or
// waits for a processor, needs more, and is not lost.
inline constexpr std::chrono::seconds kPatience{15};
// For pages that are shown again: the keyboard waits meanwhile.
inline constexpr std::chrono::seconds kPagePatience{5};

class CoordinatorClient {
 public:
  // HOST is enough. What is no address is told by each call (GB-F100). `token_file`: as given on
  // the command line; "": the default.
  explicit CoordinatorClient(const std::string& address, const std::string& token_file = "",
                             std::chrono::seconds patience = kPatience);

  // `job`: "" for all. GB-C501 when nobody answers in time; GB-C503 and GB-F104 about the token.
  Result<v1::StatusReply> status(const std::string& job);
  // GB-C501, or the coordinator's own error (GB-J406: no such job).
  Status stop_job(const std::string& job, const std::string& reason);
  // GB-C501, or GB-C505: no lost node has this name.
  Status forget_node(const std::string& node, const std::string& reason);
  // GB-C501, or GB-C505: no node has this name.
  Status drain_node(v1::DrainNodeRequest request);
  // What has happened since the event with this number.
  Result<v1::EventsReply> events(uint64_t after);
  Status change_mode(v1::ChangeModeRequest request);
  // What was recorded of a job since the last call. GB-C501, or the coordinator's own error.
  Result<v1::TraceReply> trace(v1::TraceRequest request);

 private:
  Status prove(grpc::ClientContext& context, const char* method,
               const google::protobuf::MessageLite& request);
  Status lost(const grpc::Status& done) const;

  std::chrono::seconds patience_;
  std::string address_;
  Status wrong_address_;
  std::string token_file_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

// `given`, else GRADBUS_COORDINATOR, else that of this machine's daemons (node_settings.h), else
// 127.0.0.1:7400.
std::string coordinator_address(const std::string& given);

// "gradbus stop by alice on node1": shown to the job's ranks, so that they know whom to ask.
std::string asker(const std::string& command);

}  // namespace gradbus
