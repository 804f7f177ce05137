// What every collective on the ring has in common: the round that is open, credits, the checks of a
// frame's signature, and the queue of chunks that are ready to be sent.
//
// Owned by the engine's thread, like every Collective. Invariants:
//   * credited_ <= begun_ + 1: every edge that carries credits carries data in every round, so a
//     successor can be one round ahead (it has all our data, we wait for on_sent), never two;
//   * nothing is sent while credited_ < begun_, and never more than kSendsInFlightMax at once;
//   * the round finishes in the event that closes its last piece, so kFinish comes last and once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "worker_agent/collectives/collective.h"

namespace gradbus {

// One chunk of one block; `source` is 0 where a tensor has a single block.
struct Piece {
  uint32_t chunk = 0;
  uint32_t source = 0;
};

// Which of an agent's two edges carry data. Only the ends of a broadcast chain lack one.
struct RingEdges {
  bool receives = true;
  bool sends = true;
};

class RingCollective : public Collective {
 public:
  void begin(uint64_t round, std::span<const uint64_t> block_bytes,
             std::vector<Action>& actions) final;
  void on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) override;
  Status on_frame(const FrameHeader& header, uint32_t buffer, std::vector<Action>& actions) final;
  Status on_credit(uint64_t round, std::vector<Action>& actions) final;
  void on_sent(const Action& send, std::vector<Action>& actions) final;
  uint64_t active_round() const final { return active_ ? begun_ : 0; }

 protected:
  // `pieces_max`: the most pieces that can be ready to send at the same time.
  RingCollective(const CollectivePlan& plan, RingEdges edges, size_t pieces_max);

  // Sets every piece to its first stage and pieces_open_ to their number.
  virtual void open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) = 0;
  // Everything the shared checks leave: kind, source, total, chunk, length, stage of the chunk.
  virtual Status check_piece(const FrameHeader& header) const = 0;
  virtual void accept_frame(const FrameHeader& header, uint32_t buffer,
                            std::vector<Action>& actions) = 0;
  // The piece leaves the queue: moves it to its in-flight stage and says what to send.
  virtual Action start_send(Piece piece) = 0;
  virtual void finish_send(const Action& send, std::vector<Action>& actions) = 0;

  void make_ready(Piece piece, std::vector<Action>& actions);
  Action chunk_action(Action::Kind kind, Piece piece, uint64_t block_bytes) const;
  void release(uint32_t buffer, std::vector<Action>& actions) const;
  void finish_if_done(std::vector<Action>& actions);

  const CollectivePlan& plan() const { return plan_; }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  uint32_t chunks_of(uint64_t block_bytes) const;
  uint64_t bytes_of_chunk(uint64_t block_bytes, uint32_t chunk) const;

  Status refuse(const FrameHeader& header, std::string_view what) const;
  Status expect_field(const FrameHeader& header, std::string_view field, uint64_t value,
                      uint64_t expected) const;
  Status expect_below(const FrameHeader& header, std::string_view field, uint64_t value,
                      uint64_t limit) const;
  // `chunk` and `length` against a block of `block_bytes`.
  Status check_extent(const FrameHeader& header, uint64_t block_bytes) const;

  uint64_t pieces_open_ = 0;

 private:
  bool may_send() const { return credited_ >= begun_ && in_flight_ < kSendsInFlightMax; }
  void send_ready(std::vector<Action>& actions);
  Status check_signature(const FrameHeader& header) const;

  const CollectivePlan plan_;
  const RingEdges edges_;
  const uint64_t chunk_bytes_;
  uint64_t begun_ = 0;     // the last round that began
  uint64_t credited_ = 0;  // the last round that the successor is ready for
  bool active_ = false;
  uint32_t in_flight_ = 0;
  std::vector<Piece> ready_;  // a ring: ready_count_ pieces from ready_head_ on
  size_t ready_head_ = 0;
  size_t ready_count_ = 0;
};

}  // namespace gradbus
