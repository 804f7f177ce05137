// The ad-hoc operations of a session that have not ended, also those whose handles the user has
// freed. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gradbus {

class Operation;

class PendingOperations {
 public:
  // advance() continues it until it ends.
  void add(std::shared_ptr<Operation> operation);
  void advance();
  // The same; true when one has moved.
  bool advance_one();

  // An operation has advanced, so current waits are not stalls.
  void note_progress() { advances_.fetch_add(1, std::memory_order_relaxed); }
  // How often that was.
  uint64_t advances() const { return advances_.load(std::memory_order_relaxed); }

  // The number of the next unnamed operation with this `signature`, from 0. Ranks that start them
  // in the same order get the same numbers.
  uint64_t next_unnamed(const std::string& signature);

 private:
  void forget_ended();

  std::mutex lock_;
  std::vector<std::shared_ptr<Operation>> pending_;
  std::map<std::string, uint64_t> unnamed_;
  std::atomic<uint64_t> advances_{0};
};

}  // namespace gradbus
