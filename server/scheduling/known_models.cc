#include "server/scheduling/known_models.h"

#include <charconv>

#include "common/edit_distance.h"
#include "common/errors.h"

namespace gradbus::scheduling {
namespace {

constexpr std::string_view kTitle = "layer,elements,mflop";

std::string_view take_until(std::string_view& text, char end) {
  const size_t length = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return part;
}

template <typename Number>
bool parse_number(std::string_view text, Number* number) {
  const char* const last = text.data() + text.size();
  const auto [end, problem] = std::from_chars(text.data(), last, *number);
  return problem == std::errc() && end == last;
}

// A gradient is computed for the inputs and for the weights, so backward is two forward passes.
bool read_line(std::string_view line, Layer* layer) {
  layer->name = take_until(line, ',');
  double mflop = 0;
  if (!parse_number(take_until(line, ','), &layer->elements) || !parse_number(line, &mflop))
    return false;
  layer->forward_us = mflop;
  layer->backward_us = 2 * mflop;
  return !layer->name.empty();
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const KnownModel& model : known_models()) names.emplace_back(model.name);
  return names;
}

Status unknown_model(const std::string& name) {
  const std::string nearest = closest_name(name, model_names());
  std::string known;
  for (const std::string& model : model_names()) known += (known.empty() ? "" : ", ") + model;
  return error("F100",
               "there is no model \"" + name.substr(0, 40) + "\"" +
                   (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"),
               "take one of: " + known + "; or give --profile-file");
}

}  // namespace

Result<Workload> parse_model_table(const std::string& name, std::string_view table,
                                   double compute_ms) {
  if (take_until(table, '\n') != kTitle)
    return error("X001",
                 "the table of model " + name + " does not begin with " + std::string(kTitle));
  Workload workload{name, {}, {}};
  while (!table.empty()) {
    const std::string_view line = take_until(table, '\n');
    Layer layer;
    if (!read_line(line, &layer))
      return error("X001", "the table of model " + name + " holds \"" + std::string(line) + "\"");
    workload.layers.push_back(std::move(layer));
  }
  workload.backward_order = reverse_order(workload.layers.size());
  scale_compute(workload, compute_ms * 1000);
  return workload;
}

Result<Workload> known_workload(const std::string& name) {
  for (const KnownModel& model : known_models())
    if (model.name == name) return parse_model_table(name, model.table, model.compute_ms);
  return unknown_model(name);
}

}  // namespace gradbus::scheduling
