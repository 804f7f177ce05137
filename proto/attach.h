// The attach protocol between a client and the agent over the Unix socket (SOCK_SEQPACKET). Its
// version is kAttachVersion. It is for control only: joining, registering tensors, leaving, errors.
// No step needs a message.
//
// Every packet is one fixed-size struct that begins with AttachHeader. A packet of another size, an
// unknown type, or unterminated text ends the connection with GB-V801 or GB-S211. File descriptors
// are sent as SCM_RIGHTS with the packet that names them.
//
//   client                                  agent
//   Join                  ------------->    (waits until every rank of the job has joined)
//                         <-------------    Joined   + fds: channel, first arena segment, doorbell
//   TryDevice (each GPU)  ------------->    before its first tensor: how can it open memory?
//                         <-------------    DeviceTrial + fd: memory to open in each supported way
//   DeviceTried           ------------->    which ways failed
//   Register (each tensor)------------->    (the coordinator compares all ranks)
//                         <-------------    Segment  + fd, when the arena grew
//                         <-------------    Registered (or Registered with a code and a sentence);
//                                           + fd, if its memory is opened with one
//   Unregister (a tensor) ------------->    this rank does not use it any more and has no round
//                                           in flight. No answer, because others may still use it
//   Blocked               ------------->    "I have waited 1 s for this": input of the stall report
//                         <-------------    Notice: who is missing, or why the job failed
//                         <-------------    ModeChange: requested by an administrator; all ranks of
//                                           the job get the same changes in the same order
//   Question (parts)      ------------->    for the coordinator: JSON (coordinator.proto,
//   JobQuestion)
//                         <-------------    Answer (parts), or one part with a code and a sentence
//   Leave                 ------------->    clean end; an end-of-file without it means death
//
// A tool sends Admin instead of Join and gets one AdminAnswer. That ends the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/numbers.h"

