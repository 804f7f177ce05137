// The output of the pure coordinator: messages to agents, streams to end, answers to questions, log
// lines, and events.
//
// Coordinator owns it, and its parts fill it. The caller of the coordinator empties it after every
// event. A message for many agents is stored once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/daemon/rare_lines.h"
#include "gradbus/v1/coordinator.pb.h"
#include "server/coordinator/jobs/event_log.h"

namespace gradbus {

// A rank's question that is answered outside of the coordinator, because that takes milliseconds to
// seconds.
struct Question {
  uint64_t agent = 0;
  uint64_t job = 0;
  uint32_t rank = 0;
  uint64_t request = 0;
  std::string text;
  uint32_t uid = 0;  // of the job's owner
};

struct Outgoing {
  uint64_t agent = 0;
  std::shared_ptr<const v1::CoordinatorMessage> message;  // null: nothing to say
  bool close = false;                                     // end the stream after the message
};

class Outbox {
 public:
  void send(uint64_t agent, v1::CoordinatorMessage message, bool close = false) {
    sent_[message.message_case()] += 1;
    outgoing_.push_back({agent, share(std::move(message)), close});
  }

  void close(uint64_t agent) { outgoing_.push_back({agent, nullptr, true}); }

  // `agents`: a map whose keys are agent ids.
  template <typename Map>
  void send_all(const Map& agents, v1::CoordinatorMessage message) {
    sent_[message.message_case()] += agents.size();
    const auto shared = share(std::move(message));
    for (const auto& [agent, unused] : agents) outgoing_.push_back({agent, shared, false});
  }

  void note(std::string line) { notes_.push_back(std::move(line)); }
  // A line that every user of the cluster can cause.
  void note_rarely(std::string line, Nanos now) {
    if (!refusals_.may_write(now)) return;
    note(std::move(line) + refusals_.more());
  }

  void ask(Question question) { questions_.push_back(std::move(question)); }
  // A job has ended: "done", or the code of its error.
  void count_end(const std::string& outcome) { ++ends_[outcome]; }
  const std::map<std::string, uint64_t>& ends() const { return ends_; }
  // Messages to daemons and from them so far, by the number of the field in CoordinatorMessage or
  // AgentMessage.
  const std::map<int, uint64_t>& sent() const { return sent_; }
  const std::map<int, uint64_t>& received() const { return received_; }
  void count_received(int field) { ++received_[field]; }

  EventLog& events() { return events_; }
  const EventLog& events() const { return events_; }

  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::vector<Question> take_questions() { return std::exchange(questions_, {}); }
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  static std::shared_ptr<const v1::CoordinatorMessage> share(v1::CoordinatorMessage message) {
    return std::make_shared<const v1::CoordinatorMessage>(std::move(message));
  }

  std::vector<Outgoing> outgoing_;
  std::vector<Question> questions_;
  std::vector<std::string> notes_;
  RareLines refusals_{10};
  std::map<std::string, uint64_t> ends_;
  std::map<int, uint64_t> sent_;
  std::map<int, uint64_t> received_;
  EventLog events_;
};

}  // namespace gradbus
