// What one agent does for one registered tensor of a job that spans several agents: a pure state
// machine (state, event) -> actions. No socket, clock, thread or payload byte inside, so tests
// drive all agents of a job in one thread under random orders and delays.
//
// CREDITS. A round begins when all local ranks have posted it; the agent then sends one credit to
// every agent that sends it data, and sends data to a peer only after that peer's credit for the
// round has come. So a frame never arrives for a round that the receiver has not begun, no order of
// ranks can fill a link with frames that nobody may consume yet, and nothing deadlocks. (Recursive
// doubling and pushes to shards go without: their headers say why they may.)
//
// BUFFERS. All tensors of a job share the few receive buffers of a link, so a collective keeps one
// only for a reason that ends by itself: the local sum of that chunk, or the end of its own send of
// that chunk where the peer has already received it. Never until another frame comes.
//
// Actions are carried out at once and in order by the engine; kSend alone ends later, with
// on_sent().
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "proto/chunk_plan.h"
#include "proto/frame.h"
#include "proto/numbers.h"
#include "proto/placement.h"

namespace gradbus {

// Payloads on shards: the one that is pushed, and the one that comes back.
inline constexpr uint64_t kPayloadBlocks = 2;

// What never changes about a tensor: the same on every agent except agent_index.
struct CollectivePlan {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;  // fits(kind, algorithm) of proto/algorithms.h
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  CodecId codec = CodecId::kDense;  // of the payloads that are moved or summed
  uint64_t count = 0;               // elements; kinds that move blocks: capacity of one block
  uint64_t chunk_elements = 1;      // pipeline unit; chunk_elements * dtype_bytes <=
                                    // kFramePayloadBytesMax; recursive doubling: not below count
  uint64_t row_elements = 1;        // reduce-scatter
  uint32_t root = 0;                // rank, of the kinds that have one; payloads: their shard
  uint32_t agent_index = 0;
  std::vector<uint32_t> agent_of_rank;  // by rank; its size is the world size
  uint32_t agents = 1;
  // Algorithm kShards: peers agents .. agents + shards - 1, or `members`, are its shards. They take
  // chunks of an all-reduce, or gather payloads of up to `count` bytes and send one back.
  uint32_t shards = 0;
  uint32_t replicas = 1;               // of each chunk, on shards: at most 2, and at most `shards`
  uint32_t tensor = 0;                 // id, for shard_of()
  PlacementPattern pattern = nullptr;  // the same
  bool one_shard = false;              // all chunks lie on one: shard_of_whole()
  ShardMembers members = nullptr;      // which of the job's shards these are
  // Payloads on shards that hold parameters: in the first round a push is the elements themselves,
  // and an answer may always be.
  bool parameters = false;
  // Whatever the algorithm: the sum is NCCL's work, and `turns` is how many agent 0, whose plan
  // this is, has given in this job (nccl_turns.h).
  bool by_nccl = false;
  std::shared_ptr<uint64_t> turns = nullptr;

