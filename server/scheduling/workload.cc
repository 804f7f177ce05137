#include "server/scheduling/workload.h"

#include <algorithm>
#include <numeric>

#include "common/dtype.h"
#include "common/errors.h"
#include "common/text/json_text.h"

namespace gradbus::scheduling {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "see docs/how-to/plan-a-cluster.md for the format";

template <typename Value>
double sum_of(const Workload& workload, Value value) {
  double sum = 0;
  for (const Layer& layer : workload.layers) sum += value(layer);
  return sum;
}

Status bad_profile(const std::string& where, const std::string& what) {
  return error("F102", where + ": " + what, kFormat);
}

// 0: there is no such dtype.
uint32_t bytes_of_dtype(const std::string& name) {
  for (uint32_t number = 1; is_dtype(number); ++number) {
    const auto dtype = static_cast<DType>(number);
    if (dtype_name(dtype) == name) return static_cast<uint32_t>(dtype_bytes(dtype));
  }
  return 0;
}

bool read_time(const Json& object, const char* key, double* us) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_number()) return false;
  *us = value->get<double>();
  return *us >= 0 && *us <= kLayerTimeUsMax;
}

// What is wrong with it, "" for nothing.
std::string read_layer(const Json& object, Layer* layer) {
  if (!object.is_object()) return "is no object";
  const auto elements = object.find("elements");
  if (elements == object.end() || !elements->is_number_unsigned())
    return "has no whole number \"elements\"";
  layer->elements = elements->get<uint64_t>();
  const auto name = object.find("name");
  if (name != object.end() && name->is_string()) layer->name = name->get<std::string>();
  const auto dtype = object.find("dtype");
  if (dtype != object.end())
    layer->element_bytes = dtype->is_string() ? bytes_of_dtype(dtype->get<std::string>()) : 0;
  if (layer->element_bytes == 0) return "has an unknown \"dtype\"";
  if (layer->elements > kLayerBytesMax / layer->element_bytes) return "is larger than 4 TiB";
  if (!read_time(object, "forward_us", &layer->forward_us)) return "has no time \"forward_us\"";
  if (!read_time(object, "backward_us", &layer->backward_us)) return "has no time \"backward_us\"";
  return "";
}

bool is_permutation(const std::vector<uint32_t>& order) {
  std::vector<uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != i) return false;
  return true;
}

Status read_order(const Json& document, const std::string& where, Workload* workload) {
  workload->backward_order = reverse_order(workload->layers.size());
  const auto order = document.find("backward_order");
  if (order == document.end()) return {};
  std::vector<uint32_t> given;
  if (order->is_array())
    for (const Json& number : *order)
      given.push_back(number.is_number_unsigned() ? number.get<uint32_t>() : UINT32_MAX);
  if (given.size() != workload->layers.size() || !is_permutation(given))
    return bad_profile(where, "\"backward_order\" does not name each layer's index once");
  workload->backward_order = std::move(given);
  return {};
}

Status read_layers(const Json& document, const std::string& where, Workload* workload) {
  const auto layers = document.find("layers");
  if (layers == document.end() || !layers->is_array() || layers->empty())
    return bad_profile(where, "there is no list \"layers\"");
  if (layers->size() > kLayersMax)
    return bad_profile(where, "there are more than " + std::to_string(kLayersMax) + " layers");
  for (const Json& object : *layers) {
    Layer layer;
    const std::string problem = read_layer(object, &layer);
    if (!problem.empty())
      return bad_profile(where, "layer " + std::to_string(workload->layers.size()) + " " + problem);
    workload->layers.push_back(std::move(layer));
  }
  return {};
}

}  // namespace

uint64_t Workload::bytes() const {
  return std::accumulate(layers.begin(), layers.end(), uint64_t{0},
                         [](uint64_t sum, const Layer& layer) { return sum + layer.bytes(); });
}

double Workload::forward_us() const {
  return sum_of(*this, [](const Layer& layer) { return layer.forward_us; });
}

double Workload::backward_us() const {
  return sum_of(*this, [](const Layer& layer) { return layer.backward_us; });
}

std::vector<uint32_t> reverse_order(size_t layers) {
  std::vector<uint32_t> order(layers);
  std::iota(order.rbegin(), order.rend(), 0u);
  return order;
}

std::vector<double> ready_us(const Workload& workload) {
  std::vector<double> ready(workload.layers.size());
  double now = 0;
  for (const uint32_t layer : workload.backward_order)
    ready[layer] = now += workload.layers[layer].backward_us;
  return ready;
}

void scale_compute(Workload& workload, double compute_us) {
  const double factor = compute_us / workload.compute_us();
  for (Layer& layer : workload.layers) {
    layer.forward_us *= factor;
    layer.backward_us *= factor;
  }
}

Result<Workload> parse_workload(std::string_view json, const std::string& where) {
  const Json document = parse_json(json);
  if (document.is_discarded()) return bad_profile(where, "this is no JSON, or it is cut short");
  if (!document.is_object()) return bad_profile(where, "this is no JSON object");
  Workload workload;
  const auto name = document.find("name");
  workload.name =
      name != document.end() && name->is_string() ? name->get<std::string>() : "profile";
  GRADBUS_RETURN_IF_ERROR(read_layers(document, where, &workload));
  GRADBUS_RETURN_IF_ERROR(read_order(document, where, &workload));
  if (!(workload.compute_us() > 0)) return bad_profile(where, "its layers compute nothing");
  return workload;
}

}  // namespace gradbus::scheduling
