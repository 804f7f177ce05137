// The work of one agent for one registered tensor of a job that spans several agents. It is a pure
// state machine: (state, event) -> actions. It has no socket, clock, thread or payload byte. So
// tests run all agents of a job in one thread under random orders and delays.
//
// CREDITS. A round begins when all local ranks have posted it. The agent then sends one credit to
// every agent that sends it data. It sends data to a peer only after that peer's credit for the
// round. So a frame never arrives for a round that the receiver has not begun. No order of ranks
// can fill a link with frames that cannot be consumed yet, and nothing deadlocks. Recursive
// doubling and pushes to shards need no credits; their headers give the reasons.
//
// BUFFERS. All tensors of a job share the few receive buffers of a link. So a collective may keep a
// buffer only for a reason that ends without another frame. It may wait for the local sum of that
// chunk, or for the end of its own send of that chunk after the peer has received it.
//
// The engine carries out actions at once and in order. Only kSend ends later, with on_sent().
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

// Payloads on shards: the pushed one, and the answer.
inline constexpr uint64_t kPayloadBlocks = 2;

// The constants of a tensor, equal on every agent except agent_index.
struct CollectivePlan {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  // Must satisfy fits(kind, algorithm) of proto/algorithms.h.
  Algorithm algorithm = Algorithm::kRing;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  CodecId codec = CodecId::kDense;  // of the payloads that are moved or summed
  uint64_t count = 0;               // elements; kinds that move blocks: capacity of one block
  // Elements of a chunk, the unit of pipelining: chunk_elements * dtype_bytes is at most
  // kFramePayloadBytesMax. For recursive doubling it is at least `count`.
  uint64_t chunk_elements = 1;
  uint64_t row_elements = 1;  // reduce-scatter
  uint32_t root = 0;          // rank, for kinds with a root; payloads: their shard
  uint32_t agent_index = 0;
  std::vector<uint32_t> agent_of_rank;  // by rank; its size is the world size
  uint32_t agents = 1;
  // For Algorithm::kShards, peers agents .. agents + shards - 1, or `members`, are its shards. They
  // take chunks of an all-reduce, or gather payloads of up to `count` bytes and send one back.
  uint32_t shards = 0;
  // Copies of each chunk on shards: at most 2, and at most `shards`.
  uint32_t replicas = 1;
  uint32_t tensor = 0;                 // id, for shard_of()
  PlacementPattern pattern = nullptr;  // for shard_of()
  bool one_shard = false;              // all chunks are on one shard: shard_of_whole()
  ShardMembers members = nullptr;      // the job's shards that are used
  // Payloads on shards that hold parameters. In the first round a push contains the elements
  // themselves; an answer may contain them in any round.
  bool parameters = false;
  // NCCL computes the sum, independent of the algorithm. `turns` counts the turns that agent 0 has
  // assigned in this job; only agent 0's plan has it (nccl_turns.h).
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
  // The shard of the chunk, for a tensor on shards.
  uint32_t shard_of(uint32_t chunk) const {
    return one_shard ? shard_of_whole(tensor, shards, pattern)
                     : gradbus::shard_of(tensor, chunk, shards, pattern);
  }
  ChunkPlan chunk_plan() const {
    return {count, row_elements, kind == CollectiveKind::kReduceScatter ? world() : 1,
            chunk_elements};
  }
  // The chunks of the tensor or, for kinds that move blocks, of a full block. At least 1: a round
  // without elements still sends one empty frame over every edge. So it ends only after every agent
  // has begun it.
  uint32_t chunks() const { return chunk_plan().chunks(); }
  // For kinds that move blocks.
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
    kAccumulate,  // combine the payload with chunk `chunk` of the first rank buffer, into it
    kFinalize,    // chunk `chunk` of the first rank buffer is the whole sum: apply the last
                  // operation and copy it to the local ranks that get it
    kDeliver,     // copy the payload into the chunk of every local rank buffer (all-reduce), or
                  // into block `source` (kinds that move blocks)
    kRelease,     // `buffer` is not needed any more: post it for the next frame
    kTakeTurn,    // NCCL reduces the whole tensor in turn `total`; on_turn_ended() follows
    kFinish,      // the round is over on this node: complete it for the clients
  };
  Kind kind = Kind::kFinish;
  FrameKind frame = FrameKind::kReduce;
  bool stashed = false;        // kAccumulate, kDeliver: the payload is in `slot`, not in `buffer`
  bool payload_first = false;  // kAccumulate: the payload is the left operand
  bool dense = false;          // kSend, kDeliver of payloads: the bytes are elements instead
  uint32_t peer = 0;           // agent
  uint32_t chunk = 0;
  uint32_t source = 0;  // kinds that move blocks: the block; else 0. The header's `source`
  uint32_t buffer = 0;
  uint32_t slot = 0;
  uint64_t round = 0;
  uint64_t bytes = 0;  // kSend, kStash, kAccumulate, kFinalize, kDeliver: payload bytes
  uint64_t total = 0;  // kSend, kDeliver: the header's `total`
};

