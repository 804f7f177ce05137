// Units whose elements are on a GPU, gathered (gathered_unit.cc) or summed (summed_unit.cc): all
// that is left here is when what happens, and the check of what comes from peers.
#include "worker_agent/compressed/device_units.h"
#include "worker_agent/compressed/units.h"

namespace gradbus {
namespace {

class DeviceUnit : public CompressedUnit {
 public:
  DeviceUnit(UnitPlan unit, DeviceUnits& device)
      : CompressedUnit(std::move(unit)), device_(device) {
    add_stage(device_stage(plan(), codec()));
  }

  Status prepare(uint64_t round, bool exchanges) override {
    if (!exchanges) return device_.sum(index());
    return device_.encode(index(), round, own_seed(round), outgoing());
  }

  Status read_memory(MemoryPart part) override { return device_.read_memory(index(), part); }
  Status write_memory(MemoryPart part) override { return device_.write_memory(index(), part); }
  Status scale_memory(float factor) override { return device_.scale_memory(index(), factor); }

 protected:
  // What prepare() has made, in memory of the exchange.
  virtual std::span<std::byte> outgoing() const = 0;

  DeviceUnits& device() { return device_; }
  const Codec& codec() const { return device_.codec(index()); }
  size_t index() const { return plan().index; }
  size_t payload_bytes() const { return device_.payload_bytes(index()); }

 private:
  DeviceUnits& device_;
};

class GatheredDeviceUnit final : public DeviceUnit {
 public:
  using DeviceUnit::DeviceUnit;

  std::span<const uint64_t> encode(uint64_t) override {
    return lengths(device().finish(index(), outgoing()));
  }

  Result<std::span<const uint64_t>> advance(size_t) override {
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(check_payload(codec(), block(0, agent), plan().count, agent));
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(
          device().decode(index(), agent, block(0, agent), plan().scale, /*adds=*/agent > 0));
    GRADBUS_RETURN_IF_ERROR(device().publish(index()));
    return std::span<const uint64_t>();
  }

 private:
  std::span<std::byte> outgoing() const override { return own_block(0).first(payload_bytes()); }
};

class SummedDeviceUnit final : public DeviceUnit {
 public:
  using DeviceUnit::DeviceUnit;

  std::span<const uint64_t> encode(uint64_t) override { return {}; }

  Result<std::span<const uint64_t>> advance(size_t) override {
    GRADBUS_RETURN_IF_ERROR(device().decode(index(), 0, vector(0), plan().scale, /*adds=*/false));
    GRADBUS_RETURN_IF_ERROR(device().publish(index()));
    return std::span<const uint64_t>();
  }

 private:
  std::span<std::byte> outgoing() const override { return vector(0); }
};

}  // namespace

std::unique_ptr<CompressedUnit> make_device_unit(UnitPlan plan, DeviceUnits& device) {
  if (plan.communicator == Communicator::kAllReduce)
    return std::make_unique<SummedDeviceUnit>(std::move(plan), device);
  return std::make_unique<GatheredDeviceUnit>(std::move(plan), device);
}

}  // namespace gradbus
