// The operation that is timed, with its memory: registered tensors, private buffers, or a barrier.
// One thread of one rank; every rank runs the same benchmark.
//
//   fill -> run -> count_wrong      on known data, as often as wanted
//   zero -> run, run, run ...       for timing: zeros stay zeros whatever they are combined with,
//                                   where sums in place would double each time until they are Inf
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cli/bench/known_data.h"
#include "cli/bench/work.h"
#include "common/status.h"
#include "gradbus/gradbus.h"

namespace gradbus {

class Benchmark {
 public:
  virtual ~Benchmark() = default;

  virtual void fill(const KnownData&) {}
  virtual void zero() {}
  // Before each timed iteration, not timed: with a codec, whose work depends on the data, new
  // gradients.
  virtual void refresh() {}
  // From "my data is ready" to "the result is there".
  virtual Status run() = 0;
  // Elements of this rank's result that are wrong; after one run() on known data.
  virtual uint64_t count_wrong(const KnownData&) const { return 0; }
  // Of elements on a GPU: what a copy of them takes that does not leave it. Not collective.
  virtual std::optional<double> copy_seconds() const { return {}; }
};

// Takes memory and registers; errors are the library's own. Not collective but for registration.
Result<std::unique_ptr<Benchmark>> make_benchmark(gradbus_session* session, const BenchWork& work,
                                                  const Extent& extent);
// Starts one all-reduce per entry of `counts` (elements), in this order, then waits for all.
Result<std::unique_ptr<Benchmark>> make_concurrent_all_reduces(gradbus_session* session,
                                                               const BenchWork& work,
                                                               const std::vector<uint64_t>& counts);

// The library's code and its sentence.
Status to_status(gradbus_code code);

// Where the known data of tensor `index` begins, so that tensors that were mixed up look wrong.
constexpr uint64_t first_of(size_t index) { return index * 31; }

// The kinds (registered_benchmark.cc, device_benchmark.cc, private_benchmark.cc); `extents` has one
// entry per tensor.
Result<std::unique_ptr<Benchmark>> make_registered(gradbus_session* session, const BenchWork& work,
                                                   const std::vector<Extent>& extents);
Result<std::unique_ptr<Benchmark>> make_on_device(gradbus_session* session, const BenchWork& work,
                                                  const std::vector<Extent>& extents);
Result<std::unique_ptr<Benchmark>> make_private(gradbus_session* session, const BenchWork& work,
                                                const std::vector<Extent>& extents);

// What the first two begin with; `device`: the UUID of a GPU, or null.
Result<std::vector<gradbus_tensor*>> register_extents(gradbus_session* session,
                                                      const BenchWork& work,
                                                      const std::vector<Extent>& extents,
                                                      const unsigned char* device);

}  // namespace gradbus