// The maximum of one tensor's sends to one peer that wait for on_sent(); further sends are queued
// here. 64 chunks keep a link busy with any chunk size, and bound the work of one event for the
// engine.
inline constexpr uint32_t kSendsInFlightMax = 64;

// What the engine allocates before the first event; nothing grows later.
struct CollectiveNeeds {
  struct Target {
    uint32_t peer = 0;
    uint32_t sends_max = 0;  // sends that wait for on_sent() at the same time
  };
  std::vector<Target> targets;    // the agents that this one sends data to
  std::vector<uint32_t> sources;  // the agents that send data to this one
  size_t actions_max = 0;         // the most that one event appends
  uint32_t stash_slots = 0;       // for one chunk each
};

class Collective {
 public:
  virtual ~Collective() = default;

  virtual const CollectiveNeeds& needs() const = 0;

  // Called once, before all other functions. The tensor is registered here, and its links are open
  // or opening.
  virtual void open(std::vector<Action>& actions) = 0;
  // All local ranks have posted `round` (the last one + 1, first 1). For all-gather and gather,
  // `block_bytes` has the lengths of the local ranks' blocks by rank (others are ignored). For
  // all-to-all of payloads, with one rank per agent, it has the lengths of this agent's blocks by
  // target. The caller has checked that they are whole elements, at most `count`.
  virtual void begin(uint64_t round, std::span<const uint64_t> block_bytes,
                     std::vector<Action>& actions) = 0;
  // Kinds that reduce: the local ranks' sum of `chunk` is in the first rank buffer. Called once per
  // chunk and round, after begin(). Not needed for a tensor without elements, where it does
  // nothing.
  virtual void on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) = 0;
  // `buffer` contains a data frame of agent `from`. The frame format was checked. This function
  // checks the frame against the round. A frame that cannot belong to it is kCorrupt (the message
  // names the field) and has no effect. The buffer is borrowed until a kRelease names it.
  virtual Status on_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                          std::vector<Action>& actions) = 0;
  // Agent `from` is ready for `round`, which must be the current or the next one (else kCorrupt).
  virtual Status on_credit(uint32_t from, uint64_t round, std::vector<Action>& actions) = 0;
  // The transport has released the bytes of this kSend.
  virtual void on_sent(const Action& send, std::vector<Action>& actions) = 0;

  // Peer `lost`, a shard, is lost for good; its backup has everything that it answered. Later
  // pushes go to the backup, and unanswered ones are sent again. At most one of a chunk's two
  // shards is lost.
  virtual void on_peer_lost(uint32_t, std::vector<Action>&) {}

  // NCCL only: the sum of all agents is in memory of this agent's GPU.
  virtual void on_turn_ended(std::vector<Action>&) {}

  // The round that has begun and not ended; 0: none.
  virtual uint64_t active_round() const = 0;
};

// Makes the collective of tree_reduction.h, recursive_doubling.h, push_pull.h, payload_push_pull.h,
// nccl_turns.h or block_exchange.h. The caller has checked the plan: at least 2 peers, every agent
// has a rank, root < world size, a chunk fits a frame, the algorithm fits the kind. Allocates
// everything for a round here. Later only `actions` may grow.
std::unique_ptr<Collective> make_collective(const CollectivePlan& plan);

}  // namespace gradbus