  uint32_t world() const { return static_cast<uint32_t>(agent_of_rank.size()); }
  uint32_t peers() const {
    return members == nullptr ? agents + shards
                              : agents + 1 + *std::max_element(members->begin(), members->end());
  }
  uint32_t peer_of_shard(uint32_t shard) const {
    return agents + (members == nullptr ? shard : (*members)[shard]);
  }
  // That holds the chunk, of a tensor on shards.
  uint32_t shard_of(uint32_t chunk) const {
    return one_shard ? shard_of_whole(tensor, shards, pattern)
                     : gradbus::shard_of(tensor, chunk, shards, pattern);
  }
  ChunkPlan chunk_plan() const {
    return {count, row_elements, kind == CollectiveKind::kReduceScatter ? world() : 1,
            chunk_elements};
  }
  // Of the tensor; kinds that move blocks: of a full block. At least 1: a round of no elements
  // still carries one empty frame over every edge, so that it ends only when every agent has begun
  // it.
  uint32_t chunks() const { return chunk_plan().chunks(); }
  // Kinds that move blocks.
  uint64_t blocks() const {
    return algorithm == Algorithm::kShards ? kPayloadBlocks : block_count(kind, world());
  }
};

struct Action {
  enum class Kind : uint8_t {
    kCredit,      // send a kCredit frame for `round` to agent `peer`
    kSend,        // send chunk `chunk` of this tensor (kinds that move blocks: of block `source`)
                  // to agent `peer` as `frame`; on_sent() follows with the same action
    kStash,       // copy the payload in `buffer` to stash slot `slot`
    kAccumulate,  // combine the payload with chunk `chunk` of the first area, into it
    kFinalize,    // the first area's chunk `chunk` is the whole sum: do what remains to be done
                  // with it and hand it to the local ranks that get it
    kDeliver,     // copy the payload into every local area's chunk (all-reduce), or into block
                  // `source` (kinds that move blocks)
    kRelease,     // `buffer` is not needed any more: post it for the next frame
    kTakeTurn,    // by NCCL: the whole tensor is NCCL's in turn `total`; on_turn_ended() follows
    kFinish,      // the round is over on this node: tell the clients
  };
  Kind kind = Kind::kFinish;
  FrameKind frame = FrameKind::kReduce;
  bool stashed = false;        // kAccumulate, kDeliver: the payload is in `slot`, not in `buffer`
  bool payload_first = false;  // kAccumulate: the payload is the left operand
  bool dense = false;          // kSend, kDeliver where payloads travel: these are elements instead
  uint32_t peer = 0;           // agent
  uint32_t chunk = 0;
  uint32_t source = 0;  // kinds that move blocks: block; else 0. The header's `source`
  uint32_t buffer = 0;
  uint32_t slot = 0;
  uint64_t round = 0;
  uint64_t bytes = 0;  // kSend, kStash, kAccumulate, kFinalize, kDeliver: payload bytes
  uint64_t total = 0;  // kSend, kDeliver: the header's `total`
};

// Sends of one tensor to one peer that wait for on_sent(); more wait inside. 64 chunks keep a link
// busy at any chunk size we use, and bound what one event can ask of the engine.
inline constexpr uint32_t kSendsInFlightMax = 64;

// What the engine sets aside before the first event; nothing grows later.
struct CollectiveNeeds {
  struct Target {
    uint32_t peer = 0;
    uint32_t sends_max = 0;  // that wait for on_sent() at the same time
  };
  std::vector<Target> targets;    // the agents that this one sends data to
  std::vector<uint32_t> sources;  // the agents that send data to this one
  size_t actions_max = 0;         // the most that one event appends
  uint32_t stash_slots = 0;       // of one chunk each
};

class Collective {
 public:
  virtual ~Collective() = default;

  virtual const CollectiveNeeds& needs() const = 0;

  // The tensor is registered here and its links are open or being opened. Once, before all others.
  virtual void open(std::vector<Action>& actions) = 0;
  // All local ranks have posted `round` (the last one + 1, first 1). `block_bytes`: all-gather and
  // gather, by rank, the lengths of the local ranks' blocks (others are ignored); all-to-all of
  // payloads, of one rank per agent: by target, the lengths of this agent's. Whole elements, at
  // most `count` of them, which the caller has checked.
  virtual void begin(uint64_t round, std::span<const uint64_t> block_bytes,
                     std::vector<Action>& actions) = 0;
  // Kinds that reduce: the local ranks' sum of `chunk` is in the first area. Once per chunk and
  // round, after begin(). Not needed for a tensor of no elements, where it does nothing.
  virtual void on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) = 0;
  // A data frame of agent `from` lies in `buffer`. The header was checked as a frame; here it is
  // checked against the round: a frame that cannot belong to it is kCorrupt (the message names the
  // field) and takes no effect. The buffer stays borrowed until a kRelease names it.
  virtual Status on_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                          std::vector<Action>& actions) = 0;
  // Agent `from` is ready for `round`: the current or the next one (else kCorrupt).
  virtual Status on_credit(uint32_t from, uint64_t round, std::vector<Action>& actions) = 0;
  // The transport has given the bytes of this kSend back.
  virtual void on_sent(const Action& send, std::vector<Action>& actions) = 0;

  // Peer `lost`, a shard, is gone for good and its backup has what it answered: what it was to get
  // goes there, and what it has not answered goes again. At most one of a chunk's two is lost.
  virtual void on_peer_lost(uint32_t, std::vector<Action>&) {}

  // By NCCL: the sum of all agents is in memory of this one's GPU.
  virtual void on_turn_ended(std::vector<Action>&) {}

  // The round that has begun and not finished; 0: none.
  virtual uint64_t active_round() const = 0;
};

// tree_reduction.h, recursive_doubling.h, push_pull.h, payload_push_pull.h, nccl_turns.h or
// block_exchange.h. The
// caller has checked the plan: at least 2 peers, every agent has a rank, root < world size, a chunk
// fits a frame, the algorithm fits the kind. Allocates everything a round needs here, nothing later
// but in `actions`.
std::unique_ptr<Collective> make_collective(const CollectivePlan& plan);

}  // namespace gradbus
