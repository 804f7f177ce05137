// The kinds of operation, one maker each; operations/make.cc chooses. Requests have been checked.
#pragma once

#include <cstring>
#include <memory>

#include "client_lib/src/operation.h"

namespace gradbus {

// reduction.cc: all-reduce, reduce, reduce-scatter. One round in this rank's buffer.
std::shared_ptr<Operation> make_reduction(Session& session, const OperationRequest& request);
// streamed.cc: the same, of large tensors on one node, through a ring of slots.
std::shared_ptr<Operation> make_streamed(Session& session, const OperationRequest& request);
bool may_stream(const Session& session, const OperationRequest& request);
// What of the result of a reduction this rank gets.
struct ResultPart {
  uint64_t first = 0;
  uint64_t elements = 0;
};
ResultPart result_part(const Session& session, const TensorSpec& spec);
// adasum.cc: an all-gather of whole gradients, combined alike on every rank.
std::shared_ptr<Operation> make_adasum(Session& session, const OperationRequest& request);
// from_root.cc: broadcast, scatter. One round; the root alone writes.
std::shared_ptr<Operation> make_from_root(Session& session, const OperationRequest& request);
// gathering.cc: all-gather, gather. A round of lengths, then one of blocks.
std::shared_ptr<Operation> make_gathering(Session& session, const OperationRequest& request);
// all_to_all.cc: likewise, with a length for every pair of ranks.
std::shared_ptr<Operation> make_all_to_all(Session& session, const OperationRequest& request);

// Copies `bytes`; null pointers are fine when there is nothing to copy.
inline void copy_bytes(void* target, const void* source, uint64_t bytes) {
  if (bytes > 0) std::memcpy(target, source, bytes);
}

}  // namespace gradbus
