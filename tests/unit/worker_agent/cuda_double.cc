// A test double of libgradbus_cuda.so, for tests only: it reaches no device. What it is and has,
// GRADBUS_CUDA_DOUBLE says whenever it is asked: other_version, hole (a function is missing),
// no_driver, no_device; else it has two GPUs. Those of "processor" do what they are told to, by
// running the kernels on the processor before a call returns; those of any other word fail. Those
// of "cannot_pin" have no memory of the host to give.
//
// Memory of such a GPU is a memfd, so another process can open what this one shares: a CudaShare
// says which descriptor of which process.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "compression/cuda/plugin.h"
#include "compression/cuda/works.h"
#include "tests/unit/compression/host_grid.h"

namespace gradbus {

using Clock = std::chrono::steady_clock;

struct CudaStream {
  uint32_t device;
};
struct CudaEvent {
  Clock::time_point came;
};

namespace {

constexpr uint64_t kMemoryBytes = 1 << 20;

bool is(std::string_view kind) {
  const char* chosen = std::getenv("GRADBUS_CUDA_DOUBLE");
  return chosen != nullptr && chosen == kind;
}

const char* last_error() {
  if (is("cannot_pin")) return "cudaHostRegister: out of memory";
  return is("no_driver") ? "no NVIDIA driver (libcuda.so.1)" : "cudaMalloc: out of memory";
}

CudaResult device_count(uint32_t* count) {
  *count = is("no_driver") || is("no_device") ? 0 : 2;
  return is("no_driver") ? CudaResult::kNoDriver : CudaResult::kOk;
}

CudaResult device_info(uint32_t device, CudaDeviceInfo* info) {
  *info = {.name = "a double", .major = 9, .minor = device, .memory_bytes = kMemoryBytes};
  return CudaResult::kOk;
}

// ---- memory

struct Place {
  int fd = -1;  // -1: another process's
  uint64_t bytes = 0;
};
struct Shared {
  int32_t process = 0;
  int32_t fd = -1;
  uint64_t bytes = 0;
};
static_assert(sizeof(Shared) <= sizeof(CudaShare));

std::mutex places_mutex;
std::map<void*, Place> places;

CudaResult map_in(int fd, uint64_t bytes, bool own, void** memory) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!own || mapped == MAP_FAILED) close(fd);
  if (mapped == MAP_FAILED) return CudaResult::kOutOfMemory;
  const std::scoped_lock lock(places_mutex);
  places[mapped] = {own ? fd : -1, bytes};
  *memory = mapped;
  return CudaResult::kOk;
}

