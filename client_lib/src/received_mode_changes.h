// The mode changes that administrators have requested, in the order in which this rank received
// them. All ranks receive the same changes in the same order, but not at the same time. Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gradbus {

// The mode for all parameters that match a glob.
struct ModeChange {
  std::string group;
  std::string mode;  // canonical
};

class ReceivedModeChanges {
 public:
  void add(ModeChange change) {
    const std::lock_guard lock(lock_);
    changes_.push_back(std::move(change));
  }
  int64_t count() const {
    const std::lock_guard lock(lock_);
    return static_cast<int64_t>(changes_.size());
  }
  // The next change of the first `received_by_all`; none if all of them were taken.
  std::optional<ModeChange> take(int64_t received_by_all) {
    const std::lock_guard lock(lock_);
    if (static_cast<int64_t>(taken_) >= received_by_all) return {};
    return changes_[taken_++];
  }

 private:
  mutable std::mutex lock_;
  std::vector<ModeChange> changes_;
  size_t taken_ = 0;
};

}  // namespace gradbus
