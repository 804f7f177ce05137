#include "server/coordinator/planning/nccl_agreement.h"

#include <utility>

#include "server/coordinator/members/text.h"

namespace gradbus {

NcclAgreement::Verdict NcclAgreement::report(uint64_t agent, uint32_t tensor, const Status& status,
                                             const std::string& id) {
  if (tensor == 0) return on_connected(agent, status);
  const auto asked = asked_.find(tensor);
  if (asked == asked_.end() || !asked->second.agents.insert(agent).second)
    return {.sensible = false};
  Reports& reports = asked->second;
  if (reports.first_problem.ok()) reports.first_problem = status;
  if (status.ok() && id_.empty()) id_ = id;
  if (reports.agents.size() < agents_) return {};
  const Status problem = reports.first_problem;
  asked_.erase(asked);
  if (!problem.ok() || state_ == State::kConnected) return settle({tensor}, problem);
  if (state_ == State::kFailed) return settle({tensor}, connected_.first_problem);
  waiting_.push_back(tensor);
  if (state_ == State::kConnecting) return {};
  if (id_.empty()) {
    state_ = State::kFailed;
    connected_.first_problem = short_error("D602", "agent 0 sent no id of a communicator");
    return settle(std::exchange(waiting_, {}), connected_.first_problem);
  }
  state_ = State::kConnecting;
  return {.connect = true};
}

// The first problem ends it: those that wait for others find that themselves, by their deadlines.
NcclAgreement::Verdict NcclAgreement::on_connected(uint64_t agent, const Status& status) {
  const bool expected = state_ == State::kConnecting || state_ == State::kFailed;
  if (!expected || !connected_.agents.insert(agent).second) return {.sensible = false};
  if (state_ == State::kFailed) return {};
  if (status.ok() && connected_.agents.size() < agents_) return {};
  connected_.first_problem = status;
  state_ = status.ok() ? State::kConnected : State::kFailed;
  return settle(std::exchange(waiting_, {}), status);
}

NcclAgreement::Verdict NcclAgreement::settle(std::vector<uint32_t> tensors, const Status& why_not) {
  if (why_not.ok()) by_nccl_ += static_cast<uint32_t>(tensors.size());
  if (!why_not.ok()) why_not_ = why_not;
  return {.settled = std::move(tensors), .why_not = why_not};
}

}  // namespace gradbus
