// A node's tensors in memory of GPUs, and whether NCCL carries them between nodes. All nodes agree
// on that before a tensor is used (server/coordinator/planning/nccl_agreement.h). Until then its
// ranks wait for the answer to their registration, and the engine does not know it.
#include <algorithm>
#include <cstring>

#include "common/errors.h"
#include "common/log.h"
#include "common/utf8.h"
#include "worker_agent/compressed/device_coding.h"
#include "worker_agent/compressed/device_partitions.h"
#include "worker_agent/control/worker_control_job.h"

namespace gradbus {
namespace {

constexpr const char* kNcclProgram = "/gradbus-nccl";
std::optional<WantedDevice> wanted_device(const AttachedClient& client,
                                          const std::optional<DeviceId>& device) {
  if (!device) return {};
  return client.trials.wanted(*device);
}

}  // namespace

// Places the tensor on GPUs if all ranks of this node request it and it is possible, otherwise in
// the arena. Frames and payloads between nodes are the same in both cases.
void WorkerControlJob::put_on_devices(PlacedTensor& placed) {
  const TensorSpec& spec = placed.spec();
  std::vector<std::optional<WantedDevice>> wanted(clients_.size());
  for (size_t rank = 0; rank < clients_.size(); ++rank) {
    if (clients_[rank] == nullptr) continue;
    const auto asked = clients_[rank]->wanted.find(spec.name);
    if (asked != clients_[rank]->wanted.end() && asked->second.spec == spec)
      wanted[rank] = wanted_device(*clients_[rank], asked->second.device);
  }
  if (std::ranges::none_of(wanted, [](const auto& device) { return device.has_value(); })) return;
  DevicePlan plan;
  plan.who = "tensor \"" + spec.name + "\" of job \"" + name() + "\"";
  plan.home_is_first = placed.plan.may_use_nccl;
  plan.partition_elements = placed.plan.compression().partition_elements;
  plan.leaves_node = spec.leaves_node(agents());
  LocalReductionShape shape = make_local_reduction_shape(
      spec, placed.shape.chunk_elements,
      {world_size(), static_cast<uint32_t>(clients_.size()), plan.leaves_node, true});
  shape.data_stride = placed.shape.data_stride;
  plan.shape = shape;
  plan.host = placed.local_reduction.rank_buffer(0);
  plan.doorbell = engine_.bell();
  Status can = fits_devices(placed);
  if (can.ok()) can = make_on_devices(placed, wanted, std::move(plan));
  if (!can.ok()) {
    placed.why_not_on_device = can.message();
    return;
  }
  const auto& segment = arena_.segments()[placed.slot.segment];
  placed.shape = shape;
  placed.local_reduction = LocalReduction(segment->at(placed.slot.local_reduction_offset),
                                          segment->at(placed.slot.data_offset), shape);
}

// Checks a compressed tensor. On one node the ranks keep the residual themselves, in memory of the
// host, and divide the values they write by the prescale factor.
Status WorkerControlJob::fits_devices(const PlacedTensor& placed) const {
  const TensorSpec& spec = placed.spec();
  const CompressionPlan& compression = placed.plan.compression();
  const std::string who = "tensor \"" + spec.name + "\" of job \"" + name() + "\"";
  if (spec.kind != CollectiveKind::kAllReduce || spec.count == 0)
    return error("D628", who + ": it is empty or not an all-reduce");
  if (spec.compression.empty()) return {};
  const bool sync = placed.plan.mode.kind == SyncMode::Kind::kSync;
  if (compression.spec.none() || !sync || spec.prescale != 1)
    return error("D628", who +
                             ": a compressed tensor can be on a GPU only in mode sync, between "
                             "nodes, and without a factor before the sum");
  return fits_device(who, compression, spec.count);
}

Status WorkerControlJob::make_on_devices(PlacedTensor& placed,
                                         const std::vector<std::optional<WantedDevice>>& wanted,
                                         DevicePlan plan) {
  Result<std::shared_ptr<DeviceTensor>> device =
      devices_.make(wanted, std::move(plan), arena_.segments()[placed.slot.segment]);
  if (!device.ok()) return device.status();
  GpuMemory memory{device.take()};
  const CompressionPlan& compression = placed.plan.compression();
  if (!compression.spec.none()) {
    auto partitions = DevicePartitions::make(
        memory.device, {compression, placed.spec().count, agent_index_, agents()});
    if (!partitions.ok()) return partitions.status();
    memory.partitions = partitions.take();
  }
  tell_sharing(memory.device->plan());
  placed.memory = std::move(memory);
  return {};
}

// If the agent has no descriptors left, the registration fails and the job continues.
Fd WorkerControlJob::share_descriptor(const DeviceTensor& device, const AttachedClient& client,
                                      RegisteredPacket& packet) {
  auto shared = device.share(client.local_rank);
  if (shared.ok()) return std::move(shared.value().descriptor);
  packet.code = static_cast<uint32_t>(shared.status().code());
  set_text(packet.text, shared.status().message());
  return {};
}

// Logged once per job: which memory can be opened depends on the processes, not on the tensors.
void WorkerControlJob::tell_sharing(const DevicePlan& plan) {
  if (std::exchange(told_sharing_, true)) return;
  const bool first = plan.not_shared_by.empty();
  spdlog::info("job \"{}\": memory of GPUs is shared with ranks by {}{}{}", name(),
               name_of(plan.sharing), first ? "" : ", not by ", plan.not_shared_by);
}

// ---- NCCL

Status WorkerControlJob::hold(const v1::ReadyTensor& ready, AddTensor add) {
  const PlacedTensor& placed = tensors_.at(ready.id());
  deferred_.emplace(ready.id(), DeferredTensor{ready, std::move(add), nccl_rank_buffers_});
  if (const Status can = may_go_by_nccl(placed); !can.ok()) {
    report_nccl(ready.id(), can);
    return {};
  }
  NcclQueue::Order order{.kind = NcclQueue::Order::Kind::kOpen, .tensor = ready.id()};
  auto memory = placed.device()->share(0);
  if (!memory.ok()) {
    report_nccl(ready.id(), memory.status());
    return {};
  }
  order.rank_buffer = nccl_rank_buffers_++;
  order.share = memory.value().share;
  order.descriptor = std::make_shared<Fd>(std::move(memory.value().descriptor));
  engine_.post(OrderNccl{id(), order});
  return {};
}

// The first tensor that needs the process starts it, on its GPU.
Status WorkerControlJob::may_go_by_nccl(const PlacedTensor& placed) {
  const std::string& node = started_.agents(static_cast<int>(agent_index_)).name();
  const std::string who = "tensor \"" + placed.spec().name + "\" on node \"" + node + "\"";
  if (placed.device() == nullptr)
    return error("D628", who + " is in memory of the host" +
                             (placed.why_not_on_device.empty() ? "" : ": ") +
                             placed.why_not_on_device);
  GRADBUS_RETURN_IF_ERROR(nccl_.lost);
  GRADBUS_RETURN_IF_ERROR(start_nccl(placed.device()->home()));
  if (placed.device()->home() != *nccl_device_)
    return error("D628", who + " is on another GPU than the job's first one");
  if (nccl_rank_buffers_ == kNcclRankBuffersMax)
    return error("D628",
                 who + ": " + std::to_string(kNcclRankBuffersMax) + " others go by NCCL already");
  return {};
}

Status WorkerControlJob::start_nccl(uint32_t device) {
  if (nccl_device_ || !no_nccl_.ok()) return no_nccl_;
  const std::string& node = started_.agents(static_cast<int>(agent_index_)).name();
  auto child = NcclChild::start(program_directory() + kNcclProgram,
                                "job \"" + name() + "\", node \"" + node + "\"");
  if (!child.ok()) return no_nccl_ = child.status();
  nccl_device_ = device;
  engine_.post(StartNccl{id(), std::make_unique<NcclQueue>(child.take(), device, nccl_.timeout),
                         nccl_.events});
  if (agent_index_ == 0) engine_.post(OrderNccl{id(), {.kind = NcclQueue::Order::Kind::kNewId}});
  return {};
}

void WorkerControlJob::report_nccl(uint32_t tensor, const Status& status) {
  v1::NcclReport& report = nccl_reports_.emplace_back();
  report.set_job_id(id());
  report.set_tensor(tensor);
  if (nccl_id_) report.set_id(nccl_id_->bytes, sizeof(nccl_id_->bytes));
  if (status.ok()) return;
  report.mutable_error()->set_code(static_cast<uint32_t>(status.code()));
  report.mutable_error()->set_message(as_utf8(status.message()));
}

void WorkerControlJob::handle_nccl_event(const NcclQueue::Ended& ended) {
  if (no_nccl_.ok()) no_nccl_ = ended.status;
  if (ended.turn) return;  // the engine ends the job for it
  switch (ended.kind) {
    case NcclQueue::Order::Kind::kNewId:
      if (ended.status.ok()) nccl_id_ = ended.id;
      return;
    case NcclQueue::Order::Kind::kOpen: return report_nccl(ended.tensor, ended.status);
    case NcclQueue::Order::Kind::kConnect: return report_nccl(0, ended.status);
  }
}

void WorkerControlJob::connect_nccl(const v1::NcclConnect& connect) {
  NcclQueue::Order order{.kind = NcclQueue::Order::Kind::kConnect};
  if (!nccl_device_ || connect.id().size() != sizeof(order.id.bytes))
    return report_nccl(0, error("D602", "the coordinator's name of a communicator has " +
                                            std::to_string(connect.id().size()) + " bytes"));
  connect.id().copy(order.id.bytes, sizeof(order.id.bytes));
  order.rank = agent_index_;
  order.ranks = static_cast<uint32_t>(started_.agents_size());
  engine_.post(OrderNccl{id(), order});
}

Status WorkerControlJob::settle_nccl(const v1::NcclSettled& settled) {
  const Status why_not = status_from(settled.error());
  for (const uint32_t tensor : settled.tensors()) {
    auto deferred = deferred_.extract(tensor);
    if (deferred.empty()) continue;
    AddTensor& add = deferred.mapped().add;
    if (why_not.ok() && add.gpu() == nullptr)
      return error("D602", "the coordinator selected NCCL for tensor \"" + add.plan.spec.name +
                               "\", which is in memory of the host");
    if (why_not.ok()) {
      add.gpu()->nccl = NcclPlace{deferred.mapped().rank_buffer, nccl_turns_};
      add.gpu()->device->go_by_nccl(add.last);
    }
    engine_.post(std::move(add));
    answer(deferred.mapped().ready, {});
    tell_nccl(tensors_.at(tensor), why_not);
  }
  return {};
}

// Logs one line of each kind per job.
void WorkerControlJob::tell_nccl(const PlacedTensor& placed, const Status& why_not) {
  if (why_not.ok() && !std::exchange(told_by_nccl_, true))
    spdlog::info("job \"{}\": gradients on GPUs are summed between nodes by NCCL", name());
  const bool asked = placed.device() != nullptr || !placed.why_not_on_device.empty();
  if (!why_not.ok() && asked && !std::exchange(told_no_nccl_, true))
    spdlog::warn("job \"{}\": gradients go through memory of the host, not by NCCL: {}", name(),
                 why_not.message());
}

}  // namespace gradbus
