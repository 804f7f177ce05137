#include "worker_agent/control/worker_control_job.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "common/checked.h"
#include "common/errors.h"
#include "shared_memory/half_averages.h"
#include "worker_agent/compressed/compressed_bytes.h"

namespace gradbus {

WorkerControlJob::WorkerControlJob(const v1::JobStarted& started, uint32_t agent_index,
                                   uint64_t incarnation, std::vector<AttachedClient*> clients,
                                   ShmQuota& quota, Devices& devices, const NcclUse& nccl,
                                   Engine& engine)
    : started_(started),
      agent_index_(agent_index),
      incarnation_(incarnation),
      clients_(std::move(clients)),
      arena_(started.job(), static_cast<uint32_t>(clients_.size()),
             static_cast<uint32_t>(started.members_size()), quota),
      quota_(quota),
      devices_(devices),
      nccl_(nccl),
      engine_(engine),
      tracer_(trace_, [this](uint32_t tensor) {
        const auto at = tensors_.find(tensor);
        return at == tensors_.end() ? std::string() : at->second.spec().name;
      }) {
  for (const AttachedClient* client : clients_) {
    local_ranks_.push_back(client->rank);
    pids_.push_back(static_cast<uint64_t>(client->pid()));
  }
}

WorkerControlJob::~WorkerControlJob() { quota_.bytes_used -= charged_; }

// Charges memory that the agent needs for the job's tensors besides shared memory, until the job
// ends.
Status WorkerControlJob::charge(uint64_t bytes, const std::string& what) {
  const uint64_t left = quota_.bytes_max - std::min(quota_.bytes_used, quota_.bytes_max);
  const auto mib = [](uint64_t count) { return std::to_string(count >> 20) + " MiB"; };
  if (bytes > left)
    return error("S201", "job \"" + name() + "\" asks for " + mib(bytes) + " of " + what + "; " +
                             mib(quota_.bytes_used) + " of this agent's " + mib(quota_.bytes_max) +
                             " (--shm-bytes-max " + std::to_string(quota_.bytes_max) +
                             ") are in use");
  GRADBUS_RETURN_IF_ERROR(fits_container(quota_, name(), bytes));
  quota_.bytes_used += bytes;
  charged_ += bytes;
  return {};
}

bool WorkerControlJob::deserted() const {
  return std::all_of(clients_.begin(), clients_.end(), [](const auto* client) { return !client; });
}

bool WorkerControlJob::deserted_for(Nanos now, Nanos grace) {
  if (deserted_since_ == 0) deserted_since_ = now;
  return now - deserted_since_ >= grace;
}

// ---- start

// Whether another transport's device, or a rank for its GPU, may have pinned it. CUDA pins whole
// segments in a rank, and the agent is not informed.
bool WorkerControlJob::may_be_pinned() const {
  const bool remote = started_.agents_size() + started_.shards_size() > 1;
  const auto is_there = [](const char* path) { return access(path, F_OK) == 0; };
  return (remote && started_.transport() != "tcp") || is_there("/dev/nvidiactl") ||
         is_there("/proc/driver/nvidia") || is_there("/dev/dxg");
}

Status WorkerControlJob::start(uint32_t cores) {
  GRADBUS_RETURN_IF_ERROR(arena_.open());
  if (may_be_pinned()) arena_.keep_pages();
  for (AttachedClient* client : clients_) {
    auto channel = create_channel(name() + "." + std::to_string(client->rank));
    if (!channel.ok()) return channel.status();
    channels_.push_back(channel.take());
    tracer_.add_rank(client->rank, channels_.back());
    client->channel = channels_.back();
  }
  Result<PlacementPattern> pattern = pattern_from(started_);
  if (!pattern.ok()) return pattern.status();
  shard_sets_ = {{static_cast<uint32_t>(started_.shards_size()), pattern.take(), nullptr}};
  shards_known_ = started_.shards_size();
  engine_.post(engine_start());
  return join_clients(cores);
}

StartJob WorkerControlJob::engine_start() const {
  StartJob start;
  start.job = id();
  start.name = name();
  start.epoch = started_.epoch();
  start.link_key = started_.link_key();
  start.agent_index = agent_index_;
  start.agents = static_cast<uint32_t>(started_.agents_size());
  start.shards = static_cast<uint32_t>(started_.shards_size());
  for (const v1::JobAgent& agent : started_.agents()) {
    start.agent_addresses.push_back(agent.address());
    start.node_names.push_back(agent.name());
  }
  for (const v1::JobAgent& shard : started_.shards())
    start.agent_addresses.push_back(shard.address());
  for (const v1::JobMember& member : started_.members())
    start.agent_of_rank.push_back(member.agent_index());
  start.local_ranks = local_ranks_;
  start.channels = channels_;
  start.traffic = traffic_;
  start.fidelity = fidelity_;
  start.staleness = staleness_;
  start.trace = trace_;
  return start;
}

Status WorkerControlJob::join_clients(uint32_t cores) {
  for (AttachedClient* client : clients_) {
    auto packet = make_packet<JoinedPacket>(1);
    packet.layout_version = kShmLayoutVersion;
    packet.job = id();
    packet.epoch = started_.epoch();
    packet.rank = client->rank;
    packet.world_size = world_size();
    packet.local_rank = client->local_rank;
    packet.local_size = static_cast<uint32_t>(clients_.size());
    packet.agents = static_cast<uint32_t>(started_.agents_size());
    packet.agent_index = agent_index_;
    packet.cores = cores;
    packet.channel_bytes = client->channel->segment->bytes();
    packet.arena_bytes = arena_.segments().front()->bytes();
    started_.secret().copy(reinterpret_cast<char*>(packet.secret), sizeof(packet.secret));
    client->state = AttachedClient::State::kRunning;
    client->send(packet, {client->channel->segment->fd(), arena_.segments().front()->fd(),
                          client->channel->doorbell.get()});
  }
  return {};
}

// ---- tensors

LocalReductionShape WorkerControlJob::shape_of(const TensorPlan& plan) const {
  return make_local_reduction_shape(
      plan.spec, plan.chunk_elements,
      {world_size(), static_cast<uint32_t>(clients_.size()), plan.spec.leaves_node(agents())});
}

std::vector<LocalReductionShape> WorkerControlJob::shapes_of_new(
    const std::vector<TensorPlan>& plans) const {
  std::vector<LocalReductionShape> shapes;
  for (const TensorPlan& plan : plans)
    if (!tensors_.contains(plan.id)) shapes.push_back(shape_of(plan));
  return shapes;
}

Result<std::vector<TensorPlan>> WorkerControlJob::plans_from(const v1::TensorsReady& ready) const {
  std::vector<TensorPlan> plans;
  for (const v1::ReadyTensor& tensor : ready.tensors()) {
    Result<TensorPlan> plan = tensor_plan_from(tensor, {agents(), world_size(), shard_sets_});
    if (!plan.ok()) return plan.status();
    plans.push_back(plan.take());
  }
  return plans;
}

Status WorkerControlJob::place(const v1::TensorsReady& ready) {
  Result<std::vector<TensorPlan>> read = plans_from(ready);
  if (!read.ok()) return read.status();
  std::vector<TensorPlan> plans = read.take();
  GRADBUS_RETURN_IF_ERROR(arena_.reserve(shapes_of_new(plans)));
  for (size_t i = 0; i < plans.size(); ++i)
    GRADBUS_RETURN_IF_ERROR(place_one(ready.tensors(static_cast<int>(i)), std::move(plans[i])));
  announce_segments();
  const std::set<uint32_t> ranks(ready.ranks().begin(), ready.ranks().end());
  for (const v1::ReadyTensor& tensor : ready.tensors())
    if (!deferred_.contains(tensor.id())) answer(tensor, ranks);
  return {};
}

Status WorkerControlJob::place_one(const v1::ReadyTensor& ready, TensorPlan plan) {
  tensor_last_ = std::max(tensor_last_, plan.id);
  newest_[ready.name()] = plan.id;
  if (tensors_.contains(plan.id)) return {};
  LocalReductionShape shape = shape_of(plan);
  const Result<ArenaSlot> place = arena_.place(shape);
  if (!place.ok()) return place.status();
  shape.data_stride = place.value().data_stride;
  const auto& segment = arena_.segments()[place.value().segment];
  const LocalReduction local_reduction(segment->at(place.value().local_reduction_offset),
                                       segment->at(place.value().data_offset), shape);
  const uint32_t tensor = plan.id;
  PlacedTensor& placed = tensors_
                             .emplace(tensor, PlacedTensor{std::move(plan), ready, shape,
                                                           place.value(), local_reduction})
                             .first->second;
  put_on_devices(placed);
  if (placed.device() != nullptr) arena_.keep_pages();
  GRADBUS_RETURN_IF_ERROR(charge_compression(placed));
  const TensorSpec& spec = placed.spec();
  AddTensor add{id(),
                placed.plan,
                spec.leaves_node(agents()) ? reduction_after_nodes(spec, world_size())
                                           : last_reduction(spec, world_size()),
                placed.shape,
                placed.slot,
                segment,
                placed.memory};
  if (placed.plan.may_use_nccl) return hold(ready, std::move(add));
  engine_.post(std::move(add));
  return {};
}

// GPUs have their own memory for it.
Status WorkerControlJob::charge_compression(PlacedTensor& placed) {
  const TensorSpec& spec = placed.spec();
  const CompressionPlan& compression = placed.plan.compression();
  if (compression.spec.none() || placed.device() != nullptr) return {};
  const uint64_t bytes =
      compressed_bytes(compression, spec.count, agents(), placed.plan.mode.holds_parameters());
  GRADBUS_RETURN_IF_ERROR(
      charge(bytes, "memory for " + spec.compression + " of tensor \"" + spec.name + "\""));
  placed.charged = bytes;
  return {};
}

Status WorkerControlJob::change_shards(const v1::ShardsChanged& changed) {
  Result<std::vector<ShardSet>> shard_sets = shard_sets_from(changed);
  if (!shard_sets.ok()) return shard_sets.status();
  shard_sets_ = shard_sets.take();
  shards_changed_ = changed;
  engine_.post(new_shards(changed, shards_known_));
  shards_known_ = std::max(shards_known_, changed.shards_size());
  return {};
}

void WorkerControlJob::announce_segments() {
  for (; announced_segments_ < arena_.segments().size(); ++announced_segments_) {
    auto packet = make_packet<SegmentPacket>();
    packet.segment = static_cast<uint32_t>(announced_segments_);
    packet.bytes = arena_.segments()[announced_segments_]->bytes();
    for (AttachedClient* client : clients_)
      if (client != nullptr) client->send(packet, {arena_.segments()[announced_segments_]->fd()});
  }
}

// A rank whose registration has not reached the coordinator does not get another rank's answer.
// Otherwise the coordinator would treat the late registration as a new one.
void WorkerControlJob::answer(const v1::ReadyTensor& ready, const std::set<uint32_t>& ranks) {
  PlacedTensor& placed = tensors_.at(ready.id());
  for (AttachedClient* client : clients_) {
    if (client == nullptr || (!ranks.empty() && !ranks.contains(client->rank))) continue;
    const auto wanted = client->wanted.find(ready.name());
    if (wanted == client->wanted.end() || wanted->second.spec != placed.spec()) continue;
    Fd descriptor;
    auto packet = make_packet<RegisteredPacket>(wanted->second.request);
    packet.tensor = ready.id();
    packet.segment = placed.slot.segment;
    packet.chunks = placed.shape.chunks;
    packet.chunk_elements = placed.shape.chunk_elements;
    packet.local_reduction_offset = placed.slot.local_reduction_offset;
    packet.data_offset = placed.slot.data_offset;
    packet.data_stride = placed.slot.data_stride;
    if (wanted->second.device && placed.device() == nullptr)
      set_text(packet.text, placed.why_not_on_device);
    if (placed.device() != nullptr && wanted->second.device) {
      packet.on_device = 1;
      packet.rank_buffer = placed.device()->rank_buffer(client->local_rank);
      if (packet.rank_buffer.memory.sharing == DeviceSharing::kDescriptor)
        descriptor = share_descriptor(*placed.device(), *client, packet);
    } else if (placed.device() != nullptr) {
      const Status on_gpu =
          error("O902", "tensor \"" + placed.spec().name + "\" was registered on a GPU before");
      packet.code = static_cast<uint32_t>(on_gpu.code());
      set_text(packet.text, on_gpu.message());
    }
    if (packet.code == 0) placed.users.set(client->local_rank);
    client->wanted.erase(wanted);
    client->send(packet, descriptor.valid() ? std::vector{descriptor.get()} : std::vector<int>());
  }
}

void WorkerControlJob::refuse(const v1::TensorRefused& refused) {
  const std::set<uint32_t> ranks(refused.ranks().begin(), refused.ranks().end());
  for (AttachedClient* client : clients_) {
    if (client == nullptr || !ranks.contains(client->rank)) continue;
    const auto wanted = client->wanted.find(refused.name());
    if (wanted == client->wanted.end()) continue;
    auto packet = make_packet<RegisteredPacket>(wanted->second.request);
    packet.code = refused.error().code();
    set_text(packet.text, refused.error().message());
    client->wanted.erase(wanted);
    client->send(packet);
  }
}

// ---- the end

template <typename Packet>
void WorkerControlJob::send_all(const Packet& packet) {
  for (AttachedClient* client : clients_)
    if (client != nullptr) client->send(packet);
}

void WorkerControlJob::notify(Code code, const std::string& text) {
  auto packet = make_packet<NoticePacket>();
  packet.code = static_cast<uint32_t>(code);
  set_text(packet.text, text);
  send_all(packet);
}

void WorkerControlJob::tell_mode(const std::string& group, const std::string& mode) {
  auto packet = make_packet<ModeChangePacket>();
  set_text(packet.group, group);
  set_text(packet.mode, mode);
  send_all(packet);
}

// The message is sent first: a client that wakes on a failed local reduction then finds it on its
// socket.
void WorkerControlJob::fail(const Status& status) {
  if (failed_) return;
  failed_ = true;
  failure_ = status;
  notify(status.code(), status.message());
  engine_.post(EndJob{id()});
  arena_.job_word().failed.store(static_cast<uint32_t>(status.code()), std::memory_order_release);
  for (auto& [id, tensor] : tensors_) tensor.local_reduction.fail(status.code());
}

void WorkerControlJob::client_gone(const AttachedClient& client) {
  for (AttachedClient*& known : clients_)
    if (known == &client) known = nullptr;
}

}  // namespace gradbus
