#include "cli/bench/benchmark.h"

namespace gradbus {
namespace {

class BarrierBenchmark final : public Benchmark {
 public:
  explicit BarrierBenchmark(gradbus_session* session) : session_(session) {}
  Status run() override { return to_status(gradbus_barrier(session_)); }

 private:
  gradbus_session* session_;
};

Result<std::unique_ptr<Benchmark>> make_any(gradbus_session* session, const BenchWork& work,
                                            const std::vector<Extent>& extents) {
  if (work.on_device) return make_on_device(session, work, extents);
  return work.registered ? make_registered(session, work, extents)
                         : make_private(session, work, extents);
}

}  // namespace

Status to_status(gradbus_code code) {
  return code == GRADBUS_OK ? Status() : Status(static_cast<Code>(code), gradbus_last_error());
}

Result<std::unique_ptr<Benchmark>> make_benchmark(gradbus_session* session, const BenchWork& work,
                                                  const Extent& extent) {
  if (work.collective->number == kBarrier)
    return std::unique_ptr<Benchmark>(std::make_unique<BarrierBenchmark>(session));
  return make_any(session, work, {extent});
}

Result<std::unique_ptr<Benchmark>> make_concurrent_all_reduces(
    gradbus_session* session, const BenchWork& work, const std::vector<uint64_t>& counts) {
  std::vector<Extent> extents;
  extents.reserve(counts.size());
  for (const uint64_t count : counts)
    extents.push_back({count, count, count * dtype_bytes(work.dtype)});
  return make_any(session, work, extents);
}

}  // namespace gradbus
