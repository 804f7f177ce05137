#include "server/scheduling/plan.h"

#include <algorithm>
#include <numeric>

#include "common/errors.h"

namespace gradbus::scheduling {
namespace {

Status broken(const Plan& plan, const std::string& what) {
  return error("X001", "schedule " + plan.schedule + " " + what);
}

bool same_pieces(const Operation& a, const Operation& b) {
  return std::equal(a.pieces.begin(), a.pieces.end(), b.pieces.begin(), b.pieces.end(),
                    [](const Piece& one, const Piece& other) {
                      return one.layer == other.layer && one.begin == other.begin &&
                             one.bytes == other.bytes;
                    });
}

Status check_pieces(const Workload& workload, const Plan& plan, const Operation& operation) {
  if (operation.pieces.empty()) return broken(plan, "has an operation without bytes");
  for (const Piece& piece : operation.pieces) {
    if (piece.layer >= workload.layers.size())
      return broken(plan, "names layer " + std::to_string(piece.layer) + ", which does not exist");
    const uint64_t bytes = workload.layers[piece.layer].bytes();
    if (piece.bytes == 0 || piece.begin > bytes || piece.bytes > bytes - piece.begin)
      return broken(
          plan, "sends bytes that layer " + workload.layers[piece.layer].name + " does not have");
  }
  return {};
}

// An all-gather follows its own reduce-scatter; nothing else follows anything.
Status check_order(const Plan& plan, const Operation& operation) {
  const bool gathers = operation.kind == CollectiveKind::kAllGather;
  const auto count = static_cast<int32_t>(plan.operations.size());
  if (!gathers) {
    const bool first = operation.after < 0 && operation.start == Start::kGradients;
    return first ? Status() : broken(plan, "lets a reduction wait for an operation");
  }
  if (operation.start != Start::kBackwardEnd || operation.after < 0 || operation.after >= count)
    return broken(plan, "has an all-gather that follows nothing");
  const Operation& before = plan.operations[static_cast<size_t>(operation.after)];
  if (before.kind != CollectiveKind::kReduceScatter || !same_pieces(before, operation))
    return broken(plan, "gathers other bytes than it has scattered");
  return {};
}

Status check_operation(const Workload& workload, const Plan& plan, const Operation& operation) {
  GRADBUS_RETURN_IF_ERROR(check_pieces(workload, plan, operation));
  GRADBUS_RETURN_IF_ERROR(check_order(plan, operation));
  if (plan.in_flight_bytes_max > 0 && operation.bytes() > plan.in_flight_bytes_max)
    return broken(plan, "has an operation of " + std::to_string(operation.bytes()) +
                            " bytes, above its budget of " +
                            std::to_string(plan.in_flight_bytes_max));
  return {};
}

// Pieces, sorted, tile the gradients without a gap. `leaves_out` is a kind that does not count.
Status check_cover(const Workload& workload, const Plan& plan, CollectiveKind leaves_out) {
  std::vector<std::vector<Piece>> of_layer(workload.layers.size());
  for (const Operation& operation : plan.operations)
    if (operation.kind != leaves_out)
      for (const Piece& piece : operation.pieces) of_layer[piece.layer].push_back(piece);
  for (size_t layer = 0; layer < of_layer.size(); ++layer) {
    std::vector<Piece>& pieces = of_layer[layer];
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    uint64_t end = 0;
    for (const Piece& piece : pieces) {
      if (piece.begin != end) break;
      end += piece.bytes;
    }
    const uint64_t sent =
        std::accumulate(pieces.begin(), pieces.end(), uint64_t{0},
                        [](uint64_t sum, const Piece& piece) { return sum + piece.bytes; });
    const uint64_t bytes = workload.layers[layer].bytes();
    if (end != bytes || sent != bytes)
      return broken(plan, "does not send each byte of layer " + workload.layers[layer].name +
                              " exactly once");
  }
  return {};
}

}  // namespace

uint64_t Operation::bytes() const {
  return std::accumulate(pieces.begin(), pieces.end(), uint64_t{0},
                         [](uint64_t sum, const Piece& piece) { return sum + piece.bytes; });
}

Status validate(const Workload& workload, const Plan& plan) {
  if (plan.chunk_bytes > 0 && plan.in_flight_bytes_max > 0)
    return broken(plan, "has both a budget and operations that can be interrupted");
  for (const Operation& operation : plan.operations)
    GRADBUS_RETURN_IF_ERROR(check_operation(workload, plan, operation));
  GRADBUS_RETURN_IF_ERROR(check_cover(workload, plan, CollectiveKind::kAllGather));
  return check_cover(workload, plan, CollectiveKind::kReduceScatter);
}

}  // namespace gradbus::scheduling
