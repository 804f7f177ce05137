// A test double of libnccl.so.2. Ranks are processes of one machine. They sum their elements in a
// file of shared memory, in the order of the ranks, when all have called. Calls with different
// lengths or types, which NCCL would mix up, are an error on all ranks. The elements are read in
// the call, because the caller has waited for them. GRADBUS_NCCL_DOUBLE selects a failure of an
// all-reduce: slow (it stays in progress), hang_call (the call never returns), hang_abort (neither
// the call nor the abort ends), crash. With hang_connect no rank ever connects.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "common/kernels/reduce.h"
#include "worker_agent/gpu/nccl_library.h"

namespace {

using gradbus::NcclConfig;
using gradbus::NcclId;
using gradbus::NcclOp;
using gradbus::NcclResult;
using gradbus::NcclType;

constexpr uint32_t kRanksMax = 8;
constexpr size_t kBytesMax = 16 << 20;

struct World {  // zero at first
  std::atomic<uint32_t> joined;
  std::atomic<uint64_t> posted[kRanksMax];  // number of all-reduces
  std::atomic<uint64_t> taken[kRanksMax];
  std::atomic<uint64_t> signature[kRanksMax];  // count and type
  std::byte values[kRanksMax][kBytesMax];
  std::atomic<uint64_t> sent[kRanksMax][kRanksMax];  // number of messages, by sender and receiver
  std::atomic<uint64_t> received[kRanksMax][kRanksMax];
  std::byte messages[kRanksMax][kBytesMax];  // by sender
};

struct Kind {
  NcclType nccl;
  gradbus::DType dtype;
};
constexpr Kind kKinds[] = {
    {NcclType::kI32, gradbus::DType::kI32}, {NcclType::kI64, gradbus::DType::kI64},
    {NcclType::kU32, gradbus::DType::kU32}, {NcclType::kU64, gradbus::DType::kU64},
    {NcclType::kF16, gradbus::DType::kF16}, {NcclType::kF32, gradbus::DType::kF32},
    {NcclType::kF64, gradbus::DType::kF64}, {NcclType::kBF16, gradbus::DType::kBF16}};

gradbus::DType dtype_of(NcclType type) {
  for (const Kind& kind : kKinds)
    if (kind.nccl == type) return kind.dtype;
  std::abort();
}

bool goes_wrong(std::string_view how) {
  const char* chosen = std::getenv("GRADBUS_NCCL_DOUBLE");
  return chosen != nullptr && chosen == how;
}

[[noreturn]] void hang() {
  while (true) pause();
}

}  // namespace

namespace gradbus {

struct NcclComm {
  World* world;
  uint32_t rank;
  uint32_t ranks;
  uint64_t calls;
  bool under_way;
  std::byte* to;
  size_t count;
  NcclType type;
  bool mixed_up;
  int from = -1;  // receives from that rank
};

}  // namespace gradbus

