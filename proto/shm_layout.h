// The memory that a client and the agent share: the channel of one client, and the arena of one job
// on one node. Layout version 2. It is plain memory in sealed memfds that the agent created.
//
// TRUST. The ranks of one job on one node trust each other: they share the arena and could corrupt
// their own gradients anyway. The agent trusts none of them. Sizes, offsets and ids are sent over
// the attach socket, never through these bytes. The agent keeps its own table. It copies each word
// from here once and then checks the copy.
//
// CHANNEL, one segment per client:
//   offset 0      ChannelHeader            (kChannelHeaderBytes)
//   then          submission ring          RingControl + kRingRecords * 64 bytes, client -> agent
//   then          completion ring          RingControl + kRingRecords * 64 bytes, agent -> client
//   then          trace ring               RingControl + kTraceRecords * 64 bytes, client -> agent
//
// ARENA, one or more segments per job and node (another one is added when new tensors do not fit).
// Each registered tensor has, inside one segment:
//   reduction     LocalReductionHeader, ReadyLine[local_size], chunk words: where ranks meet
//   data          kinds that reduce: one rank buffer per local rank, staggered (see
//                 kRankBufferStaggerBytes); kinds that move blocks: block_count() blocks of `count`
//                 elements, used where their source or a destination is on this node
//
// A ROUND of an all-reduce local reduction, n = 1, 2, ...
//   1. Rank r writes its gradient into its rank buffer and stores posted[r] = n (release).
//   2. When every posted[] >= n, the waiting threads (blocked client threads and the agent) claim
//      chunks: they advance `cursor` from (n, i) to (n, i + 1), reduce chunk i of all rank buffers
//      in one pass, mark its chunk word and add 1 to `done`.
//   3. done == n * chunks: on one node the round is over. The thread that added the last 1 stores
//      `finished` = n, increments `event` and wakes sleepers. Between nodes (remote local
//      reductions) chunks are reduced into the first rank buffer only; the agents exchange them and
//      the agent stores `finished`.
// No rank starts round n + 1 before it has seen finished == n, so the words never overlap.
//
// A ROUND of a broadcast or all-gather local reduction (one shared rank buffer): a rank with data
// waits until all consumed[] >= n - 1, writes, and stores posted[r] = n. A reader waits for the
// posts it needs (remote local reductions: for `finished` = n), copies the data and stores
// consumed[r] = n.
//
// A thread that dies leaves its claim in the chunk word. In-place sums cannot be repeated. So the
// agent, which detects the death on the socket, fails the job's operations (JobWord).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gradbus {

inline constexpr uint64_t kChannelMagic = 0x314e414843424700;  // "\0GBCHAN1"
inline constexpr uint32_t kShmLayoutVersion = 2;
inline constexpr size_t kCacheLinePairBytes = 128;  // the adjacent-line prefetcher pulls pairs

static_assert(std::atomic<uint64_t>::is_always_lock_free, "a lock cannot cross processes");
static_assert(std::atomic<uint32_t>::is_always_lock_free, "a lock cannot cross processes");

// ---- rings ------------------------------------------------------------------------------------

inline constexpr size_t kRecordBytes = 64;
inline constexpr uint32_t kRingRecords = 1024;  // power of two
static_assert((kRingRecords & (kRingRecords - 1)) == 0);

struct alignas(kCacheLinePairBytes) RingCount {
  std::atomic<uint64_t> count{0};
};
struct RingControl {
  RingCount tail;  // records ever pushed; stored by the producer only
  RingCount head;  // records ever popped; stored by the consumer only
};
static_assert(sizeof(RingControl) == 256, "shm layout version 2");

inline constexpr size_t kRingBytes = sizeof(RingControl) + kRingRecords * kRecordBytes;

enum class SubmissionKind : uint32_t {
  kPosted = 1,  // this rank is ready for `round` of `tensor`
  // A round of a compressed tensor in which nothing is exchanged. The state of an agent is the sum
  // of its ranks' shares:
  kReadResidualState = 2,   // every local rank buffer gets its rank's share of the state
  kWriteResidualState = 3,  // the shares in the rank buffers become the state
};

// The kinds of rounds that make no step.
enum class PsRequest : uint64_t {
  kNone = 0,  // not such a round: it makes a step
  kParameters = 1,
  kRead = 2,   // reads a part of the shards' state (proto/frame.h)
  kWrite = 3,  // writes the part
};

// Client -> agent. For all-gather, `bytes` is the length of this rank's block.
struct Submission {
  uint32_t kind;
  uint32_t tensor;
  uint64_t round;
  uint64_t bytes;
  uint64_t residual_state_part;  // ResidualStatePart (compression/error_feedback.h). kPosted: 1 +
                                 // rounds of a codec's warm-up before this one; 0: as they come
  double residual_scale;         // kPosted: factor for the residual before the round; 0: 1
  // kPosted, if shards hold the parameters: learning rate of this step; 0: that of the mode.
  // ps_request is a PsRequest.
  double learning_rate;
  uint64_t ps_request;
  uint64_t optimizer_state_part;  // PsRequest::kRead, kWrite
};
static_assert(sizeof(Submission) == kRecordBytes);

// Agent -> client: the round of a remote local reduction that ended. `code` is a Code.
struct CompletionRecord {
  uint32_t tensor;
  uint32_t code;
  uint64_t round;
  uint64_t staleness;  // shards hold the parameters: steps of others since this node's last
  uint64_t reserved[5];
};
static_assert(sizeof(CompletionRecord) == kRecordBytes);

