// gradbus/schedules.h: what the schedules of PyTorch
// (client_lib/python/gradbus/torch/_schedules.py) mean for tensors that a C program registers
// itself. Pure, but for the environment; any thread.
#include "gradbus/schedules.h"

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "client_lib/src/capi/capi.h"
#include "proto/budget.h"

namespace gradbus::capi {
namespace {

constexpr uint32_t kScheduledTensorsMax = 1 << 20;  // so that every priority is in its range

enum class SendOrder : uint8_t { kAsReady, kByLayer, kSumsThenResults };

struct ScheduleRow {
  std::string_view name;
  SendOrder order;
  bool waits_in_forward;
};

constexpr ScheduleRow kScheduleRows[] = {
    {"wfbp", SendOrder::kAsReady, false},        {"ddp", SendOrder::kAsReady, false},
    {"fusion", SendOrder::kAsReady, false},      {"bytescheduler", SendOrder::kByLayer, true},
    {"dear", SendOrder::kSumsThenResults, true}, {"auto", SendOrder::kByLayer, true},
};

Status bad_schedule(std::string_view text, const std::string& why, const std::string& next) {
  return error("O900", "schedule \"" + std::string(text.substr(0, 60)) + "\" " + why, next);
}

Result<const ScheduleRow*> row_of(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  std::string names;
  for (const ScheduleRow& row : kScheduleRows) {
    if (row.name == name) return &row;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  const bool planned = name == "mg-wfbp" || name == "mergecomp";
  return bad_schedule(
      text,
      planned ? "lets a coordinator plan the tensors, which PyTorch alone asks for" : "is unknown",
      "take one of " + names);
}

// Bytes of "16M"; none if it is no number from 1 to 2^40.
std::optional<uint64_t> schedule_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMG";
  const size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  const size_t shift = unit == kUnits.npos ? 0 : 10 * (unit + 1);
  if (shift != 0) text.remove_suffix(1);
  uint64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return {};
  if (number == 0 || number > kBudgetBytesMax >> shift) return {};
  return number << shift;
}

// 0 without an option.
Result<uint64_t> budget_of(std::string_view text) {
  constexpr std::string_view kKey = "budget=";
  const size_t colon = text.find(':');
  if (colon == text.npos) return uint64_t{0};
  const std::string_view option = text.substr(colon + 1);
  const auto bytes = option.starts_with(kKey) ? schedule_bytes(option.substr(kKey.size()))
                                              : std::optional<uint64_t>();
  if (bytes) return *bytes;
  return bad_schedule(text, "has an option that there is not",
                      "budget=BYTES is the only one, from 1 to 2^40, such as budget=16M");
}

std::string_view asked_schedule(const char* schedule) {
  const char* text = schedule != nullptr ? schedule : std::getenv("GRADBUS_SCHEDULE");
  return text == nullptr || *text == '\0' ? std::string_view("auto") : std::string_view(text);
}

void set_priorities(SendOrder order, uint32_t number, uint32_t count, gradbus_tensor_spec& spec) {
  spec.priority = order == SendOrder::kByLayer ? count - 1 - number : 0;
  spec.result_priority = order == SendOrder::kSumsThenResults ? count - number : spec.priority;
}

Status check_scheduled_spec(const gradbus_tensor_spec* spec) {
  if (spec == nullptr) return missing("spec");
  const auto bytes = struct_bytes_of("gradbus_tensor_spec", spec);
  if (!bytes.ok()) return bytes.status();
  if (bytes.value() >= offsetof(gradbus_tensor_spec, budget_bytes) + sizeof(spec->budget_bytes))
    return {};
  return error("V801", "gradbus_tensor_spec has no priorities",
               "compile the program with the gradbus.h of this libgradbus");
}

Status apply_schedule(std::string_view text, uint32_t number, uint32_t count,
                      gradbus_tensor_spec* spec, int* waits_in_forward) {
  GRADBUS_RETURN_IF_ERROR(check_scheduled_spec(spec));
  if (number >= count || count > kScheduledTensorsMax)
    return error("O900",
                 "tensor " + std::to_string(number) + " of " + std::to_string(count) +
                     " has no place in a schedule",
                 "number up to 2^20 tensors from 0 to count - 1");
  const auto row = row_of(text);
  if (!row.ok()) return row.status();
  const auto budget = budget_of(text);
  if (!budget.ok()) return budget.status();
  set_priorities(row.value()->order, number, count, *spec);
  spec->budget_bytes = budget.value();
  if (waits_in_forward != nullptr) *waits_in_forward = row.value()->waits_in_forward ? 1 : 0;
  return {};
}

}  // namespace
}  // namespace gradbus::capi

gradbus_code gradbus_apply_schedule(const char* schedule, uint32_t number, uint32_t count,
                                    gradbus_tensor_spec* spec, int* waits_in_forward) {
  using namespace gradbus::capi;
  return guarded([&] {
    return apply_schedule(asked_schedule(schedule), number, count, spec, waits_in_forward);
  });
}
