// One agent's stream, and the desk where all streams meet the coordinator.
//
// Desk: the coordinator and every stream's queue behind one mutex. gRPC's threads and the tick
// thread call act(), which runs one event and puts its messages into the queues.
//
// AttachStream: reads one message at a time and writes one at a time, as gRPC requires. It deletes
// itself in OnDone, the last callback. Invariants, all under the desk's mutex:
//   * busy_ is set during a write, and stays set once Finish was called;
//   * the thread that sets busy_ starts that operation after unlocking. No other thread can finish
//     the stream in between, so it still exists;
//   * the queue holds at most queue_bytes_max; an agent that does not read loses its stream.
// The next message is read when the last one was handled. So the next messages of an agent wait in
// the flow-control windows of gRPC and of the agent.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gradbus/v1/coordinator.grpc.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/loop_clock.h"

namespace gradbus {

inline constexpr size_t kQueueBytesMax = 64 << 20;  // unless a test wants less

class Desk;

class AttachStream final
    : public grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
 public:
  AttachStream(Desk* desk, grpc::CallbackServerContext* context) : desk_(desk), context_(context) {}

  void begin(uint64_t id);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  struct Step {
    enum class Kind : uint8_t { kNothing, kWrite, kFinish };
    Kind kind = Kind::kNothing;
    const v1::CoordinatorMessage* message = nullptr;  // kWrite
  };

  // Under the desk's mutex.
  void enqueue(const Outgoing& outgoing);
  void written(bool ok);
  void close();  // nothing more is written
  Step next_step();

  // After the mutex was released, by whoever got the step.
  void take(Step step);

 private:
  Desk* const desk_;
  grpc::CallbackServerContext* const context_;
  uint64_t id_ = 0;
  bool busy_ = false;
  bool closing_ = false;
  size_t queued_bytes_ = 0;
  std::deque<std::shared_ptr<const v1::CoordinatorMessage>>
      queue_;  // the front one is being written
  v1::AgentMessage incoming_;
};

class Desk {
 public:
  explicit Desk(const CoordinatorOptions& options, size_t queue_bytes_max = kQueueBytesMax);

  size_t queue_bytes_max() const { return queue_bytes_max_; }

  // Runs `event` on the coordinator now, then delivers and logs what came out.
  void act(const std::function<void(Coordinator&, Nanos now)>& event);

  // Gets the ranks' questions, under the mutex; `sink` must not call the desk. Set before the first
  // stream.
  void set_question_sink(std::function<void(Question)> sink) { question_sink_ = std::move(sink); }

  // While `deaf`, messages are not read in time, so the coordinator's clock stands still.
  // Afterwards all leases begin again.
  void set_deaf(bool deaf);

  // A stream's own steps.
  void add(AttachStream* stream);
  void remove(uint64_t id);
  void written(AttachStream* stream, bool ok);
  void reading_ended(AttachStream* stream, uint64_t id);

 private:
  // What is to be done once the mutex is released.
  using Kicks = std::vector<std::pair<AttachStream*, AttachStream::Step>>;
  static void run(const Kicks& kicks);
  void deliver(Kicks& kicks);
  static void kick(AttachStream* stream, Kicks& kicks);

  Nanos turn();  // under the mutex: the coordinator's time

  const size_t queue_bytes_max_;
  std::mutex mutex_;
  LoopClock clock_;
  Coordinator coordinator_;
  std::function<void(Question)> question_sink_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, AttachStream*> streams_;
};

}  // namespace gradbus
