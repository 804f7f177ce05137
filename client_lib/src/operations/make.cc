// From a request to an operation: what is checked before anybody hears of it, and which kind it is.
#include <numeric>

#include "client_lib/src/operations/kinds.h"
#include "common/errors.h"

namespace gradbus {
namespace {

bool is_adasum(const OperationRequest& request) {
  return request.spec.kind == CollectiveKind::kAllReduce && request.spec.op == ReduceOp::kAdasum &&
         is_float(request.spec.dtype);
}

std::string who(const Session& session, const OperationRequest& request) {
  return std::string(collective_name(request.spec.kind)) + " of tensor \"" +
         request.spec.name.substr(0, kTensorNameBytesMax) + "\" on rank " +
         std::to_string(session.rank());
}

Status missing_buffer(const Session& session, const OperationRequest& request, const char* which) {
  return error("O900", who(session, request) + ": argument " + which + " is NULL");
}

struct BufferUse {
  bool in;
  bool out;
};

// What this rank must bring.
BufferUse buffer_use(const Session& session, const OperationRequest& request) {
  const bool root = session.rank() == request.spec.root;
  switch (request.spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter: return {true, true};
    case CollectiveKind::kReduce: return {true, root};
    case CollectiveKind::kBroadcast: return {false, true};
    case CollectiveKind::kScatter: return {root, true};
    default: return {true, false};
  }
}

// A reduce-scatter of few rows may have nothing for this rank.
uint64_t elements_out(const Session& session, const TensorSpec& spec) {
  return reduces(spec.kind) ? result_part(session, spec).elements : spec.count;
}

Status check_buffers(const Session& session, const OperationRequest& request) {
  const BufferUse use = buffer_use(session, request);
  if (use.in && request.in == nullptr && request.spec.count > 0)
    return missing_buffer(session, request, "in");
  if (use.out && request.out == nullptr && elements_out(session, request.spec) > 0)
    return missing_buffer(session, request, "out");
  return {};
}

Status check_send_counts(const Session& session, const OperationRequest& request) {
  uint64_t total = 0;
  for (const uint64_t count : request.send_counts) {
    if (count > request.spec.count) break;  // `total` stays too small, and cannot wrap
    total += count;
  }
  if (request.send_counts.size() == session.world_size() && total == request.spec.count) return {};
  return error("O900", who(session, request) + ": send_counts do not add up to the " +
                           std::to_string(request.spec.count) + " elements of the tensor");
}

Status check_spec_of(const Session& session, const OperationRequest& request) {
  if (!is_adasum(request)) return check_spec(request.spec, session.world_size());
  if (!request.spec.compression.empty())
    return error("O910", who(session, request) + ": Adasum cannot be compressed",
                 "leave out the compression");
  TensorSpec spec = request.spec;
  spec.op = ReduceOp::kSum;  // no tensor of this op is ever registered
  return check_spec(spec, session.world_size());
}

}  // namespace

Status check_request(const Session& session, const OperationRequest& request) {
  GRADBUS_RETURN_IF_ERROR(check_spec_of(session, request));
  if (request.spec.prescale == 0 || request.spec.postscale == 0)
    return error("O900", who(session, request) + ": a scale factor is 0",
                 "leave it at 1, or fill the tensor with zeros");
  if (request.spec.kind == CollectiveKind::kAllToAll)
    GRADBUS_RETURN_IF_ERROR(check_send_counts(session, request));
  return check_buffers(session, request);
}

std::shared_ptr<Operation> make_operation(Session& session, const OperationRequest& request) {
  if (is_adasum(request)) return make_adasum(session, request);
  if (may_stream(session, request)) return make_streamed(session, request);
  switch (request.spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kReduceScatter: return make_reduction(session, request);
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter: return make_from_root(session, request);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather: return make_gathering(session, request);
    case CollectiveKind::kAllToAll: return make_all_to_all(session, request);
  }
  return nullptr;
}

}  // namespace gradbus
