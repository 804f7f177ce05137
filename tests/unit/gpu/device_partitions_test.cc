// Compares compressed tensors on GPUs with the same tensors in host memory. The double of the
// plug-in has slow streams. Results and state must have the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/unit/data_plane/compressed_cluster.h"
#include "worker_agent/compressed/device_partitions.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

using test::CompressedCase;
using test::CompressedCluster;
using test::kClusterCount;
using test::kPartition;
using testing::AllOf;
using testing::HasSubstr;

const CudaPlugin& double_of(const char* kind) {
  setenv("GRADBUS_CUDA_DOUBLE", kind, 1);
  static const CudaPlugin plugin = open_cuda_plugin(GRADBUS_CUDA_DOUBLE_FILE).take();
  return plugin;
}

// Opens memory of the double as another process would.
std::byte* map_share(const DeviceShare& share, uint64_t bytes) {
  int32_t words[2];  // process, descriptor
  std::memcpy(words, share.bytes, sizeof(words));
  void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, words[1], 0);
  EXPECT_NE(view, MAP_FAILED);
  return static_cast<std::byte*>(view);
}

// Waits for an event of the double: until its latest recording is complete.
void wait_for(const std::byte* event) {
  const auto* ticks = reinterpret_cast<const std::atomic<uint64_t>*>(event);
  const Nanos deadline = monotonic_now() + 30 * kSecond;
  while (ticks[1].load() < ticks[0].load()) {
    ASSERT_LT(monotonic_now(), deadline) << "work on a stream has not ended";
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

Result<std::shared_ptr<DeviceTensor>> make_tensor(const LocalReductionShape& shape,
                                                  uint64_t partition_elements, std::byte* host,
                                                  int doorbell) {
  DevicePlan plan;
  plan.who = "tensor \"t\" of job \"job\"";
  for (uint32_t rank = 0; rank < shape.local_size; ++rank) plan.devices.push_back((rank + 1) % 2);
  plan.home = plan.devices.back();
  plan.shape = shape;
  plan.leaves_node = true;
  plan.partition_elements = partition_elements;
  plan.host = host;
  plan.doorbell = doorbell;
  return DeviceTensor::make(double_of("streams"), std::move(plan));
}

Result<std::shared_ptr<DeviceTensor>> make_tensor(const test::Node& node, const AddTensor& add) {
  return make_tensor(add.shape, add.plan.compression().partition_elements,
                     add.segment->at(add.slot.data_offset),
                     node.clients[0].channel->doorbell.get());
}

// Places the tensor as the conductor does.
void put_on_device(test::Node& node, AddTensor& add, uint32_t agent, uint32_t agents) {
  auto tensor = make_tensor(node, add);
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  auto partitions = DevicePartitions::make(
      tensor.value(), {add.plan.compression(), add.shape.count, agent, agents});
  ASSERT_TRUE(partitions.ok()) << partitions.status().message();
  const GpuMemory memory{tensor.take(), partitions.take()};
  add.memory = memory;
  std::vector<std::byte*> done;
  for (uint32_t rank = 0; rank < add.shape.local_size; ++rank) {
    const DeviceRankBuffer& rank_buffer = memory.device->rank_buffer(rank);
    node.rank_buffers_elsewhere.push_back(reinterpret_cast<float*>(
        map_share(rank_buffer.memory.handle, kClusterCount * sizeof(float))));
    done.push_back(map_share(rank_buffer.done, 2 * sizeof(uint64_t)));
  }
  node.settle = [done] {
    for (const std::byte* event : done) wait_for(event);
  };
  node.settle();
}

// A layout whose first `on_devices` agents have their tensors on devices.
test::Layout layout(uint32_t agents, uint32_t ranks_per_agent, uint32_t on_devices) {
  test::Layout made{.agents = agents, .ranks_per_agent = ranks_per_agent};
  made.place = [=](test::Node& node, AddTensor& add) {
    const uint32_t agent = node.ranks[0] / ranks_per_agent;
    if (agent < on_devices) put_on_device(node, add, agent, agents);
  };
  return made;
}

// The bits of all ranks' buffers.
std::vector<std::vector<uint32_t>> bits_of(CompressedCluster& cluster) {
  std::vector<std::vector<uint32_t>> all;
  cluster.for_each_rank([&](uint32_t agent, uint32_t local) {
    std::vector<uint32_t>& bits = all.emplace_back(kClusterCount);
    std::memcpy(bits.data(), cluster.result(agent, local).data(), kClusterCount * sizeof(float));
  });
  return all;
}

// One cluster in host memory and one on devices. Every operation is done on both.
struct Pair {
  Pair(const std::string& spec, uint32_t agents, uint32_t ranks, uint32_t on_devices)
      : host(layout(agents, ranks, 0), {spec, way(spec)}, ReduceOp::kAverage),
        device(layout(agents, ranks, on_devices), {spec, way(spec)}, ReduceOp::kAverage) {}
  static Communicator way(const std::string& spec) {
    const CompressionSpec parsed = parse_compression(spec).take();
    if (parsed.codec->make == nullptr) return Communicator::kAllReduce;
    const Communicator said = parsed.communicator();
    return said == Communicator::kAuto ? Communicator::kAllGather : said;
  }

  void expect_same(const char* after) { EXPECT_EQ(bits_of(host), bits_of(device)) << after; }
  void round(uint64_t number, double residual_scale = 0) {
    for (CompressedCluster* one : {&host, &device}) {
      one->for_each_rank([&](uint32_t agent, uint32_t local) {
        const uint32_t ranks = one->world() / one->agents();
        one->put(agent, local, CompressedCluster::gradient(agent * ranks + local, number));
      });
      ASSERT_NO_FATAL_FAILURE(one->start(CompressedCluster::posted(residual_scale)));
      ASSERT_NO_FATAL_FAILURE(one->finish());
    }
    expect_same("a round");
  }
  // Sets one element of one rank to `value`. Compares nothing, because sums may give different
  // NaNs.
  void round_with(uint64_t number, size_t element, float value) {
    for (CompressedCluster* one : {&host, &device}) {
      one->for_each_rank([&](uint32_t agent, uint32_t local) {
        std::vector<float> gradient = CompressedCluster::gradient(agent + local, number);
        const bool last = agent + 1 == one->agents() && local + 1 == one->world() / one->agents();
        if (last) gradient[element] = value;
        one->put(agent, local, gradient);
      });
      ASSERT_NO_FATAL_FAILURE(one->start(CompressedCluster::posted()));
      ASSERT_NO_FATAL_FAILURE(one->finish());
    }
  }
  void memory(SubmissionKind kind, ResidualStatePart part = ResidualStatePart::kResidual) {
    for (CompressedCluster* one : {&host, &device}) {
      ASSERT_NO_FATAL_FAILURE(one->start(CompressedCluster::memory(kind, part)));
      ASSERT_NO_FATAL_FAILURE(one->finish());
    }
    if (kind == SubmissionKind::kReadResidualState) expect_same("reading what is remembered");
  }
  void put_everywhere(uint64_t seed) {
    for (CompressedCluster* one : {&host, &device})
      one->for_each_rank([&](uint32_t agent, uint32_t local) {
        one->put(agent, local, CompressedCluster::gradient(agent * 10 + local, seed));
      });
  }

  CompressedCluster host;
  CompressedCluster device;
};

// A test name for the case.
std::string name_of(const testing::TestParamInfo<const char*>& one) {
  std::string name = one.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

constexpr const char* kSpecs[] = {"fp16",
                                  "bf16:ef=residual",
                                  "fp8",
                                  "int8",
                                  "int8:ef=residual,decay=0.9",
                                  "int4",
                                  "qsgd",
                                  "qsgd:bucket=0",
                                  "terngrad",
                                  "natural",
                                  "signsgd",
                                  "efsignsgd",
                                  "onebit",
                                  "onebit:ef=none",
                                  "topk:ratio=0.02",
                                  "topk:ratio=0.02,values=fp16,decay=0.8,warmup=4,stages=2",
                                  "topk:ef=none",
                                  "dgc:ratio=0.05,ef=residual",
                                  "dgc:ratio=0.01,sample=0.1,ef=residual,warmup=4",
                                  "randk:ratio=0.1,communicator=allgather",
                                  "randk:ratio=0.6,ef=residual,communicator=allgather",
                                  "fp16:communicator=ps",
                                  "int8:ef=residual,decay=0.9,communicator=ps",
                                  "qsgd:communicator=ps",
                                  "signsgd:communicator=ps",
                                  "signsgd:ef=residual,communicator=ps",
                                  "onebit:communicator=ps",
                                  "topk:ratio=0.05,communicator=ps",
                                  "topk:ratio=0.05,values=bf16,warmup=3,communicator=ps",
                                  "dgc:ratio=0.05,ef=residual,communicator=ps",
                                  "randk:ratio=0.3,communicator=ps",
                                  "signum",
                                  "signum:beta=0.5,ef=residual,decay=0.5,communicator=ps",
                                  "dgc:ratio=0.02",
                                  "dgc:ratio=0.05,nesterov=yes,warmup=4,communicator=ps",
                                  "dgc:ratio=0.05,masking=no,decay=0.9",
                                  "topk:ratio=0.05,values=fp16,ef=dgc",
                                  "randk:ratio=0.3,ef=dgc,communicator=allgather",
                                  "int8:ef=dgc",
                                  "onebit:ef=dgc,nesterov=yes,communicator=ps",
                                  "fp16:ef=dgc,communicator=allreduce",
                                  "fp16:communicator=allreduce",
                                  "bf16:ef=residual,communicator=allreduce",
                                  "powersgd",
                                  "powersgd:rank=3,decay=0.9",
                                  "powersgd:ef=none",
                                  "blocktopk:block=64,ratio=0.2",
                                  "blocktopk:block=33,ratio=0.5,values=fp16,decay=0.8",
                                  "blocktopk:block=100,ef=none"};

class EveryDeviceCodec : public testing::TestWithParam<const char*> {};

// Expect: rounds, changes of the learning rate, reads and writes give the bits of host memory. So
// do nodes of which some compress on devices and some on the host.
TEST_P(EveryDeviceCodec, HasTheBitsOfHostMemory) {
  const struct { uint32_t agents, ranks, on_devices; } cases[] = {{2, 2, 1}, {3, 1, 3}, {2, 3, 2}};
  for (const auto& one : cases) {
    SCOPED_TRACE(testing::Message() << one.agents << " nodes of " << one.ranks << " ranks, "
                                    << one.on_devices << " with GPUs");
    Pair pair(GetParam(), one.agents, one.ranks, one.on_devices);
    for (uint64_t round = 1; round <= 3; ++round) ASSERT_NO_FATAL_FAILURE(pair.round(round));
    ASSERT_NO_FATAL_FAILURE(pair.memory(SubmissionKind::kReadResidualState));
    ASSERT_NO_FATAL_FAILURE(pair.round(4, 0.3));
    pair.put_everywhere(77);
    ASSERT_NO_FATAL_FAILURE(pair.memory(SubmissionKind::kWriteResidualState));
    ASSERT_NO_FATAL_FAILURE(pair.memory(SubmissionKind::kReadResidualState));
    ASSERT_NO_FATAL_FAILURE(
        pair.memory(SubmissionKind::kReadResidualState, ResidualStatePart::kMomentum));
    pair.put_everywhere(78);
    ASSERT_NO_FATAL_FAILURE(
        pair.memory(SubmissionKind::kWriteResidualState, ResidualStatePart::kMomentum));
    ASSERT_NO_FATAL_FAILURE(
        pair.memory(SubmissionKind::kReadResidualState, ResidualStatePart::kMomentum));
    for (uint64_t round = 5; round <= 6; ++round) ASSERT_NO_FATAL_FAILURE(pair.round(round, 2));
    ASSERT_NO_FATAL_FAILURE(pair.memory(SubmissionKind::kReadResidualState));
  }
}

INSTANTIATE_TEST_SUITE_P(DevicePartitions, EveryDeviceCodec, testing::ValuesIn(kSpecs), name_of);

class EveryDeviceMemory : public testing::TestWithParam<const char*> {};

// Expect: an Inf of one rank is in every result, and the state does not change.
TEST_P(EveryDeviceMemory, TakesNothingInThatIsNotFinite) {
  Pair pair(GetParam(), 2, 2, 2);
  ASSERT_NO_FATAL_FAILURE(pair.round(1));
  ASSERT_NO_FATAL_FAILURE(pair.round_with(2, 300, std::numeric_limits<float>::infinity()));
  pair.device.for_each_rank([&](uint32_t agent, uint32_t local) {
    EXPECT_TRUE(std::ranges::any_of(pair.device.result(agent, local),
                                    [](float value) { return !std::isfinite(value); }));
  });
  for (const ResidualStatePart part : {ResidualStatePart::kResidual, ResidualStatePart::kMomentum})
    ASSERT_NO_FATAL_FAILURE(pair.memory(SubmissionKind::kReadResidualState, part));
  ASSERT_NO_FATAL_FAILURE(pair.round(3));
}

INSTANTIATE_TEST_SUITE_P(DevicePartitions, EveryDeviceMemory,
                         testing::Values("int8:ef=residual", "topk:ratio=0.02",
                                         "int8:ef=residual,communicator=ps",
                                         "topk:ratio=0.05,communicator=ps", "signum", "powersgd",
                                         "blocktopk:block=64,ratio=0.2", "dgc:ratio=0.02",
                                         "int8:ef=dgc"),
                         name_of);

// Expect: a momentum that overflows a float is visible once, and then restarts.
TEST(DevicePartitions, WhatOverflowsBeginsAnew) {
  for (const char* spec : {"int8:ef=dgc", "dgc:ratio=0.02,masking=no"}) {
    SCOPED_TRACE(spec);
    Pair pair(spec, 2, 1, 2);
    const auto overflows = [&] {
      return std::ranges::any_of(pair.device.result(0, 0),
                                 [](float value) { return !std::isfinite(value); });
    };
    ASSERT_NO_FATAL_FAILURE(pair.round_with(1, 300, 3e38F));
    EXPECT_FALSE(overflows());
    ASSERT_NO_FATAL_FAILURE(pair.round_with(2, 300, 3e38F));
    EXPECT_TRUE(overflows());
    for (const ResidualStatePart part :
         {ResidualStatePart::kResidual, ResidualStatePart::kMomentum}) {
      ASSERT_NO_FATAL_FAILURE(pair.memory(SubmissionKind::kReadResidualState, part));
      EXPECT_EQ(pair.device.result(1, 0)[300], 0);
    }
    ASSERT_NO_FATAL_FAILURE(pair.round(3));
    EXPECT_FALSE(overflows());
  }
}

CompressionPlan plan_of(const std::string& spec, Communicator communicator) {
  return {parse_compression(spec).take(), communicator, kPartition, 0};
}

TEST(DevicePartitions, WhatIsNotDoneThereIsRefusedByName) {
  const struct {
    const char* spec;
    Communicator communicator;
    const char* says;
  } cases[] = {
      {"randk", Communicator::kAllReduce, "randk"},
      {"topk", Communicator::kAllReduce, "topk"},
      {"powersgd:ef=dgc", Communicator::kAllReduce, "with such a momentum"},
      {"dgc:clip=1", Communicator::kAllGather, "with such a momentum"},
      {"signum:ef=dgc", Communicator::kAllGather, "with such a momentum"},
      {"threshold", Communicator::kAllGather, "threshold"},
      {"rows", Communicator::kAllGather, "rows"},
      {"int8:entropy=zstd", Communicator::kAllGather, "zstd"},
      {"int8:nan=stop", Communicator::kAllGather, "the processor looks at"},
      {"int8:fidelity=10", Communicator::kAllGather, "the processor looks at"},
  };
  for (const auto& one : cases) {
    const Status status =
        fits_device("tensor t", plan_of(one.spec, one.communicator), kClusterCount);
    EXPECT_EQ(status.message().find("GB-D628 NOT_ON_GPU: tensor t: what is sent as"), 0U)
        << one.spec;
    EXPECT_THAT(status.message(), HasSubstr(one.says)) << one.spec;
  }
  for (const Communicator communicator : {Communicator::kAllGather, Communicator::kPs})
    EXPECT_TRUE(fits_device("tensor t", plan_of("int8", communicator), kClusterCount).ok());
}

TEST(DevicePartitions, NoMemoryIsOneLine) {
  test::Layout made{.agents = 2, .ranks_per_agent = 2};
  std::string says;
  made.place = [&](test::Node& node, AddTensor& add) {
    auto tensor = make_tensor(node, add);
    ASSERT_TRUE(tensor.ok());
    double_of("full");
    says = DevicePartitions::make(tensor.value(), {add.plan.compression(), kClusterCount, 0, 2})
               .status()
               .message();
    double_of("streams");
  };
  CompressedCluster cluster(made, {"int8", Communicator::kAllGather});
  EXPECT_THAT(says, HasSubstr("GB-D623 GPU_MEMORY: tensor \"t\" of job \"job\": pinned memory for "
                              "payloads: cudaMalloc: out of memory"));
}

// A partition that is its whole tensor, of agent 0 of two, without an engine.
class OnePartition : public testing::Test {
 protected:
  static constexpr uint64_t kElements = 100;  // in chunks of 64

  explicit OnePartition(const char* compression_spec = "onebit",
                        Communicator communicator = Communicator::kAllGather)
      : host_(kElements), bell_(eventfd(0, 0)) {
    plan_.spec = parse_compression(compression_spec).take();
    plan_.communicator = communicator;
    plan_.count = plan_.shape.count_max = kElements;
    TensorSpec spec;
    spec.count = kElements;
    const LocalReductionShape shape = make_local_reduction_shape(spec, 64, {3, 2, true, true});
    tensor_ = make_tensor(shape, kElements, reinterpret_cast<std::byte*>(host_.data()), bell_.get())
                  .take();
    const CompressionPlan compression{plan_.spec, communicator, kElements, 0};
    device_ = DevicePartitions::make(tensor_, {compression, kElements, 0, 2}).take();
    partition_ = make_device_partition(plan_, *device_);
    std::span<std::byte> rest = device_->payloads();
    for (size_t s = 0; s < partition_->stages().size(); ++s) {
      const Stage& stage = partition_->stages()[s];
      operations_.push_back(std::make_unique<CollectiveOperation>(
          OperationId{0, static_cast<uint16_t>(s)}, stage.plan,
          OperationBuffers{{}, 0, rest.data(), stage.stride}, std::vector<uint32_t>{0},
          Reduction{}));
      partition_->attach(s, operations_.back().get(), rest.first(stage.bytes));
      rest = rest.subspan(stage.bytes);
    }
    for (const uint32_t rank : {0, 1}) {
      const DeviceRankBuffer& rank_buffer = tensor_->rank_buffer(rank);
      rank_buffers_[rank] =
          reinterpret_cast<float*>(map_share(rank_buffer.memory.handle, kElements * sizeof(float)));
      done_[rank] = map_share(rank_buffer.done, 2 * sizeof(uint64_t));
    }
    settle();
  }

  void settle() {
    for (const std::byte* event : done_) wait_for(event);
  }

  // The payload of the rank buffer, after the stream has made it.
  std::vector<std::byte> encode() {
    EXPECT_TRUE(tensor_->start().ok());
    EXPECT_TRUE(partition_->prepare(1, true).ok());
    for (const Nanos deadline = monotonic_now() + 30 * kSecond;
         !tensor_->summed(1) && monotonic_now() < deadline;)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    const size_t bytes = partition_->start(1)[0];
    const std::span<const std::byte> own = device_->payloads().first(bytes);
    return {own.begin(), own.end()};
  }
  Status receive(const std::vector<std::byte>& payload) {
    Action deliver{.kind = Action::Kind::kDeliver, .source = 1};
    deliver.bytes = deliver.total = payload.size();
    operations_.front()->deliver(deliver, payload);
    return partition_->advance(0).status();
  }
  std::vector<float> rank_buffer(uint32_t rank) const {
    return {rank_buffers_[rank], rank_buffers_[rank] + kElements};
  }

  std::vector<float> host_;
  Fd bell_;
  PartitionPlan plan_;
  std::shared_ptr<DeviceTensor> tensor_;
  std::shared_ptr<DevicePartitions> device_;
  std::unique_ptr<CompressedPartition> partition_;
  std::vector<std::unique_ptr<CollectiveOperation>> operations_;
  float* rank_buffers_[2] = {};
  std::byte* done_[2] = {};
};

// Expect: the other agent sends the same payload, which doubles the result: two levels, 1 and -3.
TEST_F(OnePartition, MayEndAnywhere) {
  for (uint64_t i = 0; i < kElements; ++i) rank_buffers_[1][i] = i % 2 == 0 ? 1 : -3;
  const std::vector<std::byte> payload = encode();
  ASSERT_TRUE(receive(payload).ok());
  ASSERT_TRUE(tensor_->deliver().ok());
  settle();
  for (uint64_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(rank_buffers_[0][i], i % 2 == 0 ? 2 : -6) << i;
    ASSERT_EQ(rank_buffers_[1][i], rank_buffers_[0][i]) << i;
  }
}

// Expect: the error names the agent, and the device gets no byte of the payload.
TEST_F(OnePartition, RefusesWhatNoCodecHasWritten) {
  std::ranges::fill(std::span(rank_buffers_[0], kElements), 1.0F);
  std::vector<std::byte> payload = encode();
  const std::vector<float> before[] = {rank_buffer(0), rank_buffer(1)};
  payload[4] = std::byte{101};  // its number of elements
  EXPECT_THAT(receive(payload).message(), AllOf(HasSubstr("GB-D611"), HasSubstr("agent 1")));
  payload[4] = std::byte{100};
  payload.pop_back();
  EXPECT_THAT(receive(payload).message(), AllOf(HasSubstr("GB-D611"), HasSubstr("agent 1")));
  ASSERT_TRUE(tensor_->deliver().ok());
  settle();
  for (const uint32_t rank : {0, 1}) EXPECT_EQ(rank_buffer(rank), before[rank]);
}

// Selects 10 of the 100 elements.
class OneList : public OnePartition {
 protected:
  OneList() : OnePartition("topk:ratio=0.1") {}
};

// Expect: the other agent sends the same elements, which doubles them.
TEST_F(OneList, IsWhatWasSelected) {
  for (uint64_t i = 0; i < kElements; ++i) rank_buffers_[0][i] = i % 10 == 7 ? 5 : 0.25F;
  const std::vector<std::byte> payload = encode();
  ASSERT_TRUE(receive(payload).ok());
  ASSERT_TRUE(tensor_->deliver().ok());
  settle();
  for (uint64_t i = 0; i < kElements; ++i)
    ASSERT_EQ(rank_buffers_[1][i], i % 10 == 7 ? 10 : 0) << i;
}

// Expect: payloads with more entries than a list has room for, or with invalid indices, name their
// agent.
TEST_F(OneList, IsNotMadeOfWhatNoCodecHasWritten) {
  std::ranges::fill(std::span(rank_buffers_[0], kElements), 1.0F);
  const std::vector<std::byte> payload = encode();
  std::vector<std::byte> longer = payload;
  longer[12] = std::byte{11};  // its number of entries
  EXPECT_THAT(receive(longer).message(), AllOf(HasSubstr("GB-D611"), HasSubstr("agent 1")));
  std::vector<std::byte> beyond = payload;
  std::fill(beyond.begin() + 16 + 10 * sizeof(float), beyond.end(), std::byte{0xff});
  EXPECT_THAT(receive(beyond).message(), AllOf(HasSubstr("GB-D611"), HasSubstr("agent 1")));
}

// A partition that agent 0 owns.
class OneOwnerReduce : public OnePartition {
 protected:
  OneOwnerReduce() : OnePartition("topk:ratio=0.1", Communicator::kPs) {}

  // The block lengths of the owner's second exchange.
  Result<std::span<const uint64_t>> resume() {
    for (const Nanos deadline = monotonic_now() + 30 * kSecond; monotonic_now() < deadline;) {
      Result<std::span<const uint64_t>> lengths = partition_->resume();
      if (!lengths.ok() || !partition_->waits()) return lengths;
      EXPECT_TRUE(lengths.value().empty());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return Status(Code::kTimeout, "the partition waits");
  }
};

// Expect: the sum of both payloads is sent back as one payload, and becomes the result.
TEST_F(OneOwnerReduce, IsSummedAndSentBack) {
  for (uint64_t i = 0; i < kElements; ++i) rank_buffers_[0][i] = i % 10 == 7 ? 5 : 0.25F;
  const std::vector<std::byte> payload = encode();
  ASSERT_TRUE(receive(payload).ok());
  ASSERT_TRUE(partition_->waits());
  const Result<std::span<const uint64_t>> lengths = resume();
  ASSERT_TRUE(lengths.ok()) << lengths.status().message();
  ASSERT_EQ(lengths.value()[0], payload.size());
  ASSERT_TRUE(partition_->advance(1).ok());
  EXPECT_FALSE(partition_->waits());
  ASSERT_TRUE(tensor_->deliver().ok());
  settle();
  for (uint64_t i = 0; i < kElements; ++i)
    ASSERT_EQ(rank_buffers_[1][i], i % 10 == 7 ? 10 : 0) << i;
}

// Expect: one error that names the tensor, whether the GPU fails at the sum or after it.
TEST_F(OneOwnerReduce, SaysWhenItsGpuFails) {
  std::ranges::fill(std::span(rank_buffers_[0], kElements), 1.0F);
  const std::vector<std::byte> payload = encode();
  double_of("broken");
  const Status at_once = receive(payload);
  double_of("streams");
  EXPECT_THAT(at_once.message(), HasSubstr("GB-D624 GPU_FAILED: tensor \"t\" of job"));
  ASSERT_TRUE(partition_->advance(0).ok());
  double_of("broken");
  const Status later = resume().status();
  double_of("streams");
  EXPECT_THAT(later.message(), HasSubstr("GB-D624 GPU_FAILED: tensor \"t\" of job"));
}

// Expect: one error that names the tensor. The other node learns the end of the job from the
// coordinator.
TEST(DevicePartitions, AGpuThatFailsBreaksTheJob) {
  CompressedCluster cluster(layout(2, 1, 1), {"int8", Communicator::kAllGather});
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(1));
  double_of("broken");
  cluster.start(0, CompressedCluster::posted());
  const std::vector<JobBroken> broken = cluster.cluster().broken(0);
  double_of("streams");
  ASSERT_EQ(broken.size(), 1U);
  EXPECT_THAT(broken[0].status.message(), HasSubstr("GB-D624 GPU_FAILED: tensor \"t\" of job"));
}

}  // namespace
}  // namespace gradbus
