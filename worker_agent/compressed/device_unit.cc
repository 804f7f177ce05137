// A gathered unit (gathered_unit.cc) whose elements are on a GPU: all that is left here is when
// what happens, and the check of what comes from peers.
#include "worker_agent/compressed/device_units.h"
#include "worker_agent/compressed/units.h"

namespace gradbus {
namespace {

class DeviceUnit final : public CompressedUnit {
 public:
  DeviceUnit(UnitPlan unit, DeviceUnits& device)
      : CompressedUnit(std::move(unit)),
        device_(device),
        codec_(make_codec(plan().spec, plan().shape)) {
    add_stage(gathered_stage(plan(), *codec_));
  }

  Status prepare(uint64_t round, bool exchanges) override {
    if (!exchanges) return device_.sum(index());
    return device_.encode(index(), own_seed(round), own_block(0).first(payload_bytes()));
  }

  // The payload is there: prepare() has had it made.
  std::span<const uint64_t> encode(uint64_t) override { return lengths(payload_bytes()); }

  Result<std::span<const uint64_t>> advance(size_t) override {
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(check_payload(*codec_, block(0, agent), plan().count, agent));
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(
          device_.decode(index(), block(0, agent), plan().scale, /*adds=*/agent > 0));
    GRADBUS_RETURN_IF_ERROR(device_.publish(index()));
    return std::span<const uint64_t>();
  }

  Status read_memory(MemoryPart part) override { return device_.read_memory(index(), part); }
  Status write_memory(MemoryPart part) override { return device_.write_memory(index(), part); }
  Status scale_memory(float factor) override { return device_.scale_memory(index(), factor); }

 private:
  size_t index() const { return plan().index; }
  size_t payload_bytes() const { return device_.payload_bytes(index()); }

  DeviceUnits& device_;
  std::unique_ptr<Codec> codec_;
};

}  // namespace

std::unique_ptr<CompressedUnit> make_device_unit(UnitPlan plan, DeviceUnits& device) {
  return std::make_unique<DeviceUnit>(std::move(plan), device);
}

}  // namespace gradbus
