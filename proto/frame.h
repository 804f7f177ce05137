// The data-plane frame: a 64-byte header and `length` payload bytes, little-endian, version 1.
//
//   offset  0  u32  magic        'G' 'B' 'F' '1' (0x31464247); kind with kSequencedFrame: the
//                                frame's number in its link (transport/failover)
//   offset  4  u8   version      1
//   offset  5  u8   kind         FrameKind, and the flag kSequencedFrame on links of several paths
//   offset  6  u8   codec        CodecId of the payload; kDense: elements as they are
//   offset  7  u8   dtype        DType; with op and count the signature of the operation
//   offset  8  u8   op           ReduceOp
//   offset  9  u8   collective   CollectiveKind
//   offset 10  u16  operation    index of the tensor's collective operation: 0 for dense tensors.
//                                Stage s of partition p of a compressed tensor is operation
//                                p * stages + s; the fidelity gauge has one more after these;
//                                kCredit: kStartOperation for the order in which rounds start;
//                                kForward: index of the agent that pushed, or kDeadlineRecord; its
//                                kCredit has the same value, and the chunk or partition in `chunk`;
//                                kMoved: 0 for parameters, or for the residual of sums; n for the
//                                optimizer's vector n
//   offset 12  u32  source       kHello, kCredit: index of the sending agent in the job (shards
//                                come after the agents); all-gather: the rank that owns the block;
//                                kReduce to a shard: the learning rate of the step (0: that of the
//                                mode) or the residual scale, an f32, or kPullOnly, or
//                                kReadOptimizerState or kWriteOptimizerState plus a part; kGather
//                                from a shard: staleness; kForward: as in the push; kMoved: the
//                                learning rate, an f32
//   offset 16  u64  job          the coordinator's job id; 0: the link measures a path
//   offset 24  u32  epoch        membership epoch; a receiver drops older ones
//   offset 28  u32  tensor       registered tensor (bucket) id
//   offset 32  u64  step         round of that tensor, from 1; kProbe: its number;
//                                kDeadlineRecord: steps made before the closed one;
//                                kMoved: steps made
//   offset 40  u32  chunk        index of the chunk in the tensor (or block)
//   offset 44  u32  length       payload bytes after this header, at most kFramePayloadBytesMax
//   offset 48  u64  total        all-reduce, broadcast: elements of the tensor;
//                                NCCL: number of the turn that agent 0 assigned;
//                                kCredit of kStartOperation: the turn that agent 0 gives, else 0;
//                                all-gather: bytes of the whole block of `source`; shards: payload;
//                                kForward: as in the push, plus the push's operation times
//                                2^kForwardedExchangeShift;
//                                kMoved: index of the first element in the tensor;
//                                kHello: the link key, which authenticates the connection
//   offset 56  u32  payload_crc  CRC32C of the payload, 0 when length is 0
//   offset 60  u32  header_crc   CRC32C of bytes 0 to 59
//
// A reader copies the header, then validates the copy, and only then uses a field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/status.h"
#include "proto/numbers.h"

