// The kinds of compressed units, one file each; unit.h describes them. The caller has checked that
// the codec supports the plan.
#pragma once

#include <memory>

#include "worker_agent/compressed/unit.h"

namespace gradbus {

class DeviceUnits;

std::unique_ptr<CompressedUnit> make_gathered_unit(UnitPlan plan);
std::unique_ptr<CompressedUnit> make_device_unit(UnitPlan plan, DeviceUnits& device);
std::unique_ptr<CompressedUnit> make_held_unit(UnitPlan plan);
std::unique_ptr<CompressedUnit> make_owned_unit(UnitPlan plan);
std::unique_ptr<CompressedUnit> make_pushed_unit(UnitPlan plan);
std::unique_ptr<CompressedUnit> make_summed_unit(UnitPlan plan);
std::unique_ptr<CompressedUnit> make_merged_unit(UnitPlan plan);

// codec.check(); the error names the agent.
Status check_payload(const Codec& codec, std::span<const std::byte> payload, size_t count,
                     uint32_t agent);

}  // namespace gradbus
