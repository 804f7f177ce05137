#include "cli/bench/models.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "cli/bench/model_tables.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr std::string_view kTitle = "name,count";

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

bool parse_tensor(std::string_view line, ModelTensor* tensor) {
  const size_t comma = line.rfind(',');
  if (comma == std::string_view::npos) return false;
  tensor->name = line.substr(0, comma);
  const char* const last = line.data() + line.size();
  const auto [end, problem] = std::from_chars(line.data() + comma + 1, last, tensor->count);
  return problem == std::errc() && end == last && !tensor->name.empty();
}

}  // namespace

uint64_t Model::elements() const {
  return std::accumulate(
      tensors.begin(), tensors.end(), uint64_t{0},
      [](uint64_t sum, const ModelTensor& tensor) { return sum + tensor.count; });
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelTable& table : model_tables()) names.emplace_back(table.name);
  return names;
}

Result<Model> load_model(const std::string& name) {
  std::string known;
  for (const ModelTable& table : model_tables()) {
    if (table.name == name) return parse_model(name, table.text);
    known += (known.empty() ? "" : ", ") + std::string(table.name);
  }
  return error("F100", "gradbus bench: there is no model \"" + name.substr(0, 40) + "\"",
               "take one of: " + known);
}

Result<Model> parse_model(const std::string& name, std::string_view table) {
  Model model{name, {}};
  if (take_line(table) != kTitle)
    return error("X001",
                 "the table of model " + name + " does not begin with " + std::string(kTitle));
  while (!table.empty()) {
    const std::string_view line = take_line(table);
    ModelTensor tensor;
    if (!parse_tensor(line, &tensor))
      return error("X001", "the table of model " + name + " holds \"" + std::string(line) + "\"");
    model.tensors.push_back(std::move(tensor));
  }
  return model;
}

std::vector<uint64_t> backward_order(const Model& model, uint64_t fuse_elements) {
  std::vector<uint64_t> counts;
  for (auto tensor = model.tensors.rbegin(); tensor != model.tensors.rend(); ++tensor) {
    if (!counts.empty() && counts.back() + tensor->count <= fuse_elements) {
      counts.back() += tensor->count;
    } else {
      counts.push_back(tensor->count);
    }
  }
  return counts;
}

}  // namespace gradbus
