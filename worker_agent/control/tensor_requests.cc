#include "worker_agent/control/tensor_requests.h"

#include "common/errors.h"
#include "compression/error_feedback.h"
#include "compression/spec.h"
#include "data_plane/coordinator_plans.h"
#include "proto/control.h"

namespace gradbus {
namespace {

// Tensors for which one client may wait at once.
constexpr size_t kWantedMax = 1u << 16;

TensorSpec spec_of_request(const RegisterPacket& packet) {
  TensorSpec spec{get_text(packet.name),
                  packet.count,
                  static_cast<DType>(packet.dtype),
                  static_cast<ReduceOp>(packet.op),
                  static_cast<CollectiveKind>(packet.collective),
                  packet.root,
                  packet.row_elements,
                  packet.prescale,
                  packet.postscale,
                  canonical_compression(get_text(packet.compression)),
                  packet.columns,
                  get_text(packet.mode),
                  get_text(packet.shape),
                  packet.priority,
                  packet.result_priority,
                  packet.budget_bytes};
  if (spec.compression.empty()) spec.columns = 0;
  return spec;
}

// Operations without a name share a few tensors, so what one leaves out would be added to another.
Status check_unnamed(TensorSpec spec, const std::string& compression) {
  spec.compression = compression;
  if (compression.empty() || !is_unnamed(spec)) return {};
  const Result<CompressionSpec> parsed = parse_compression(compression);
  if (!parsed.ok() || !remembers(parsed.value())) return {};
  return error("O910",
               "an operation without a name cannot be sent as \"" + compression +
                   "\", which keeps a state from round to round for each name",
               "pass a name, the same in each round, or take a codec without a state: ef=none");
}

}  // namespace

Status TensorRequests::check(const AttachedClient& client, const TensorSpec& spec,
                             uint8_t collective, bool runs, Nanos now) const {
  if (!is_collective(collective)) return bad_packet("collective number is unknown");
  GRADBUS_RETURN_IF_ERROR(check_spec(spec, client.world_size));
  if (!runs || !coordinator_.may_return(now))
    return error("C501", "tensor \"" + spec.name + "\" cannot be registered: the coordinator " +
                             coordinator_.address() + " is gone");
  if (client.wanted.size() >= kWantedMax)
    return error("A304",
                 client.who() + " waits for " + std::to_string(kWantedMax) + " tensors already");
  return {};
}

void TensorRequests::add(AttachedClient& client, const RegisterPacket& packet, bool runs,
                         Nanos now) {
  const TensorSpec spec = spec_of_request(packet);
  Status refused = check(client, spec, packet.collective, runs, now);
  if (refused.ok()) refused = check_unnamed(spec, get_text(packet.compression));
  if (!refused.ok()) return client.refuse_tensor(packet.header.request, refused);
  if (const auto earlier = client.wanted.find(spec.name); earlier != client.wanted.end())
    client.refuse_tensor(
        earlier->second.request,
        error("O902", client.who() + " asked for tensor \"" + spec.name +
                          "\" again with other arguments before the first answer"));
  std::optional<DeviceId> device;
  if (packet.wants_device != 0) {
    device = packet.device;
    devices_.look();
  }
  client.wanted[spec.name] = {packet.header.request, spec, device};
  if (coordinator_.connected()) ask_for(client, spec);  // otherwise after it has returned
}

void TensorRequests::ask_for(const AttachedClient& client, const TensorSpec& spec) {
  v1::RegisterTensors& batch =
      *registrations_[{client.job_id, client.rank}].mutable_register_tensors();
  batch.set_job_id(client.job_id);
  batch.set_rank(client.rank);
  *batch.add_tensors() = spec_to(spec);
  if (batch.tensors_size() >= kTensorsPerMessageMax) flush();
}

void TensorRequests::remove(const AttachedClient& client, const UnregisterPacket& packet) {
  if (!coordinator_.connected()) return;  // it is reported when the job is announced
  v1::UnregisterTensors& batch =
      *unregistrations_[{client.job_id, client.rank}].mutable_unregister_tensors();
  batch.set_job_id(client.job_id);
  batch.set_rank(client.rank);
  packet.viewed != 0 ? batch.add_viewed(packet.tensor) : batch.add_tensors(packet.tensor);
  if (batch.tensors_size() + batch.viewed_size() >= kTensorsPerMessageMax) flush();
}

void TensorRequests::flush() {
  for (const auto& [key, message] : unregistrations_) coordinator_.send(message);
  unregistrations_.clear();  // now, because the next line may run out of memory
  for (const auto& [key, message] : registrations_) coordinator_.send(message);
  registrations_.clear();
}

void TensorRequests::clear() {
  registrations_.clear();
  unregistrations_.clear();
}

void TensorRequests::repeat(uint64_t job) {
  for (const AttachedClient& client : clients_.all()) {
    if (client.job_id != job || client.state != AttachedClient::State::kRunning) continue;
    for (const auto& [name, wanted] : client.wanted) ask_for(client, wanted.spec);
  }
  flush();
}

void TensorRequests::refuse_all(const Status& why) {
  for (AttachedClient& client : clients_.all()) {
    for (const auto& [name, wanted] : client.wanted) client.refuse_tensor(wanted.request, why);
    client.wanted.clear();
  }
}

}  // namespace gradbus
