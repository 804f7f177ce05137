// The ad-hoc operations of a session that have not ended, also those whose handles the user has
// freed. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace gradbus {

class Operation;

// Numbers of operations without a name. Ranks that start them in the same order get the same ones.
class UnnamedNumbers {
 public:
  // The next one with this `signature`, from 0.
  uint64_t next(const std::string& signature);
  // All ranks that drew this one had their operation refused, as the others had started another
  // one. The next operation gets it, so that ranks which go on agree again.
  void give_back(const std::string& signature, uint64_t number);

 private:
  struct Numbers {
    uint64_t next = 0;
    std::set<uint64_t> given_back;
  };
  std::mutex lock_;  // its own: an operation that is locked gives a number back
  std::map<std::string, Numbers> numbers_;
};

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

  UnnamedNumbers& unnamed() { return unnamed_; }

 private:
  void forget_ended();

  std::mutex lock_;
  std::vector<std::shared_ptr<Operation>> pending_;
  UnnamedNumbers unnamed_;
  std::atomic<uint64_t> advances_{0};
};

}  // namespace gradbus
