// The work of a node's NCCL process for a job, one item after the other: orders that set it up, and
// turns. Each turn is an all-reduce in place. Turns run in the order of their numbers, from 1, in
// whatever order they are announced (data_plane/collectives/nccl_turns.h has the reason). Orders
// run between them; other nodes do not wait for them.
//
// Engine thread only. Nothing here waits.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "worker_agent/gpu/nccl_child.h"

namespace gradbus {

class NcclQueue {
 public:
  struct Order {
    enum class Kind : uint8_t { kNewId, kOpen, kConnect };
    Kind kind = Kind::kNewId;
    uint32_t tensor = 0;  // kOpen: the tensor of the memory
    uint32_t rank_buffer = 0;
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

  // `patience` is the deadline of each order and turn, counted from when the process gets it.
  NcclQueue(std::unique_ptr<NcclChild> child, uint32_t device, Nanos patience)
      : child_(std::move(child)), device_(device), patience_(patience) {}

  int wait_fd() const { return child_->wait_fd(); }
  void reserve(size_t tensors) { turns_.reserve(tensors); }  // each has one turn at a time
  void add(const Order& order) { orders_.push_back(order); }
  // Returns GB-D601 for an impossible number.
  Status take_turn(const Turn& turn);
  // Returns an item that has ended, one at a time, and starts the next one. After a failure all
  // later items fail too.
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

// The error of this node: adds `tensor` (or "") after the error's number and name.
Status nccl_status(const Status& status, const std::string& tensor);

}  // namespace gradbus
