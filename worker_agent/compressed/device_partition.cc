// Partitions whose elements are on a GPU, as all_gather.cc, owner_reduce.cc and all_reduce.cc,
// in one round or two: all that is left here is when what happens, and the check
// of what comes from peers.
#include "compression/random.h"
#include "worker_agent/compressed/device_partitions.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

class DevicePartition : public CompressedPartition {
 public:
  DevicePartition(PartitionPlan partition, DevicePartitions& device)
      : CompressedPartition(std::move(partition)), device_(device) {
    for (Stage& stage : device_.stages(plan())) add_stage(std::move(stage));
  }

  Status prepare(uint64_t round, bool exchanges) override {
    if (!exchanges) return device_.sum(index());
    return device_.encode(index(), {codec_round(round), own_seed(round)}, outgoing());
  }

  Status read_residual_state(ResidualStatePart part) override {
    return device_.read_residual_state(index(), part);
  }
  Status write_residual_state(ResidualStatePart part) override {
    return device_.write_residual_state(index(), part);
  }
  Status scale_residual_state(float factor) override {
    return device_.scale_residual_state(index(), factor);
  }

 protected:
  // What prepare() has made, in memory of the exchange.
  virtual std::span<std::byte> outgoing() const { return outgoing(0, Encoding::kNode); }
  std::span<std::byte> outgoing(size_t stage, Encoding encoding) const {
    return own_block(stage).first(device_.payload_bytes(index(), encoding));
  }

  DevicePartitions& device() { return device_; }
  size_t index() const { return plan().index; }

  Status check(size_t stage, Encoding encoding, uint32_t agent) const {
    const DeviceCoding& coding = device_.codings(index())[static_cast<size_t>(encoding)];
    return check_payload(*coding.codec, block(stage, agent), plan().count, agent);
  }
  // The sum of what all agents have sent.
  Status sum(float scale) {
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(check(0, Encoding::kNode, agent));
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(device_.decode(index(), Encoding::kNode, agent, block(0, agent),
                                             {scale, /*adds=*/agent > 0}));
    return {};
  }

 private:
  DevicePartitions& device_;
};

class DeviceAllGather final : public DevicePartition {
 public:
  using DevicePartition::DevicePartition;

  std::span<const uint64_t> encode(uint64_t) override {
    return lengths(device().finish(index(), Encoding::kNode, outgoing()));
  }

  Result<std::span<const uint64_t>> advance(size_t) override {
    GRADBUS_RETURN_IF_ERROR(sum(plan().scale));
    GRADBUS_RETURN_IF_ERROR(device().publish(index()));
    return std::span<const uint64_t>();
  }
};

class DeviceOwnerReduce final : public DevicePartition {
 public:
  using DevicePartition::DevicePartition;

  std::span<const uint64_t> encode(uint64_t round) override {
    round_ = round;
    return lengths(device().finish(index(), Encoding::kNode, outgoing()));
  }

  Result<std::span<const uint64_t>> advance(size_t stage) override {
    return stage == 0 ? encode_sum() : take();
  }

  Result<std::span<const uint64_t>> resume() override {
    const Result<bool> came = device().came(index());
    if (!came.ok()) return came.status();
    if (!came.value()) return std::span<const uint64_t>();
    set_waits(false);
    return lengths(device().finish(index(), Encoding::kOwner, outgoing(1, Encoding::kOwner)));
  }

 private:
  // The owner's block goes to all; the others' are empty.
  Result<std::span<const uint64_t>> encode_sum() {
    if (plan().agent_index != plan().owner()) return lengths(0);
    GRADBUS_RETURN_IF_ERROR(sum(1));
    GRADBUS_RETURN_IF_ERROR(device().encode_again(
        index(), {codec_round(round_), mix_u64(own_seed(round_))}, outgoing(1, Encoding::kOwner)));
    set_waits(true);
    return std::span<const uint64_t>();
  }

  Result<std::span<const uint64_t>> take() {
    const uint32_t owner = plan().owner();
    GRADBUS_RETURN_IF_ERROR(check(1, Encoding::kOwner, owner));
    GRADBUS_RETURN_IF_ERROR(device().decode(index(), Encoding::kOwner, owner, block(1, owner),
                                            {plan().scale, /*adds=*/false}));
    GRADBUS_RETURN_IF_ERROR(device().publish(index()));
    return std::span<const uint64_t>();
  }

  uint64_t round_ = 0;
};

class DeviceAllReduce final : public DevicePartition {
 public:
  using DevicePartition::DevicePartition;

  std::span<const uint64_t> encode(uint64_t) override { return {}; }

  Result<std::span<const uint64_t>> advance(size_t) override {
    GRADBUS_RETURN_IF_ERROR(device().decode(index(), Encoding::kNode, plan().agent_index, vector(0),
                                            {plan().scale, /*adds=*/false}));
    GRADBUS_RETURN_IF_ERROR(device().publish(index()));
    return std::span<const uint64_t>();
  }

 private:
  std::span<std::byte> outgoing() const override { return vector(0); }
};

class DeviceLinearAllReduce final : public DevicePartition {
 public:
  using DevicePartition::DevicePartition;

  Status prepare(uint64_t round, bool exchanges) override {
    if (!exchanges) return device().sum(index());
    return device().project(index(), shared_seed(round), vector(0));
  }

  std::span<const uint64_t> encode(uint64_t) override { return {}; }

  Result<std::span<const uint64_t>> advance(size_t stage) override {
    if (stage == 0) {
      const Result<bool> comes = device().project_again(index(), vector(0), vector(1));
      GRADBUS_RETURN_IF_ERROR(comes.status());
      set_waits(comes.value());
      return std::span<const uint64_t>();
    }
    GRADBUS_RETURN_IF_ERROR(device().finish(index(), vector(1), plan().scale));
    GRADBUS_RETURN_IF_ERROR(device().publish(index()));
    return std::span<const uint64_t>();
  }

  Result<std::span<const uint64_t>> resume() override {
    const Result<bool> came = device().came(index());
    GRADBUS_RETURN_IF_ERROR(came.status());
    set_waits(!came.value());
    return std::span<const uint64_t>();
  }
};

}  // namespace

std::unique_ptr<CompressedPartition> make_device_partition(PartitionPlan plan,
                                                           DevicePartitions& device) {
  if (device.is_linear(plan.index))
    return std::make_unique<DeviceLinearAllReduce>(std::move(plan), device);
  switch (plan.communicator) {
    case Communicator::kAllReduce:
      return std::make_unique<DeviceAllReduce>(std::move(plan), device);
    case Communicator::kPs: return std::make_unique<DeviceOwnerReduce>(std::move(plan), device);
    default: return std::make_unique<DeviceAllGather>(std::move(plan), device);
  }
}

}  // namespace gradbus
