// Answers questions of ranks on a thread of its own: planning takes milliseconds to seconds, and
// neither leases nor other jobs may wait for it.
//
// A job has at most one question here, and the number of jobs is limited, so the queue is bounded.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "server/coordinator/attach_stream.h"

namespace gradbus {

class QuestionDesk {
 public:
  explicit QuestionDesk(Desk* desk);
  ~QuestionDesk() { stop(); }

  // Any thread; never blocks.
  void ask(Question question);

  // Questions that wait get no answer; later ones are ignored. Waits for the one in work.
  void stop();

 private:
  void serve();

  Desk* const desk_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::deque<Question> waiting_;
  std::thread thread_;  // last
};

}  // namespace gradbus
