// A test double of libgradbus_cuda.so, which uses no device. GRADBUS_CUDA_DOUBLE selects its
// behaviour at every call: other_version, hole (a function is missing), no_driver, no_device. With
// any other word it has two GPUs:
//   processor   runs kernels on the processor before a call returns
//   streams     runs them later, with a slow thread for each stream
//   cannot_pin  cannot pin host memory
//   apart       like streams, but no GPU can open the memory of another one
//   full        like streams, but the memory of its GPUs is full
//   otherwise   every operation fails
//
// Memory of such a GPU and its events are memfds, so another process can open shared memory. A
// CudaShare names a process and its descriptor. With CudaSharing::kDescriptor the memfd's
// descriptor is sent. GRADBUS_CUDA_DOUBLE_REFUSES lists unsupported operations: legacy, vmm,
// fabric, export (of supported ones).
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "compression/cuda/kernels/works.h"
#include "compression/cuda/plugin.h"
#include "tests/unit/compression/host_grid.h"

namespace gradbus {

using Clock = std::chrono::steady_clock;

struct CudaStream {
  uint32_t device = 0;
  std::mutex mutex = {};
  std::condition_variable changed = {};
  std::deque<std::function<void()>> work = {};
  bool ends = false;
  std::thread thread = {};  // of "streams"

  void run();
};

// Counts the recordings of an event, and the newest one that has completed. In memory that
// processes share.
struct Ticks {
  std::atomic<uint64_t> recorded;
  std::atomic<uint64_t> came;
};
// As in CUDA, work on a stream may use an event after its destruction.
struct CudaEvent {
  Ticks* ticks;
  Clock::time_point came = {};
  uint32_t uses = 1;  // users: streams, and the owner until destruction; under events_mutex
};

void CudaStream::run() {
  for (uint32_t delay = device;; delay = delay * 1664525 + 1013904223) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return ends || !work.empty(); });
    if (work.empty()) return;
    const std::function<void()> next = std::move(work.front());
    work.pop_front();
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(delay >> 22));  // up to 1 ms
    next();
  }
}

namespace {

constexpr auto kStuck = std::chrono::seconds(60);  // the rank that should record it is gone

constexpr uint64_t kMemoryBytes = 1 << 20;

bool is(std::string_view kind) {
  const char* chosen = std::getenv("GRADBUS_CUDA_DOUBLE");
  return chosen != nullptr && chosen == kind;
}

bool has_streams() { return is("streams") || is("apart") || is("full"); }
bool works() { return is("processor") || has_streams(); }

constexpr std::pair<std::string_view, const char*> kSharings[] = {
    {},
    {"legacy", "the double refuses legacy"},
    {"vmm", "the double refuses vmm"},
    {"fabric", "the double refuses fabric"}};

bool refuses(std::string_view what) {
  const char* said = std::getenv("GRADBUS_CUDA_DOUBLE_REFUSES");
  return said != nullptr && std::string_view(said).find(what) != std::string_view::npos;
}

// One for the whole process, because LeakSanitizer cannot read thread-local memory of a loaded
// library.
std::atomic<const char*> refusal{nullptr};  // the latest error, if it was a refusal

CudaResult refuse(const char* text) {
  refusal = text;
  return CudaResult::kInvalid;
}

const char* last_error() {
  if (const char* text = refusal) return text;
  if (is("apart")) return "one GPU cannot use the other's memory";
  if (is("cannot_pin")) return "cudaHostRegister: out of memory";
  return is("no_driver") ? "no NVIDIA driver (libcuda.so.1)" : "cudaMalloc: out of memory";
}

CudaResult device_count(uint32_t* count) {
  *count = is("no_driver") || is("no_device") ? 0 : 2;
  return is("no_driver") ? CudaResult::kNoDriver : CudaResult::kOk;
}

CudaResult device_info(uint32_t device, CudaDeviceInfo* info) {
  *info = {.name = "a double", .major = 9, .minor = device, .memory_bytes = kMemoryBytes};
  info->uuid[0] = 0xd0;
  info->uuid[15] = static_cast<uint8_t>(device);
  return CudaResult::kOk;
}

// ---- memory

struct Place {
  int fd = -1;  // -1: of another process
  uint64_t bytes = 0;
  CudaSharing sharing = CudaSharing::kLegacy;
};
struct Shared {
  int32_t process = 0;
  int32_t fd = -1;
  uint64_t bytes = 0;
  CudaSharing sharing = CudaSharing::kLegacy;
};
static_assert(sizeof(Shared) <= sizeof(CudaShare));

std::mutex places_mutex;
std::map<void*, Place> places;

CudaResult map_in(int fd, uint64_t bytes, bool own, void** memory) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!own || mapped == MAP_FAILED) close(fd);
  if (mapped == MAP_FAILED) return CudaResult::kOutOfMemory;
  const std::scoped_lock lock(places_mutex);
  places[mapped] = {own ? fd : -1, bytes, CudaSharing::kLegacy};
  *memory = mapped;
  return CudaResult::kOk;
}