namespace {

using gradbus::NcclComm;

bool receive(NcclComm* comm) {
  World& world = *comm->world;
  const auto sender = static_cast<uint32_t>(comm->from);
  std::atomic<uint64_t>& received = world.received[sender][comm->rank];
  if (world.sent[sender][comm->rank] == received) return false;
  std::memcpy(comm->to, world.messages[sender],
              comm->count * gradbus::dtype_bytes(dtype_of(comm->type)));
  ++received;
  comm->from = -1;
  comm->under_way = false;
  return true;
}

// All ranks have posted: computes the sum in the order of the ranks.
bool finish(NcclComm* comm) {
  if (comm->from >= 0) return receive(comm);
  World& world = *comm->world;
  for (uint32_t rank = 0; rank < comm->ranks; ++rank)
    if (world.posted[rank] < comm->calls) return false;
  const std::byte* sources[kRanksMax];
  for (uint32_t rank = 0; rank < comm->ranks; ++rank) {
    sources[rank] = world.values[rank];
    comm->mixed_up = comm->mixed_up || world.signature[rank] != world.signature[0];
  }
  std::byte* const target[] = {comm->to};
  if (!comm->mixed_up)
    gradbus::reduce_scalar(dtype_of(comm->type), {}, {sources, comm->ranks}, target, comm->count);
  world.taken[comm->rank] = comm->calls;
  comm->under_way = false;
  return true;
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(NcclResult) { return "the double says so"; }

NcclResult ncclGetVersion(int* version) {
  *version = gradbus::kNcclVersionMin;
  return NcclResult::kSuccess;
}

NcclResult ncclGetUniqueId(NcclId* id) {
  *id = {};
  std::snprintf(id->bytes, sizeof(id->bytes), "/dev/shm/gradbus-nccl-double-%d", getpid());
  unlink(id->bytes);
  return NcclResult::kSuccess;
}

NcclResult ncclCommInitRankConfig(NcclComm** comm, int ranks, NcclId id, int rank, NcclConfig*) {
  const int fd = open(id.bytes, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(World)) != 0) return NcclResult::kInvalidUsage;
  void* world = mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  *comm = new NcclComm{static_cast<World*>(world),
                       static_cast<uint32_t>(rank),
                       static_cast<uint32_t>(ranks),
                       0,
                       false,
                       nullptr,
                       0,
                       NcclType::kF32,
                       false};
  if (++(*comm)->world->joined == static_cast<uint32_t>(ranks)) unlink(id.bytes);
  return NcclResult::kInProgress;
}

NcclResult ncclCommGetAsyncError(NcclComm* comm, NcclResult* result) {
  const bool stays = goes_wrong("slow") || goes_wrong("hang_abort");
  const bool through = !comm->under_way || (!stays && finish(comm));
  const bool all_here = comm->world->joined >= comm->ranks && !goes_wrong("hang_connect");
  *result = all_here && through ? NcclResult::kSuccess : NcclResult::kInProgress;
  if (comm->mixed_up) *result = NcclResult::kInvalidUsage;
  return NcclResult::kSuccess;
}

NcclResult ncclCommAbort(NcclComm*) {
  if (goes_wrong("hang_abort")) hang();
  return NcclResult::kSuccess;
}

NcclResult ncclCommDestroy(NcclComm*) { return NcclResult::kSuccess; }

NcclResult ncclAllReduce(const void* from, void* to, size_t count, NcclType type, NcclOp,
                         NcclComm* comm, void*) {
  if (goes_wrong("hang_call")) hang();
  if (goes_wrong("crash")) std::abort();
  const size_t bytes = count * gradbus::dtype_bytes(dtype_of(type));
  if (bytes > kBytesMax) return NcclResult::kInvalidUsage;
  comm->to = static_cast<std::byte*>(to);
  comm->count = count;
  comm->type = type;
  comm->under_way = true;
  for (uint32_t rank = 0; rank < comm->ranks; ++rank)
    while (comm->world->taken[rank] < comm->calls) usleep(100);
  std::memcpy(comm->world->values[comm->rank], from, bytes);
  comm->world->signature[comm->rank] = 16 * count + static_cast<uint64_t>(type);
  comm->world->posted[comm->rank] = ++comm->calls;
  return NcclResult::kSuccess;
}

// Waits until the previous message was received.
NcclResult ncclSend(const void* from, size_t count, NcclType type, int peer, NcclComm* comm,
                    void*) {
  World& world = *comm->world;
  for (uint32_t rank = 0; rank < comm->ranks; ++rank)
    while (world.received[comm->rank][rank] < world.sent[comm->rank][rank]) usleep(100);
  std::memcpy(world.messages[comm->rank], from, count * gradbus::dtype_bytes(dtype_of(type)));
  ++world.sent[comm->rank][peer];
  return NcclResult::kSuccess;
}

NcclResult ncclRecv(void* to, size_t count, NcclType type, int peer, NcclComm* comm, void*) {
  comm->to = static_cast<std::byte*>(to);
  comm->count = count;
  comm->type = type;
  comm->from = peer;
  comm->under_way = true;
  return NcclResult::kSuccess;
}

NcclResult ncclReduceScatter(const void*, void*, size_t, NcclType, NcclOp, NcclComm*, void*) {
  return NcclResult::kInvalidUsage;
}
NcclResult ncclAllGather(const void*, void*, size_t, NcclType, NcclComm*, void*) {
  return NcclResult::kInvalidUsage;
}
NcclResult ncclBroadcast(const void*, void*, size_t, NcclType, int, NcclComm*, void*) {
  return NcclResult::kInvalidUsage;
}
}
