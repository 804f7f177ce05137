#include "cli/bench/streams.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr uint64_t kArrayBytesMin = 64 << 20;
constexpr uint64_t kArrayBytesMax = 512 << 20;
constexpr size_t kHugePage = 2 << 20;
// Arrays at the same place in their pages slow each other down on some processors (measured 2x to
// 10x on AMD), so the second begins some lines further, as ranks' buffers do in the arena.
constexpr size_t kStagger = 640;
constexpr Nanos kKernelTime = 300 * kMillisecond;  // 4 kernels, 2 numbers of cores: 2.4 s
constexpr int kPassesMin = 3;

// Compiled for the base instruction set and, on x86, once more for AVX2. Out of cache AVX-512 is
// no faster.
using Wide = float __attribute__((vector_size(64)));
constexpr size_t kLanes = sizeof(Wide) / sizeof(float);

#define GRADBUS_INLINE __attribute__((always_inline)) inline

GRADBUS_INLINE Wide* wide(float* at) {
  return static_cast<Wide*>(__builtin_assume_aligned(at, sizeof(Wide)));
}

GRADBUS_INLINE float read_loop(float* a, float*, size_t floats) {
  Wide sums[2] = {};
  const Wide* from = wide(a);
  for (size_t i = 0; i < floats / kLanes; ++i) sums[i % 2] += from[i];
  return sums[0][0] + sums[1][0];
}

GRADBUS_INLINE float add_loop(float* a, float* b, size_t floats) {
  for (size_t i = 0; i < floats / kLanes; ++i) wide(a)[i] += wide(b)[i];
  return 0;
}

GRADBUS_INLINE float mix_loop(float* a, float* b, size_t floats) {
  for (size_t i = 0; i < floats / kLanes; ++i) wide(a)[i] = wide(b)[i] = wide(a)[i] + wide(b)[i];
  return 0;
}

float copy(float* a, float* b, size_t floats) {
  std::memcpy(a, b, floats * sizeof(float));
  return 0;
}

#if defined(__x86_64__)
#define GRADBUS_ON_AVX2(loop)                                                                      \
  __attribute__((target("avx2"))) float loop##_avx2(float* a, float* b, size_t floats) {           \
    return loop(a, b, floats);                                                                     \
  }                                                                                                \
  float loop##_base(float* a, float* b, size_t floats) { return loop(a, b, floats); }              \
  float loop##_best(float* a, float* b, size_t floats) {                                           \
    return __builtin_cpu_supports("avx2") ? loop##_avx2(a, b, floats) : loop##_base(a, b, floats); \
  }
#else
#define GRADBUS_ON_AVX2(loop) \
  float loop##_best(float* a, float* b, size_t floats) { return loop(a, b, floats); }
#endif
GRADBUS_ON_AVX2(read_loop)
GRADBUS_ON_AVX2(add_loop)
GRADBUS_ON_AVX2(mix_loop)

constexpr StreamKernel kKernels[kStreamKernels] = {
    {"read", 1, read_loop_best},
    {"add", 3, add_loop_best},
    {"copy", 2, copy},
    {"mix_2r2w", 4, mix_loop_best},
};

// Two arrays of one thread, on huge pages where the kernel has them, touched by that thread.
class Arrays {
 public:
  explicit Arrays(size_t bytes) : bytes_(bytes), mapped_(2 * bytes + 2 * kHugePage + kStagger) {
    memory_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) return;
    madvise(memory_, mapped_, MADV_HUGEPAGE);
    std::memset(memory_, 0, mapped_);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
  ~Arrays() {
    if (memory_ != MAP_FAILED) munmap(memory_, mapped_);
  }

  bool ok() const { return memory_ != MAP_FAILED; }
  size_t floats() const { return bytes_ / sizeof(float); }
  float* a() const { return static_cast<float*>(memory_); }
  float* b() const {
    const size_t offset = (bytes_ + kHugePage - 1) / kHugePage * kHugePage + kStagger;
    return a() + offset / sizeof(float);
  }

 private:
  size_t bytes_;
  size_t mapped_;
  void* memory_ = MAP_FAILED;
};

// What the threads of a measurement share. All do the same passes between two barriers each, so a
// pass takes as long as its slowest thread.
class Crew {
 public:
  Crew(size_t threads, size_t bytes_each) : bytes_each_(bytes_each), rates_(kStreamKernels) {
    pthread_barrier_init(&barrier_, nullptr, static_cast<unsigned>(threads));
    threads_ = threads;
  }
  ~Crew() { pthread_barrier_destroy(&barrier_); }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void work(size_t index, int core) {
    pin_to(core);
    const Arrays arrays(bytes_each_);
    if (!arrays.ok()) failed_ = true;
    meet();
    for (size_t k = 0; k < kStreamKernels && !failed_; ++k) run_kernel(k, index == 0, arrays);
  }

  bool failed() const { return failed_; }
  const std::vector<double>& rates() const { return rates_; }

 private:
  void meet() { pthread_barrier_wait(&barrier_); }

  // The first thread keeps the clock and says when it is enough.
  void run_kernel(size_t k, bool leads, const Arrays& arrays) {
    const Nanos until = monotonic_now() + kKernelTime;
    double best = 1e300;
    meet();
    for (int pass = 0;; ++pass) {
      const Nanos began = monotonic_now();
      kept_ = kKernels[k].run(arrays.a(), arrays.b(), arrays.floats());
      meet();
      const Nanos now = monotonic_now();
      if (leads && pass > 0) best = std::min(best, static_cast<double>(now - began));
      if (leads) more_ = pass < kPassesMin || now < until;
      meet();
      if (!more_) break;
    }
    const double bytes = static_cast<double>(bytes_each_ * threads_);
    if (leads) rates_[k] = kKernels[k].traffic * bytes / best;
    meet();
  }

  pthread_barrier_t barrier_{};
  size_t threads_ = 0;
  size_t bytes_each_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> more_{false};
  std::atomic<float> kept_{0};
  std::vector<double> rates_;
};

}  // namespace

const StreamKernel (&stream_kernels())[kStreamKernels] { return kKernels; }

// glibc's sysconf() has another figure for some processors: all of the socket's, 8 times as much.
uint64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    int found = 0;
    uint64_t kibibytes = 0;
    std::string type;
    std::ifstream(folder + "level") >> found;
    std::ifstream(folder + "type") >> type;
    std::ifstream(folder + "size") >> kibibytes;  // "32768K"
    if (found == level && type != "Instruction") return kibibytes << 10;
  }
  return 0;
}

uint64_t stream_array_bytes() {
  struct sysinfo info {};
  sysinfo(&info);
  const uint64_t last = std::max(cache_bytes(3), cache_bytes(2));
  return std::min(std::clamp(2 * last, kArrayBytesMin, kArrayBytesMax),
                  static_cast<uint64_t>(info.totalram) * info.mem_unit / 8);
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

Result<std::vector<double>> measure_streams(const std::vector<int>& cores, uint64_t array_bytes) {
  const size_t lines = sizeof(Wide) * cores.size();
  Crew crew(cores.size(), array_bytes / lines * sizeof(Wide));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cores.size(); ++i)
    threads.emplace_back([&crew, &cores, i] { crew.work(i, cores[i]); });
  for (std::thread& thread : threads) thread.join();
  if (!crew.failed()) return crew.rates();
  return error("S201", "two arrays of " + std::to_string(array_bytes) + " bytes cannot be mapped",
               "free memory, then: gradbus bench machine");
}

}  // namespace gradbus
