// Questions of ranks to the coordinator. A question arrives in parts, and is passed on whole. The
// agent does not read it. Conductor thread only.
#pragma once

#include <map>
#include <string>

#include "proto/attach.h"
#include "worker_agent/clients/attached_client.h"
#include "worker_agent/control/coordinator_connection.h"

namespace gradbus {

class RankQuestions {
 public:
  explicit RankQuestions(CoordinatorConnection& coordinator) : coordinator_(coordinator) {}

  // A part of a question of a rank of a running job. A rank that gave up a question may ask the
  // next one, but only one goes to the coordinator at a time, so that a client cannot fill its
  // inbox: then O905. GB-S211 when the part does not fit the others.
  Status take(AttachedClient& client, const QuestionPacket& part);
  void answered(const v1::JobAnswer& answer);
  // The coordinator is gone, and would not know the questions if it came back.
  void end_all(const Status& why);
  // The client is about to be removed.
  void forget(AttachedClient& client) { questions_.erase(&client); }

 private:
  struct Question {
    uint32_t request = 0;  // 0: none yet
    uint32_t total_bytes = 0;
    std::string text = {};  // the parts so far

    bool whole() const { return request != 0 && text.size() == total_bytes; }
  };
  void pass_on(AttachedClient& client, const Question& question);
  void answer(AttachedClient& client, const Status& status, const std::string& text);

  CoordinatorConnection& coordinator_;
  std::map<AttachedClient*, Question> questions_;
};

}  // namespace gradbus
