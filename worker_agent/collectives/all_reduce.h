// Ring all-reduce: reduce-scatter and all-gather of chunks, each chunk on its own (Patarasuk and
// Yuan 2009, "Bandwidth optimal all-reduce algorithms"): an agent sends 2 (agents - 1) / agents of
// the tensor, which is the least possible.
//
// Chunk c is owned by agent c % agents. An agent's PLACE for a chunk counts the hops from where its
// sum starts, the owner's successor:
//
//   place         0        1     ...   agents - 2   agents - 1
//   agent      owner+1  owner+2  ...    owner-1       owner
//   kReduce     sends   adds, sends      adds, sends  adds: the whole sum
//   kGather     copies  copies           copies       sends
//               sends   sends            (end)
//
// The sum of a chunk is made in one order and copied as bytes, so all agents get equal bits.
//
// A chunk's memory belongs to the transport between a send and its on_sent. The result of a chunk
// can come back before that (for two agents: as soon as the successor has added), so a kGather
// frame stays in its buffer until then. The wait ends without any other buffer: no deadlock.
#pragma once

#include <vector>

#include "worker_agent/collectives/ring_collective.h"

namespace gradbus {

class AllReduce final : public RingCollective {
 public:
  explicit AllReduce(const CollectivePlan& plan);

  void on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) override;

 protected:
  void open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) override;
  Status check_piece(const FrameHeader& header) const override;
  void accept_frame(const FrameHeader& header, uint32_t buffer,
                    std::vector<Action>& actions) override;
  Action start_send(Piece piece) override;
  void finish_send(const Action& send, std::vector<Action>& actions) override;

 private:
  // In this order. The owner goes from kOpen to kResultReady; place agents - 2 from kPartialSent to
  // kDone.
  enum class Stage : uint8_t {
    kOpen,  // waits for the local sum and, but at place 0, for the predecessor's partial sum
    kPartialReady,
    kPartialInFlight,
    kPartialSent,
    kResultReady,
    kResultInFlight,
    kDone,
  };
  struct Chunk {
    Stage stage = Stage::kOpen;
    bool reduced = false;       // the local sum is there
    bool partial_seen = false;  // the kReduce frame came; held in `buffer` until `reduced`
    bool result_seen = false;   // the kGather frame came; held in `buffer` while kPartialInFlight
    uint32_t buffer = 0;
  };

  uint32_t place(uint32_t chunk) const;
  bool starts(uint32_t chunk) const { return place(chunk) == 0; }
  bool owns(uint32_t chunk) const { return place(chunk) == plan().agents - 1; }
  bool ends(uint32_t chunk) const { return place(chunk) == plan().agents - 2; }

  Status check_partial(const FrameHeader& header) const;
  Status check_result(const FrameHeader& header) const;
  void pass_partial(uint32_t chunk, std::vector<Action>& actions);
  void add_partial(uint32_t chunk, std::vector<Action>& actions);
  void take_result(uint32_t chunk, std::vector<Action>& actions);
  void close(uint32_t chunk);
  Action act(Action::Kind kind, uint32_t chunk) const;

  const uint64_t bytes_;  // of the tensor
  std::vector<Chunk> chunks_;
};

}  // namespace gradbus
