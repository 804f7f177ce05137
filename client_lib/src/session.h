// One rank of one job, attached: its parts, and the loop that reads the agent's packets.
//
// The hot path (Tensor::start and wait) takes no lock on one node; between nodes it takes one for
// each ring, for a few instructions. Everything else is under the lock of the socket.
#pragma once

#include <memory>
#include <string>

#include "client_lib/src/agent_socket.h"
#include "client_lib/src/coordinator_questions.h"
#include "client_lib/src/device_offers.h"
#include "client_lib/src/launch_env.h"
#include "client_lib/src/pending_operations.h"
#include "client_lib/src/rank_channel.h"
#include "client_lib/src/rank_tensors.h"
#include "client_lib/src/received_mode_changes.h"
#include "client_lib/src/session_registry.h"
#include "client_lib/src/streams.h"
#include "client_lib/src/tensor.h"
#include "client_lib/src/wait_loop.h"
#include "common/policy/tensor_rules.h"

namespace gradbus {

// Dead processes are detected separately, so this limit only ends real deadlocks. Gloo has the
// same.
inline constexpr Nanos kOpTimeoutDefault = 1800 * kSecond;
// Longer than an agent needs for its slowest work, to allocate large tensors.
inline constexpr Nanos kAgentTimeoutDefault = 60 * kSecond;

struct SessionOptions {
  std::string socket_path;  // "": the default
  LaunchArguments identity;
  Nanos start_timeout = 60 * kSecond;
  Nanos op_timeout = kOpTimeoutDefault;
  // A waiting rank fails when its agent has not read its socket for this time.
  Nanos agent_timeout = kAgentTimeoutDefault;
  // Several threads begin operations, each in its own order.
  bool many_threads = false;
  // The policy for tensors without their own compression or mode.
  TensorRules compressions;
  TensorRules modes;

  // The compression that a tensor is registered with. `asked` may be null: the policy decides.
  std::string compression_for(const TensorSpec& spec, const char* asked) const;
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options);
  // Opens a separate job for some ranks of this job, through the same agent. A world of one needs
  // no agent. Ends when this session fails.
  Result<std::unique_ptr<Session>> open_set(LaunchIdentity identity);
  ~Session();

  const LaunchIdentity& identity() const { return identity_; }
  const SessionOptions& options() const { return options_; }
  // This rank's place in the job and on its node.
  const JoinedPacket& joined() const { return joined_; }
  uint32_t rank() const { return joined_.rank; }
  uint32_t world_size() const { return joined_.world_size; }

  // ---- parts
  AgentSocket& socket() { return socket_; }
  RankChannel& channel() { return channel_; }
  RankTensors& tensors() { return tensors_; }
  PendingOperations& operations() { return operations_; }
  Streams& streams() { return streams_; }
  WaitLoop& waits() { return waits_; }
  CoordinatorQuestions& questions() { return questions_; }
  DeviceOffers& device_offers() { return device_offers_; }
  ReceivedModeChanges& mode_changes() { return mode_changes_; }

  // ---- the loop
  // Reads the agent's packets and advances the operations that wait for them: for all sessions of
  // this process, and for this one alone.
  void progress();
  void progress_alone();
  // Reads the agent's packets.
  void receive();

 private:
  Session(LaunchIdentity identity, SessionOptions options);
  Status attach(AgentConnection connection, Result<Attachment> attachment);
  Status be_alone();
  Status take(Packet& packet);

  const LaunchIdentity identity_;
  const SessionOptions options_;
  SessionRegistry& registry_ = SessionRegistry::of_this_process();
  JoinedPacket joined_;
  AgentSocket socket_{options_.agent_timeout};
  RankChannel channel_;
  RankTensors tensors_{*this, socket_, channel_, registry_, joined_};
  Streams streams_{registry_};
  PendingOperations operations_;  // after the tensors that they use
  ReceivedModeChanges mode_changes_;
  CoordinatorQuestions questions_{socket_};
  DeviceOffers device_offers_{socket_};
  WaitLoop waits_{{*this, joined_, registry_, socket_, channel_, tensors_, operations_, streams_},
                  options_.many_threads};
};

}  // namespace gradbus
