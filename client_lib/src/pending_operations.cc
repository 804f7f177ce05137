#include "client_lib/src/pending_operations.h"

#include "client_lib/src/operation.h"

namespace gradbus {

void PendingOperations::add(std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(lock_);
  forget_ended();
  pending_.push_back(std::move(operation));
}

// Without the lock around advance(): an operation may start another one.
void PendingOperations::advance() {
  std::vector<std::shared_ptr<Operation>> ready;
  {
    const std::lock_guard lock(lock_);
    ready = pending_;
  }
  for (const auto& operation : ready) operation->advance();
  const std::lock_guard lock(lock_);
  forget_ended();
}

void PendingOperations::forget_ended() {
  std::erase_if(pending_, [](const auto& operation) { return !operation->unfinished(); });
}

bool PendingOperations::advance_one() {
  const uint64_t before = advances();
  advance();
  return advances() != before;
}

uint64_t UnnamedNumbers::next(const std::string& signature) {
  const std::lock_guard lock(lock_);
  Numbers& numbers = numbers_[signature];
  if (numbers.given_back.empty()) return numbers.next++;
  return numbers.given_back.extract(numbers.given_back.begin()).value();
}

void UnnamedNumbers::give_back(const std::string& signature, uint64_t number) {
  const std::lock_guard lock(lock_);
  numbers_[signature].given_back.insert(number);
}

}  // namespace gradbus
