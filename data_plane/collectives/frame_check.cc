#include "data_plane/collectives/frame_check.h"

#include "common/errors.h"

namespace gradbus {
namespace {

// The checksums were valid, so a fault of the network is unlikely: the two sides disagree.
constexpr std::string_view kNext = "check that all agents run one version: gradbus status";

}  // namespace

Status refuse_frame(const FrameHeader& header, std::string_view what) {
  const std::string where = "frame of tensor " + std::to_string(header.tensor) + ", round " +
                            std::to_string(header.step) + ", chunk " +
                            std::to_string(header.chunk) + ": ";
  return error("D601", where + std::string(what), kNext);
}

Status refuse_credit(uint64_t round, std::string_view why) {
  return error("D601", "credit for round " + std::to_string(round) + std::string(why), kNext);
}

Status expect_field(const FrameHeader& header, std::string_view field, uint64_t value,
                    uint64_t expected) {
  if (value == expected) return {};
  return refuse_frame(header, std::string(field) + " is " + std::to_string(value) + ", expected " +
                                  std::to_string(expected));
}

Status expect_below(const FrameHeader& header, std::string_view field, uint64_t value,
                    uint64_t limit) {
  if (value < limit) return {};
  return refuse_frame(header, std::string(field) + " is " + std::to_string(value) +
                                  ", expected less than " + std::to_string(limit));
}

Status check_signature(const CollectivePlan& plan, const FrameHeader& header) {
  const bool dense = plan.parameters && header.codec == static_cast<uint8_t>(CodecId::kDense);
  const CodecId codec = dense ? CodecId::kDense : plan.codec;
  const struct {
    std::string_view name;
    uint64_t value;
    uint64_t expected;
  } fields[] = {
      {"collective", header.collective, static_cast<uint64_t>(plan.kind)},
      {"codec", header.codec, static_cast<uint64_t>(codec)},
      {"dtype", header.dtype, static_cast<uint64_t>(plan.dtype)},
      {"op", header.op, static_cast<uint64_t>(plan.op)},
  };
  for (const auto& field : fields)
    GRADBUS_RETURN_IF_ERROR(expect_field(header, field.name, field.value, field.expected));
  return {};
}

}  // namespace gradbus