CudaResult make_memory(uint64_t bytes, void** memory) {
  bytes = std::max<uint64_t>(bytes, 1);
  const int fd = memfd_create("a GPU's", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CudaResult::kOutOfMemory;
  return map_in(fd, bytes, true, memory);
}

CudaResult allocate(uint32_t, uint64_t bytes, void** memory) {
  refusal = nullptr;
  if (is("full") || (bytes > kMemoryBytes && !works())) return CudaResult::kOutOfMemory;
  return make_memory(bytes, memory);
}

CudaResult allocate_shared(uint32_t device, uint64_t bytes, CudaSharing sharing, void** memory) {
  const auto [name, text] = kSharings[static_cast<size_t>(sharing)];
  if (refuses(name)) return refuse(text);
  const CudaResult made = allocate(device, bytes, memory);
  const std::scoped_lock lock(places_mutex);
  if (made == CudaResult::kOk) places[*memory].sharing = sharing;
  return made;
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

CudaResult share(void* memory, Shared& shared) {
  const std::scoped_lock lock(places_mutex);
  const auto found = places.find(memory);
  if (found == places.end() || found->second.fd < 0) return CudaResult::kInvalid;
  const Place& place = found->second;
  shared = {getpid(), place.fd, place.bytes, place.sharing};
  return CudaResult::kOk;
}

CudaResult share_memory(uint32_t, void* memory, CudaMemoryShare* share_of) {
  if (refuses("export")) return refuse("the double refuses export");
  Shared shared;
  const CudaResult result = share(memory, shared);
  *share_of = {.sharing = shared.sharing};
  if (result != CudaResult::kOk) return result;
  if (shared.sharing != CudaSharing::kLegacy) share_of->bytes = shared.bytes;
  if (shared.sharing == CudaSharing::kDescriptor) {
    share_of->descriptor = fcntl(shared.fd, F_DUPFD_CLOEXEC, 0);
    return share_of->descriptor < 0 ? CudaResult::kFailed : CudaResult::kOk;
  }
  std::memcpy(share_of->handle.bytes, &shared, sizeof(shared));
  return result;
}

CudaResult share_event(CudaEvent* event, CudaShare* words) {
  Shared shared;
  *words = {};
  const CudaResult result = share(event->ticks, shared);
  std::memcpy(words->bytes, &shared, sizeof(shared));
  return result;
}

CudaResult open_shared(const CudaShare& share, CudaSharing sharing, void** memory) {
  Shared shared;
  std::memcpy(&shared, share.bytes, sizeof(shared));
  if (shared.sharing != sharing) return CudaResult::kInvalid;
  if (shared.process == getpid()) return CudaResult::kInvalid;  // as in CUDA
  const std::string place =
      "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.fd);
  const int fd = open(place.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return CudaResult::kFailed;
  return map_in(fd, shared.bytes, false, memory);
}

CudaResult open_memory(uint32_t, const CudaMemoryShare* share, void** memory) {
  if (share->sharing != CudaSharing::kDescriptor)
    return open_shared(share->handle, share->sharing, memory);
  const int fd = fcntl(share->descriptor, F_DUPFD_CLOEXEC, 0);  // the caller keeps its descriptor
  if (fd < 0) return CudaResult::kInvalid;
  return map_in(fd, share->bytes, false, memory);
}

// ---- work

template <typename Work>
CudaResult on_processor(const Work& work) {
  if (!works()) return CudaResult::kFailed;
  work();
  return CudaResult::kOk;
}

// `work` is copied. Memory that it names must be valid until it is done.
template <typename Work>
CudaResult put(CudaStream* stream, const Work& work) {
  if (!has_streams()) return on_processor(work);
  {
    const std::scoped_lock lock(stream->mutex);
    stream->work.emplace_back(work);
  }
  stream->changed.notify_one();
  return CudaResult::kOk;
}

CudaResult create_stream(uint32_t device, CudaStream** stream) {
  return on_processor([&] {
    *stream = new CudaStream{device};
    if (has_streams()) (*stream)->thread = std::thread([made = *stream] { made->run(); });
  });
}

CudaResult destroy_stream(CudaStream* stream) {
  if (stream->thread.joinable()) {
    {
      const std::scoped_lock lock(stream->mutex);
      stream->ends = true;
    }
    stream->changed.notify_one();
    stream->thread.join();
  }
  delete stream;
  return CudaResult::kOk;
}

CudaResult synchronize(CudaStream* stream) {
  if (!has_streams()) return on_processor([] {});
  std::atomic<bool> done{false};
  put(stream, [&done] { done = true; });
  while (!done) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return CudaResult::kOk;
}

CudaResult create_event(uint32_t, CudaEvent** event) {
  if (!works()) return CudaResult::kFailed;
  void* ticks = nullptr;
  if (make_memory(sizeof(Ticks), &ticks) != CudaResult::kOk) return CudaResult::kOutOfMemory;
  *event = new CudaEvent{static_cast<Ticks*>(ticks)};
  return CudaResult::kOk;
}

CudaResult open_event(uint32_t, const CudaShare* share, CudaEvent** event) {
  void* ticks = nullptr;
  if (const CudaResult opened = open_shared(*share, CudaSharing::kLegacy, &ticks);
      opened != CudaResult::kOk)
    return opened;
  *event = new CudaEvent{static_cast<Ticks*>(ticks)};
  return CudaResult::kOk;
}

std::mutex events_mutex;

CudaResult destroy_event(CudaEvent* event) {
  {
    const std::scoped_lock lock(events_mutex);
    if (--event->uses > 0) return CudaResult::kOk;
  }
  const CudaResult released = release(event->ticks);
  delete event;
  return released;
}

// put() for work that uses this event.
template <typename Work>
CudaResult put_use(CudaStream* stream, CudaEvent* event, const Work& work) {
  {
    const std::scoped_lock lock(events_mutex);
    ++event->uses;
  }
  const CudaResult result = put(stream, [event, work] {
    work();
    destroy_event(event);
  });
  if (result != CudaResult::kOk) destroy_event(event);
  return result;
}

CudaResult record_event(CudaEvent* event, CudaStream* stream) {
  const uint64_t number = event->ticks->recorded.fetch_add(1) + 1;
  return put_use(stream, event, [event, number] {
    event->came = Clock::now();
    event->ticks->came.store(number);
  });
}

CudaResult query_event(CudaEvent* event) {
  if (!works()) return CudaResult::kFailed;
  return event->ticks->came.load() >= event->ticks->recorded.load() ? CudaResult::kOk
                                                                    : CudaResult::kNotReady;
}

CudaResult wait_event(CudaStream* stream, CudaEvent* event) {
  return put_use(stream, event, [ticks = event->ticks, number = event->ticks->recorded.load()] {
    const Clock::time_point begun = Clock::now();
    while (ticks->came.load() < number && Clock::now() - begun < kStuck)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  });
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
    .allocate_shared = allocate_shared,
    .free = [](uint32_t, void* memory) { return release(memory); },
    .allocate_host = [](uint64_t bytes, void** memory) { return allocate(0, bytes, memory); },
    .free_host = release,
    .create_stream = create_stream,
    .destroy_stream = destroy_stream,
    .synchronize = synchronize,
    .native_stream = [](CudaStream*) -> void* { return nullptr; },
    .create_event = create_event,
    .create_timer = create_event,
    .create_shared_event = create_event,
    .destroy_event = destroy_event,
    .record_event = record_event,
    .query_event = query_event,
    .wait_event = wait_event,
    .ring = [](CudaStream* stream, int fd) { return put(stream, [fd] { eventfd_write(fd, 1); }); },
    .elapsed =
        [](CudaEvent* began, CudaEvent* ended, float* ms) {
          return on_processor([&] {
            *ms = std::chrono::duration<float, std::milli>(ended->came - began->came).count();
          });
        },
    .reach =
        [](uint32_t device, uint32_t other) {
          return is("apart") && device != other ? CudaResult::kInvalid : CudaResult::kOk;
        },
    .pin =
        [](void*, uint64_t) {
          return is("cannot_pin") ? CudaResult::kOutOfMemory : on_processor([] {});
        },
    .unpin = [](void*) { return on_processor([] {}); },
    .share = share_memory,
    .open = open_memory,
    .close = [](uint32_t, void* memory) { return release(memory); },
    .share_event = share_event,
    .open_event = open_event,
    .copy = [](CudaStream* stream, void* to, const void* from,
               uint64_t bytes) { return put(stream, [=] { std::memcpy(to, from, bytes); }); },
    .encode =
        [](CudaStream* stream, const CudaEncode* input) {
          return put(stream, [work = *input] { start_encode(work, kRun); });
        },
    .apply =
        [](CudaStream* stream, const CudaApply* input) {
          return put(stream, [work = *input] { start_apply(work, kRun); });
        },
    .remember =
        [](CudaStream* stream, const CudaMomentum* input) {
          return put(stream, [work = *input] { start_remember(work, kRun); });
        },
    .forget =
        [](CudaStream* stream, const CudaForget* input) {
          return put(stream, [work = *input] { start_forget(work, kRun); });
        },
    .reduce =
        [](CudaStream* stream, const CudaReduce* input) {
          return put(stream, [work = *input] { start_reduce(work, kRun); });
        },
    .low_rank =
        [](CudaStream* stream, const CudaLowRank* input) {
          return put(stream, [work = *input] { start_low_rank(work, kRun); });
        },
    .blocks =
        [](CudaStream* stream, const CudaBlocks* input) {
          return put(stream, [work = *input] { start_blocks(work, kRun); });
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
