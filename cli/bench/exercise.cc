#include "cli/bench/exercise.h"

namespace gradbus {
namespace {

class BarrierExercise final : public Exercise {
 public:
  explicit BarrierExercise(gradbus_session* session) : session_(session) {}
  Status run() override { return to_status(gradbus_barrier(session_)); }

 private:
  gradbus_session* session_;
};

Result<std::unique_ptr<Exercise>> make_any(gradbus_session* session, const BenchWork& work,
                                           const std::vector<Extent>& extents) {
  if (work.on_device) return make_on_device(session, work, extents);
  return work.registered ? make_registered(session, work, extents)
                         : make_private(session, work, extents);
}

}  // namespace

Status to_status(gradbus_code code) {
  return code == GRADBUS_OK ? Status() : Status(static_cast<Code>(code), gradbus_last_error());
}

Result<std::unique_ptr<Exercise>> make_exercise(gradbus_session* session, const BenchWork& work,
                                                const Extent& extent) {
  if (work.collective->number == kBarrier)
    return std::unique_ptr<Exercise>(std::make_unique<BarrierExercise>(session));
  return make_any(session, work, {extent});
}

Result<std::unique_ptr<Exercise>> make_storm(gradbus_session* session, const BenchWork& work,
                                             const std::vector<uint64_t>& counts) {
  std::vector<Extent> extents;
  extents.reserve(counts.size());
  for (const uint64_t count : counts)
    extents.push_back({count, count, count * dtype_bytes(work.dtype)});
  return make_any(session, work, extents);
}

}  // namespace gradbus
