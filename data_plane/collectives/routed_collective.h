// The common part of collectives that send along trees: the open round, the neighbours of this
// agent, their credits, and for each peer the queue of pieces that are ready to be sent. A peer
// that stalls delays only its own pieces.
//
// Owned by the engine's thread, like every Collective. Invariants for each peer that we send to:
//   * credited <= begun_ + 1. Data flows over every edge in every round, so a peer can be one round
//     ahead (it has all our data, we wait for on_sent), never two.
//   * Nothing is sent while credited < begun_, and never more than kSendsInFlightMax at once. With
//     Credits::kNone neither side gives credits.
//   * The round ends in the event that closes its last piece, so kFinish comes last and once.
#pragma once

#include <vector>

#include "data_plane/collectives/collective.h"
#include "data_plane/collectives/frame_check.h"
#include "transport/bounded_queue.h"

namespace gradbus {

// One chunk of one block for one peer; `source` is 0 for a tensor with a single block.
struct Piece {
  uint32_t chunk = 0;
  uint32_t source = 0;
  FrameKind frame = FrameKind::kReduce;
};

class RoutedCollective : public Collective {
 public:
  const CollectiveNeeds& needs() const final { return needs_; }
  void open(std::vector<Action>&) final {}
  void begin(uint64_t round, std::span<const uint64_t> block_bytes,
             std::vector<Action>& actions) final;
  void on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) override;
  Status on_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                  std::vector<Action>& actions) final;
  Status on_credit(uint32_t from, uint64_t round, std::vector<Action>& actions) final;
  void on_sent(const Action& send, std::vector<Action>& actions) final;
  uint64_t active_round() const final { return active_ ? begun_ : 0; }

 protected:
  enum class Credits : uint8_t { kNone, kPerRound };
  explicit RoutedCollective(const CollectivePlan& plan, Credits credits = Credits::kPerRound);

  // ---- for constructors: `pieces` more may go to `peer`, or come from it, in a round
  void will_send(uint32_t peer, uint32_t pieces);
  void will_receive(uint32_t peer);
  void close_edges();  // call it when all are known

  // Sets every piece to its first stage, and pieces_open_ to their number.
  virtual void open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) = 0;
  // Checks what the shared checks omit: sender, kind, source, total, chunk, length, stage.
  virtual Status check_piece(uint32_t from, const FrameHeader& header) const = 0;
  virtual void accept_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                            std::vector<Action>& actions) = 0;
  // Called when the piece leaves its peer's queue. Moves it to its in-flight stage and returns the
  // send.
  virtual Action start_send(Piece piece) = 0;
  virtual void finish_send(const Action& send, std::vector<Action>& actions) = 0;

  void make_ready(uint32_t peer, Piece piece, std::vector<Action>& actions);
  void drop_ready(uint32_t peer);  // drops all queued pieces
  void release(uint32_t buffer, std::vector<Action>& actions) const;
  void finish_if_done(std::vector<Action>& actions);

  const CollectivePlan& plan() const { return plan_; }
  uint32_t me() const { return plan_.agent_index; }
  uint64_t round() const { return begun_; }

  uint64_t pieces_open_ = 0;

 private:
  static constexpr uint16_t kNoEdge = 0xffff;
  struct Edge {  // a peer that gets data from us
    uint32_t peer = 0;
    uint32_t pieces_max = 0;
    uint64_t credited = 0;  // the last round that the peer is ready for
    uint32_t in_flight = 0;
    BoundedQueue<Piece> ready;
  };
  Edge* edge_to(uint32_t peer);
  bool receives_from(uint32_t peer) const;
  void send_ready(Edge& edge, std::vector<Action>& actions);

  const CollectivePlan plan_;
  const Credits credits_;
  CollectiveNeeds needs_;
  std::vector<Edge> edges_;
  std::vector<uint16_t> edge_of_peer_;
  std::vector<bool> source_;  // by agent
  uint64_t begun_ = 0;        // the latest round that began
  bool active_ = false;
};

}  // namespace gradbus