namespace gradbus {

inline constexpr uint32_t kFrameMagic = 0x31464247;
inline constexpr uint8_t kFrameVersion = 1;
inline constexpr uint32_t kFramePayloadBytesMax = 1u << 20;

enum class FrameKind : uint8_t {
  kHello = 1,   // first frame of a connection: identifies the sender
  kCredit = 2,  // "my ranks are all ready for this round: you may send" (flows backward)
  kReduce = 3,  // a partial sum for the chunk's owner, or a block / broadcast chunk
  kGather = 4,  // a finished chunk from its owner to all agents
  kProbe = 5,   // measures a path: payload in one direction only (data_plane/path_probe.h)
  // From a shard to the backup of its chunks: a push that the shard is about to apply. A kCredit
  // with the same tensor, operation and step confirms that the backup has all frames of it
  // (server/parameter_server/ps_data_job.h).
  kForward = 6,
  // What one side of a link with several paths has received (transport/failover/control.h).
  kLinkState = 7,
  // From a shard to another one: a part of a tensor's state. The tensor `tensor` replaces that
  // tensor (server/parameter_server/ps_data_job_resharding.cc).
  kMoved = 8,
};

// Flag in the kind of a frame whose magic is a sequence number.
inline constexpr uint8_t kSequencedFrame = 0x80;

// A kForward without payload: the deadline of the chunk's open step has ended (mode ps:quorum).
inline constexpr uint16_t kDeadlineRecord = UINT16_MAX;
static_assert(kDeadlineRecord > kRanksMax, "no agent has this index");

// A kCredit with this operation: all ranks of the node have posted a round with a byte budget, or
// from agent 0, the round has this turn (worker_agent/data/start_order.h).
inline constexpr uint16_t kStartOperation = 0xffff;

// Bit of a kForward's `total` where the `operation` of the push begins.
inline constexpr uint32_t kForwardedExchangeShift = 48;

// A push whose payload is ignored: its agent only requests the current parameters.
inline constexpr uint32_t kPullOnly = UINT32_MAX;
// Reads or writes a part of the state that a shard keeps for a tensor. Part 0 is the parameters.
// The optimizer's vectors follow, then the step counts, one float for each element. The answer to
// kReadOptimizerState + part contains the part; kWriteOptimizerState + part replaces it with the
// values of agent 0. Like kPullOnly, these values are NaN as f32.
inline constexpr uint32_t kReadOptimizerState = 0xffff'ff00;
inline constexpr uint32_t kWriteOptimizerState = 0xffff'fe00;
inline constexpr uint32_t kOptimizerStatePartsMax = 16;
constexpr bool reads_optimizer_state(uint32_t source) {
  return source - kReadOptimizerState < kOptimizerStatePartsMax;
}
constexpr bool writes_optimizer_state(uint32_t source) {
  return source - kWriteOptimizerState < kOptimizerStatePartsMax;
}
constexpr uint32_t optimizer_state_part(uint32_t source) {
  return source % kOptimizerStatePartsMax;
}
static_assert(kReadOptimizerState % kOptimizerStatePartsMax == 0 &&
              kWriteOptimizerState % kOptimizerStatePartsMax == 0);
static_assert(!reads_optimizer_state(kPullOnly) && !writes_optimizer_state(kPullOnly));

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint8_t version = kFrameVersion;
  uint8_t kind = 0;
  uint8_t codec = 0;
  uint8_t dtype = 0;
  uint8_t op = 0;
  uint8_t collective = 0;
  uint16_t operation = 0;
  uint32_t source = 0;
  uint64_t job = 0;
  uint32_t epoch = 0;
  uint32_t tensor = 0;
  uint64_t step = 0;
  uint32_t chunk = 0;
  uint32_t length = 0;
  uint64_t total = 0;
  uint32_t payload_crc = 0;
  uint32_t header_crc = 0;
};
static_assert(sizeof(FrameHeader) == 64, "frame format version 1");
static_assert(offsetof(FrameHeader, job) == 16 && offsetof(FrameHeader, step) == 32 &&
                  offsetof(FrameHeader, total) == 48 && offsetof(FrameHeader, header_crc) == 60,
              "frame format version 1");

// Fills both checksums. Call it last, when every other field and the payload are final.
void seal_frame(FrameHeader& header, std::span<const std::byte> payload);
// Updates the checksum of a header that changed while its payload did not.
void reseal_header(FrameHeader& header);

// Returns kVersion for another version and kCorrupt for any other violation of the format. Names
// the field.
Status check_frame_header(const FrameHeader& header);

// Returns kCorrupt (GB-D612) when the payload is not the one that was sealed.
Status check_frame_payload(const FrameHeader& header, std::span<const std::byte> payload);

}  // namespace gradbus
