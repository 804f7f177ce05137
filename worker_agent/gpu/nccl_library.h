// Loads libnccl on first use, like libibverbs (transport/rdma/verbs_library.h). Nothing links
// against it, and a build does not need its headers. Any thread.
//
// The declarations are NCCL's C ABI of 2.18, which later versions keep. Tests fill their own table.
#pragma once

#include <climits>
#include <cstddef>

#include "common/status.h"

namespace gradbus {

struct NcclComm;
struct NcclId {
  char bytes[128] = {};
};

enum class NcclResult : int { kSuccess = 0, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7 };
enum class NcclType : int {
  kI32 = 2,
  kU32 = 3,
  kI64 = 4,
  kU64 = 5,
  kF16 = 6,
  kF32 = 7,
  kF64 = 8,
  kBF16 = 9
};
enum class NcclOp : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4 };

inline constexpr int kNcclVersionMin = 21800;  // 2.18.0 added the newest field of NcclConfig

// ncclConfig_t of 2.18. INT_MIN: NCCL chooses.
struct NcclConfig {
  size_t bytes = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = kNcclVersionMin;
  int blocking = INT_MIN;
  int cluster_size = INT_MIN;
  int blocks_min = INT_MIN;
  int blocks_max = INT_MIN;
  const char* network = nullptr;
  int split_share = INT_MIN;
};
static_assert(sizeof(NcclConfig) == 48, "ncclConfig_t of NCCL 2.18");

// X(member, symbol, types of arguments). `void*` last: a cudaStream_t.
#define GRADBUS_NCCL_SYMBOLS(X)                                                                 \
  X(get_version, ncclGetVersion, int*)                                                          \
  X(get_id, ncclGetUniqueId, NcclId*)                                                           \
  X(init_rank, ncclCommInitRankConfig, NcclComm**, int, NcclId, int, NcclConfig*)               \
  X(async_error, ncclCommGetAsyncError, NcclComm*, NcclResult*)                                 \
  X(abort, ncclCommAbort, NcclComm*)                                                            \
  X(destroy, ncclCommDestroy, NcclComm*)                                                        \
  X(all_reduce, ncclAllReduce, const void*, void*, size_t, NcclType, NcclOp, NcclComm*, void*)  \
  X(reduce_scatter, ncclReduceScatter, const void*, void*, size_t, NcclType, NcclOp, NcclComm*, \
    void*)                                                                                      \
  X(all_gather, ncclAllGather, const void*, void*, size_t, NcclType, NcclComm*, void*)          \
  X(broadcast, ncclBroadcast, const void*, void*, size_t, NcclType, int, NcclComm*, void*)      \
  X(send, ncclSend, const void*, size_t, NcclType, int, NcclComm*, void*)                       \
  X(receive, ncclRecv, void*, size_t, NcclType, int, NcclComm*, void*)

struct NcclLibrary {
  const char* (*error_text)(NcclResult) = nullptr;  // ncclGetErrorString
// NOLINTNEXTLINE(bugprone-macro-parentheses): names, not expressions
#define GRADBUS_NCCL_MEMBER(member, symbol, ...) NcclResult (*member)(__VA_ARGS__) = nullptr;
  GRADBUS_NCCL_SYMBOLS(GRADBUS_NCCL_MEMBER)
#undef GRADBUS_NCCL_MEMBER
};

// GB-D625 when `file` cannot be loaded, lacks a symbol or is older than kNcclVersionMin.
Result<NcclLibrary> open_nccl(const char* file);
// For an open library: GB-D625 if it is too old.
Status check_nccl_version(const NcclLibrary& library);

// The file in GRADBUS_NCCL, else libnccl.so.2. Opened once and cached, also a failure.
Result<const NcclLibrary*> system_nccl();

}  // namespace gradbus