// Client -> agent, while the job is traced: a piece of work, or of waiting (proto/trace.h). Times
// are CLOCK_MONOTONIC of the node.
struct TraceSpan {
  uint32_t kind;    // TraceKind
  uint32_t tensor;  // id; 0: `name` says what it is
  uint64_t begin_ns;
  uint64_t end_ns;
  struct Round {
    uint64_t number;
    uint64_t bytes;    // moved or computed in the span
    uint64_t busy_ns;  // of the span; 0: all of it
  };
  union {
    Round round;    // of the tensor
    char name[40];  // cut where it is longer, ends with 0 where it is shorter
  };
};
static_assert(sizeof(TraceSpan) == kRecordBytes);
inline constexpr uint32_t kTraceRecords = 4096;  // power of two; the agent takes them every 50 ms
inline constexpr size_t kTraceRingBytes = sizeof(RingControl) + kTraceRecords * kRecordBytes;

// ---- channel ----------------------------------------------------------------------------------

struct ChannelHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t segment_bytes;
  uint32_t ring_records;
  uint32_t record_bytes;
  // Set by the agent before it sleeps, cleared when it wakes. A client that finds it set after a
  // push writes to the doorbell eventfd. While the agent is awake, no system call is needed.
  alignas(kCacheLinePairBytes) std::atomic<uint32_t> agent_sleeping;
  // Counters of this client. Only the client writes them; `gradbus status` shows them.
  alignas(kCacheLinePairBytes) std::atomic<uint64_t> operations;
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> wait_ns;       // time blocked for others: the latest rank waits least
  std::atomic<uint64_t> step;          // highest round posted on any tensor
  std::atomic<uint64_t> last_call_ns;  // CLOCK_MONOTONIC of the last blocking call
  std::atomic<uint64_t> losses;        // reported losses; the finite ones are in the sum
  std::atomic<uint64_t> losses_not_finite;
  std::atomic<double> loss_sum;
  std::atomic<uint64_t> trace_dropped;  // spans that found the trace ring full
  // Set by the agent while the job is traced.
  alignas(kCacheLinePairBytes) std::atomic<uint32_t> tracing;
};
static_assert(std::atomic<double>::is_always_lock_free);
inline constexpr size_t kChannelHeaderBytes = 4096;
static_assert(sizeof(ChannelHeader) <= kChannelHeaderBytes);

inline constexpr size_t kSubmissionRingOffset = kChannelHeaderBytes;
inline constexpr size_t kCompletionRingOffset = kSubmissionRingOffset + kRingBytes;
inline constexpr size_t kTraceRingOffset = kCompletionRingOffset + kRingBytes;
inline constexpr size_t kChannelBytes = (kTraceRingOffset + kTraceRingBytes + 4095) / 4096 * 4096;

// ---- arena ------------------------------------------------------------------------------------

struct LocalReductionHeader {
  // (round << 32) | next chunk to claim.
  alignas(kCacheLinePairBytes) std::atomic<uint64_t> cursor;
  // Chunks reduced since registration, in all rounds.
  alignas(kCacheLinePairBytes) std::atomic<uint64_t> done;
  // Last round that ended (low 32 bits). Stored once per round.
  alignas(kCacheLinePairBytes) std::atomic<uint32_t> finished;
  std::atomic<uint32_t> event;    // futex word: incremented when sleepers should check again
  std::atomic<uint32_t> waiters;  // sleepers on `event`; no wake system call while 0
  std::atomic<uint32_t> failed;   // a Code: this local reduction will never finish a round again
};
static_assert(sizeof(LocalReductionHeader) == 384, "shm layout version 2");

// One per local rank; only that rank writes it.
struct alignas(kCacheLinePairBytes) ReadyLine {
  std::atomic<uint64_t> posted;    // "my input of this round is ready"
  std::atomic<uint64_t> consumed;  // broadcast, all-gather: "I have copied this round's result out"
  std::atomic<uint64_t> bytes;     // all-gather: length of this rank's block in round `posted`
};
static_assert(sizeof(ReadyLine) == kCacheLinePairBytes);

// One word per chunk: (round << 16) | (ChunkState << 8) | reducer. The reducer is a local rank or
// kAgentReducer.
using ChunkWord = std::atomic<uint64_t>;
enum class ChunkState : uint8_t { kFree = 0, kClaimed = 1, kReduced = 2 };
inline constexpr uint8_t kAgentReducer = 0xff;

constexpr uint64_t chunk_word(uint64_t round, ChunkState state, uint8_t reducer) {
  return (round << 16) | (static_cast<uint64_t>(state) << 8) | reducer;
}

constexpr size_t local_reduction_bytes(uint32_t local_size, uint32_t chunks) {
  const size_t words = (size_t{chunks} * sizeof(ChunkWord) + kCacheLinePairBytes - 1) /
                       kCacheLinePairBytes * kCacheLinePairBytes;
  return sizeof(LocalReductionHeader) + local_size * sizeof(ReadyLine) + words;
}

// Rank buffers are page-rounded bytes plus this apart, so that equal indices of different ranks
// never share an L1 set. At power-of-two distances that costs 2x to 10x on some processors.
inline constexpr size_t kRankBufferStaggerBytes = 640;
inline constexpr size_t kDataAlignBytes = 128;

constexpr size_t rank_buffer_stride(size_t tensor_bytes) {
  return (tensor_bytes + 4095) / 4096 * 4096 + kRankBufferStaggerBytes;
}
static_assert(kRankBufferStaggerBytes % kDataAlignBytes == 0);

// The first page of the first arena segment.
struct JobWord {
  std::atomic<uint32_t> failed;  // a Code; the text comes over the attach socket
  std::atomic<uint32_t> event;   // futex word for threads that wait for the job itself
};
inline constexpr size_t kJobWordBytes = 4096;

}  // namespace gradbus