namespace gradbus {

inline constexpr uint32_t kAttachMagic = 0x31414247;  // "GBA1"
inline constexpr uint16_t kAttachVersion = 7;
inline constexpr size_t kAttachTextBytes = 1024;
inline constexpr size_t kAttachPacketBytesMax = 4096;
inline constexpr size_t kJobSecretBytes = 32;
inline constexpr size_t kAdminReasonBytesMax = 511;
inline constexpr size_t kTextPartBytes = 3072;
inline constexpr size_t kAttachTextsBytesMax = 1 << 20;  // of all parts of a question or an answer

enum class AttachType : uint16_t {
  kJoin = 1,
  kJoined = 2,
  kRegister = 3,
  kRegistered = 4,
  kSegment = 5,
  kBlocked = 6,
  kNotice = 7,
  kLeave = 8,
  kModeChange = 9,
  kTryDevice = 10,
  kDeviceTrial = 11,
  kDeviceTried = 12,
  kUnregister = 13,
  kQuestion = 14,
  kAnswer = 15,
  kAdmin = 20,
  kAdminAnswer = 21,
};

struct AttachHeader {
  uint32_t magic = kAttachMagic;
  uint16_t version = kAttachVersion;
  uint16_t type = 0;
  uint32_t bytes = 0;    // of the whole packet
  uint32_t request = 0;  // chosen by the sender, repeated in the answer
};
static_assert(sizeof(AttachHeader) == 16);

struct JoinPacket {
  static constexpr AttachType kType = AttachType::kJoin;
  AttachHeader header;
  char job[kJobNameBytesMax + 1] = {};
  char library[32] = {};  // version of libgradbus, for the log and GB-V801
  int64_t rank = 0;
  int64_t world_size = 0;
  int64_t pid = 0;  // as the client sees itself: shown, never trusted
  uint64_t start_timeout_ms = 0;
};

struct JoinedPacket {  // If code != kOk, `text` has the reason and there are no file descriptors.
  static constexpr AttachType kType = AttachType::kJoined;
  AttachHeader header;
  uint32_t code = 0;
  uint32_t layout_version = 0;
  uint64_t job = 0;
  uint32_t epoch = 0;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint32_t local_rank = 0;
  uint32_t local_size = 0;
  uint32_t agents = 0;       // nodes of the job
  uint32_t agent_index = 0;  // this node among them
  uint32_t cores = 0;        // of this node: decides who may spin
  uint64_t channel_bytes = 0;
  uint64_t arena_bytes = 0;
  char text[kAttachTextBytes] = {};
  uint8_t secret[kJobSecretBytes] = {};  // of the job; only ranks of its owner get it
};

// The data with which another process of this machine opens memory or an event of a GPU. These are
// CUDA's IPC handles: plain bytes that only the driver understands.
struct DeviceShare {
  uint8_t bytes[64] = {};
};
using DeviceId = std::array<uint8_t, 16>;  // of a GPU: its UUID, the same in every process

// How memory of a GPU is opened: with CUDA's legacy IPC handles, or mapped by the driver from a
// file descriptor that comes with the packet or from a fabric handle.
enum class DeviceSharing : uint32_t { kLegacy = 1, kDescriptor = 2, kFabric = 3 };
inline constexpr size_t kDeviceSharings = 3;
inline constexpr size_t kDeviceReasonBytes = 256;

struct DeviceMemory {
  DeviceSharing sharing = DeviceSharing::kLegacy;
  uint32_t reserved = 0;
  uint64_t bytes = 0;  // kDescriptor, kFabric: bytes to map
  DeviceShare handle;  // kLegacy, kFabric
};

// A rank's elements in memory of its GPU, which the agent owns. The rank records `ready` after the
// work that computes its elements, then posts. Work that uses the result waits for `done` on its
// stream.
struct DeviceRankBuffer {
  DeviceMemory memory;
  DeviceShare ready;
  DeviceShare done;
};

struct TryDevicePacket {
  static constexpr AttachType kType = AttachType::kTryDevice;
  AttachHeader header;
  DeviceId device = {};
};

// The memory and the event exist until DeviceTried.
struct DeviceTrialPacket {
  static constexpr AttachType kType = AttachType::kDeviceTrial;
  AttachHeader header;
  DeviceId device = {};
  // 0: the agent cannot share its memory; the answer to Register has the reason.
  uint32_t count = 0;
  uint32_t reserved = 0;
  DeviceMemory memory[kDeviceSharings];
  DeviceShare event;
};

struct DeviceTriedPacket {
  static constexpr AttachType kType = AttachType::kDeviceTried;
  AttachHeader header;
  DeviceId device = {};
  char why_not[kDeviceSharings][kDeviceReasonBytes] = {};  // by DeviceSharing - 1; "": opened
};

struct RegisterPacket {
  static constexpr AttachType kType = AttachType::kRegister;
  AttachHeader header;
  char name[kTensorNameBytesMax + 1] = {};
  uint64_t count = 0;  // elements; kinds that move blocks: capacity of one block
  uint8_t dtype = 0;
  uint8_t op = 0;
  uint8_t collective = 0;
  uint8_t wants_device = 0;  // 1: this rank's elements should be on `device`
  uint32_t root = 0;
  DeviceId device = {};
  uint64_t row_elements = 1;
  double prescale = 1;
  double postscale = 1;
  uint64_t columns = 0;  // compression: columns of the tensor as a matrix; 0: a vector
  char compression[kCompressionBytesMax + 1] = {};  // "": dense
  char mode[kModeBytesMax + 1] = {};                // canonical; "": sync
  char shape[kShapeBytesMax + 1] = {};              // "[2,4]"; "": one dimension
  uint32_t priority = 0;         // of frames of partial sums; smaller numbers are sent first
  uint32_t result_priority = 0;  // of frames of results
  uint64_t budget_bytes = 0;     // of rounds in flight; 0: no limit
};

// The location of the tensor for this client. If code != kOk, `text` has the reason.
struct RegisteredPacket {
  static constexpr AttachType kType = AttachType::kRegistered;
  AttachHeader header;
  uint32_t code = 0;
  uint32_t tensor = 0;
  uint32_t segment = 0;  // index of the arena segment
  uint32_t chunks = 0;
  uint64_t chunk_elements = 0;
  uint64_t local_reduction_offset = 0;
  uint64_t data_offset = 0;  // of local rank 0, or of the shared rank buffer
  uint64_t data_stride = 0;  // bytes from one local rank (or from one block) to the next
  // 1: in `rank_buffer`. If it was requested but is 0, `text` has the reason.
  uint32_t on_device = 0;
  uint32_t reserved = 0;
  DeviceRankBuffer rank_buffer;
  char text[kAttachTextBytes] = {};
};

// For a tensor that this client got with Registered.
struct UnregisterPacket {
  static constexpr AttachType kType = AttachType::kUnregister;
  AttachHeader header;
  uint32_t tensor = 0;
  // 1: views of its memory exist; the packet is sent again with 0 after the last one.
  uint32_t viewed = 0;
};

struct SegmentPacket {
  static constexpr AttachType kType = AttachType::kSegment;
  AttachHeader header;
  uint32_t segment = 0;
  uint32_t reserved = 0;
  uint64_t bytes = 0;
};

struct BlockedPacket {
  static constexpr AttachType kType = AttachType::kBlocked;
  AttachHeader header;
  char name[kTensorNameBytesMax + 1] = {};
  uint64_t round = 0;  // 0: waits for the registration
  uint64_t waited_ms = 0;
  uint32_t background = 0;  // 1: other threads of the rank may still begin operations
  uint32_t reserved = 0;
};

struct NoticePacket {
  static constexpr AttachType kType = AttachType::kNotice;
  AttachHeader header;
  uint32_t code = 0;  // kOk: information about a stall; else the job failed
  uint32_t reserved = 0;
  char text[kAttachTextBytes] = {};
};

struct LeavePacket {
  static constexpr AttachType kType = AttachType::kLeave;
  AttachHeader header;
};

struct ModeChangePacket {
  static constexpr AttachType kType = AttachType::kModeChange;
  AttachHeader header;
  char group[kTensorNameBytesMax + 1] = {};  // glob of parameter names
  char mode[kModeBytesMax + 1] = {};         // canonical
};

enum class AdminWish : uint32_t { kStop = 1, kMode = 2, kDrain = 3, kUndoDrain = 4 };

// The sender's uid, which the agent reads from the socket, decides what the sender may do.
struct AdminPacket {
  static constexpr AttachType kType = AttachType::kAdmin;
  AttachHeader header;
  uint32_t wish = 0;  // AdminWish
  uint32_t reserved = 0;
  char job[kJobNameBytesMax + 1] = {};       // kDrain, kUndoDrain: the node's name
  char group[kTensorNameBytesMax + 1] = {};  // kMode
  char mode[kModeBytesMax + 1] = {};         // kMode
  char reason[kAdminReasonBytesMax + 1] = {};
};

struct AdminAnswerPacket {
  static constexpr AttachType kType = AttachType::kAdminAnswer;
  AttachHeader header;
  uint32_t code = 0;  // kOk: done
  uint32_t reserved = 0;
  char text[kAttachTextBytes] = {};
};

// A part of a rank's question to the coordinator. Parts come in order, and one question at a time.
struct QuestionPacket {
  static constexpr AttachType kType = AttachType::kQuestion;
  AttachHeader header;       // `request`: of the question
  uint32_t total_bytes = 0;  // of all parts
  uint32_t bytes = 0;        // of this one
  char text[kTextPartBytes] = {};
};

// A part of the answer. If code != kOk, it is the only part, and `text` has the reason.
struct AnswerPacket {
  static constexpr AttachType kType = AttachType::kAnswer;
  AttachHeader header;
  uint32_t code = 0;
  uint32_t total_bytes = 0;
  uint32_t bytes = 0;
  uint32_t reserved = 0;
  char text[kTextPartBytes] = {};
};

static_assert(sizeof(QuestionPacket) <= kAttachPacketBytesMax);
static_assert(sizeof(AnswerPacket) <= kAttachPacketBytesMax);
static_assert(sizeof(JoinedPacket) <= kAttachPacketBytesMax);
static_assert(sizeof(RegisteredPacket) <= kAttachPacketBytesMax);

}  // namespace gradbus