CudaResult allocate(uint32_t, uint64_t bytes, void** memory) {
  if (bytes > kMemoryBytes && !is("processor")) return CudaResult::kOutOfMemory;
  bytes = std::max<uint64_t>(bytes, 1);
  const int fd = memfd_create("a GPU's", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CudaResult::kOutOfMemory;
  return map_in(fd, bytes, true, memory);
}

CudaResult release(void* memory) {
  const std::scoped_lock lock(places_mutex);
  const auto found = places.find(memory);
  if (found == places.end()) return CudaResult::kInvalid;
  munmap(memory, found->second.bytes);
  if (found->second.fd >= 0) close(found->second.fd);
  places.erase(found);
  return CudaResult::kOk;
}

CudaResult share(uint32_t, void* memory, CudaShare* share) {
  const std::scoped_lock lock(places_mutex);
  const auto found = places.find(memory);
  if (found == places.end() || found->second.fd < 0) return CudaResult::kInvalid;
  const Shared shared{getpid(), found->second.fd, found->second.bytes};
  *share = {};
  std::memcpy(share->bytes, &shared, sizeof(shared));
  return CudaResult::kOk;
}

CudaResult open_shared(uint32_t, const CudaShare* share, void** memory) {
  Shared shared;
  std::memcpy(&shared, share->bytes, sizeof(shared));
  if (shared.process == getpid()) return CudaResult::kInvalid;  // as CUDA
  const std::string place =
      "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.fd);
  const int fd = open(place.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return CudaResult::kFailed;
  return map_in(fd, shared.bytes, false, memory);
}

// ---- work

template <typename Work>
CudaResult on_processor(const Work& work) {
  if (!is("processor")) return CudaResult::kFailed;
  work();
  return CudaResult::kOk;
}

CudaResult create_event(uint32_t, CudaEvent** event) {
  return on_processor([&] { *event = new CudaEvent{}; });
}

constexpr auto kRun = [](const auto& work) { run_on_host(work, GridOrder::kForwards); };

const CudaTable kTable{
    .abi = kCudaAbi,
    .table_bytes = sizeof(CudaTable),
    .built = "double",
    .last_error = last_error,
    .device_count = device_count,
    .device_info = device_info,
    .allocate = allocate,
    .free = [](uint32_t, void* memory) { return release(memory); },
    .allocate_host = [](uint64_t bytes, void** memory) { return allocate(0, bytes, memory); },
    .free_host = release,
    .create_stream =
        [](uint32_t device, CudaStream** stream) {
          return on_processor([&] { *stream = new CudaStream{device}; });
        },
    .destroy_stream = [](CudaStream* stream) { return on_processor([&] { delete stream; }); },
    .synchronize = [](CudaStream*) { return on_processor([] {}); },
    .native_stream = [](CudaStream*) -> void* { return nullptr; },
    .create_event = create_event,
    .create_timer = create_event,
    .create_shared_event = create_event,
    .destroy_event = [](CudaEvent* event) { return on_processor([&] { delete event; }); },
    .record_event = [](CudaEvent* event,
                       CudaStream*) { return on_processor([&] { event->came = Clock::now(); }); },
    .query_event = [](CudaEvent*) { return on_processor([] {}); },
    .wait_event = [](CudaStream*, CudaEvent*) { return on_processor([] {}); },
    .elapsed =
        [](CudaEvent* began, CudaEvent* ended, float* ms) {
          return on_processor([&] {
            *ms = std::chrono::duration<float, std::milli>(ended->came - began->came).count();
          });
        },
    .pin =
        [](void*, uint64_t) {
          return is("cannot_pin") ? CudaResult::kOutOfMemory : on_processor([] {});
        },
    .unpin = [](void*) { return on_processor([] {}); },
    .share = share,
    .open = open_shared,
    .close = [](uint32_t, void* memory) { return release(memory); },
    // Whatever is put on a stream is done by then, here as in any other process.
    .share_event = [](CudaEvent*, CudaShare* share) { return on_processor([&] { *share = {}; }); },
    .open_event = [](uint32_t device, const CudaShare*,
                     CudaEvent** event) { return create_event(device, event); },
    .copy = [](CudaStream*, void* to, const void* from,
               uint64_t bytes) { return on_processor([&] { std::memcpy(to, from, bytes); }); },
    .encode =
        [](CudaStream*, const CudaEncode* input) {
          return on_processor([&] { start_encode(*input, kRun); });
        },
    .apply =
        [](CudaStream*, const CudaApply* input) {
          return on_processor([&] { start_apply(*input, kRun); });
        },
    .remember =
        [](CudaStream*, const CudaMomentum* input) {
          return on_processor([&] { start_remember(*input, kRun); });
        },
    .forget =
        [](CudaStream*, const CudaForget* input) {
          return on_processor([&] { start_forget(*input, kRun); });
        },
    .reduce =
        [](CudaStream*, const CudaReduce* input) {
          return on_processor([&] { start_reduce(*input, kRun); });
        },
    .low_rank =
        [](CudaStream*, const CudaLowRank* input) {
          return on_processor([&] { start_low_rank(*input, kRun); });
        },
    .blocks =
        [](CudaStream*, const CudaBlocks* input) {
          return on_processor([&] { start_blocks(*input, kRun); });
        }};

}  // namespace

extern "C" const CudaTable* gradbus_cuda_table() {
  static CudaTable table;
  table = kTable;
  if (is("other_version")) table.abi = 77;
  if (is("hole")) table.apply = nullptr;
  return &table;
}

}  // namespace gradbus
