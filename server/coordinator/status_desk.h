// Answers Status calls on a separate thread, so that messages of agents never wait for them.
//
// An answer is built and serialized once for all waiting calls about the same jobs. No call gets an
// answer that was built before the call arrived. A build locks the coordinator. So the next build
// waits several times as long as the last one took. The number of answers in flight and the queue
// are bounded. A caller that does not read loses its call.
//
// Callers have already proven the cluster token.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "gradbus/v1/coordinator.pb.h"
#include "server/coordinator/attach_stream.h"

namespace gradbus {

inline constexpr size_t kStatusCallsMax = 1024;        // that wait
inline constexpr size_t kStatusSendingMax = 16;        // answers on their way
inline constexpr Nanos kStatusSendMax = 10 * kSecond;  // one of them may take
inline constexpr int kStatusRestFactor = 4;  // rest for the coordinator, per time of a build

class StatusDesk {
 public:
  explicit StatusDesk(Desk* desk) : desk_(desk), thread_([this] { serve(); }) {}
  ~StatusDesk() { stop(); }

  // Any thread. RESOURCE_EXHAUSTED when too many calls wait.
  grpc::ServerUnaryReactor* ask(grpc::CallbackServerContext* context,
                                const v1::StatusRequest& request, grpc::ByteBuffer* reply);

  // Calls that wait are refused; later ones, too.
  void stop();

 private:
  class Call;
  using Lock = std::unique_lock<std::mutex>;

  void serve();
  std::vector<Call*> take_alike(const std::string& job);
  grpc::ByteBuffer build(const std::string& job);
  void hand_out(const std::vector<Call*>& calls, const grpc::ByteBuffer& answer);
  void end_slow_readers(Nanos now);
  void cancelled(Call* call);
  void done(Call* call);

  Desk* const desk_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::deque<Call*> waiting_;
  std::map<Call*, Nanos> sending_;  // since when
  Nanos rest_until_ = 0;            // serve() only
  std::thread thread_;              // last
};

}  // namespace gradbus
