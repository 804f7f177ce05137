// A test double of libnccl.so.2, for tests only: ranks are processes of one machine that sum f32 in
// a file of shared memory. GRADBUS_NCCL_DOUBLE says what goes wrong when an all-reduce is called:
// slow (it stays in progress), hang_call (the call never returns), hang_abort (neither it nor the
// abort ends), crash.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "worker_agent/device/nccl_library.h"

namespace {

using gradbus::NcclConfig;
using gradbus::NcclId;
using gradbus::NcclOp;
using gradbus::NcclResult;
using gradbus::NcclType;

constexpr uint32_t kRanksMax = 8;
constexpr size_t kElementsMax = 4096;

struct World {  // zeros at first
  std::atomic<uint32_t> joined;
  std::atomic<uint64_t> posted[kRanksMax];  // all-reduces
  std::atomic<uint64_t> taken[kRanksMax];
  float values[kRanksMax][kElementsMax];
};

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
  float* to;
  size_t count;
};

}  // namespace gradbus

namespace {

using gradbus::NcclComm;

// Everybody has posted: the sum, in the order of the ranks.
bool finish(NcclComm* comm) {
  World& world = *comm->world;
  for (uint32_t rank = 0; rank < comm->ranks; ++rank)
    if (world.posted[rank] < comm->calls) return false;
  for (size_t i = 0; i < comm->count; ++i) {
    comm->to[i] = 0;
    for (uint32_t rank = 0; rank < comm->ranks; ++rank) comm->to[i] += world.values[rank][i];
  }
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
                       0};
  if (++(*comm)->world->joined == static_cast<uint32_t>(ranks)) unlink(id.bytes);
  return NcclResult::kInProgress;
}

NcclResult ncclCommGetAsyncError(NcclComm* comm, NcclResult* result) {
  const bool stays = goes_wrong("slow") || goes_wrong("hang_abort");
  const bool through = !comm->under_way || (!stays && finish(comm));
  const bool all_here = comm->world->joined >= comm->ranks;
  *result = all_here && through ? NcclResult::kSuccess : NcclResult::kInProgress;
  return NcclResult::kSuccess;
}

NcclResult ncclCommAbort(NcclComm*) {
  if (goes_wrong("hang_abort")) hang();
  return NcclResult::kSuccess;
}

NcclResult ncclCommDestroy(NcclComm*) { return NcclResult::kSuccess; }

NcclResult ncclAllReduce(const void* from, void* to, size_t count, NcclType, NcclOp, NcclComm* comm,
                         void*) {
  if (goes_wrong("hang_call")) hang();
  if (goes_wrong("crash")) std::abort();
  if (count > kElementsMax) return NcclResult::kInvalidUsage;
  comm->to = static_cast<float*>(to);
  comm->count = count;
  comm->under_way = true;
  for (uint32_t rank = 0; rank < comm->ranks; ++rank)
    while (comm->world->taken[rank] < comm->calls) usleep(100);
  std::memcpy(comm->world->values[comm->rank], from, count * sizeof(float));
  comm->world->posted[comm->rank] = ++comm->calls;
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
