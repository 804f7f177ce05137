// What a node's NCCL process of a job is to do, one thing after the other: orders that make it
// ready, and turns, each an all-reduce in place. Turns go in the order of their numbers, 1 for the
// first, whatever order they are told in (worker_agent/collectives/nccl_turns.h says why); between
// them go orders, which other nodes do not wait for.
//
// Engine thread only. Nothing here waits.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "worker_agent/device/nccl_child.h"

namespace gradbus {

class NcclQueue {
 public:
  struct Order {
    enum class Kind : uint8_t { kNewId, kOpen, kConnect };
    Kind kind = Kind::kNewId;
    uint32_t tensor = 0;  // kOpen: whose memory it is
    uint32_t area = 0;
    CudaMemoryShare share = {};
    std::shared_ptr<Fd> descriptor = nullptr;  // of `share`, if that has one
    NcclId id = {};                            // kConnect
    uint32_t rank = 0;
    uint32_t ranks = 0;
  };
  struct Turn {
    uint64_t number = 0;
    uint32_t tensor = 0;
    NcclChild::Call call;
  };
  struct Ended {
    bool turn = false;  // else an order
    Order::Kind kind = Order::Kind::kNewId;
    uint32_t tensor = 0;
    NcclId id = {};  // kNewId
    Status status = {};
  };

  // `patience`: of each order and turn, from when it is given to the process.
  NcclQueue(std::unique_ptr<NcclChild> child, uint32_t device, Nanos patience)
      : child_(std::move(child)), device_(device), patience_(patience) {}

  int wait_fd() const { return child_->wait_fd(); }
  void reserve(size_t tensors) { turns_.reserve(tensors); }  // each has one turn at a time
  void add(const Order& order) { orders_.push_back(order); }
  // GB-D601 for a number that is no next one.
  Status take_turn(const Turn& turn);
  // What has ended, one at a time, and begins what comes next. When something has failed, so does
  // all that follows.
  std::optional<Ended> poll(Nanos now);

 private:
  bool begin(Nanos now);  // false: there is nothing to do
  Status give(const Order& order, Nanos deadline);

  const std::unique_ptr<NcclChild> child_;
  const uint32_t device_;
  const Nanos patience_;
  std::deque<Order> orders_;
  std::vector<Turn> turns_;
  uint64_t next_turn_ = 1;
  std::optional<Ended> under_way_;
};

// Of what has failed on this node: `tensor` (or "") goes behind the error's number and name, which
// come first.
Status nccl_status(const Status& status, const std::string& tensor);

}  // namespace gradbus
