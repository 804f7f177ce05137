#include "server/scheduling/job/job_question.h"

#include <cmath>

#include "common/errors.h"
#include "common/text/json_text.h"
#include "compression/spec.h"
#include "server/scheduling/job/codec_plans.h"
#include "server/scheduling/tuner/bayesian_search.h"

namespace gradbus::scheduling {
namespace {

using Json = nlohmann::json;

constexpr char kWhere[] = "the question of a job";
constexpr double kStartupUsMax = 1e8;
constexpr double kByteNsMax = 1e6;
constexpr double kCostMax = 1e15;

Status bad(const std::string& what) {
  return error("F102", std::string(kWhere) + ": " + what,
               "use ranks, agents and coordinator of one version");
}

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string text_of(const Json& object, const char* key) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

bool read_number(const Json& object, const char* key, double least, double most, double* number) {
  const Json* value = member(object, key);
  if (value == nullptr || !value->is_number()) return false;
  *number = value->get<double>();
  return *number >= least && *number <= most;
}

Status read_cost(const Json& question, const char* key, LinearCost* cost) {
  const Json* given = member(question, key);
  if (given == nullptr || !read_number(*given, "startup_us", 0, kStartupUsMax, &cost->startup_us) ||
      !read_number(*given, "byte_ns", 0, kByteNsMax, &cost->byte_ns))
    return bad("\"" + std::string(key) + "\" has no times \"startup_us\" and \"byte_ns\"");
  return {};
}

// Two nodes in a ring: an all-reduce of m bytes takes 2 alpha + m * beta, as it was measured.
Network network_of(const LinearCost& dense) {
  return {.nodes = 2,
          .alpha_us = dense.startup_us / 2,
          .beta_ns = dense.byte_ns,
          .gamma_ns = 0,
          .algorithm = Algorithm::kRing};
}

// A codec whose all-reduce takes what was measured. What the payload does not take on the network,
// the codec takes before it.
Status read_codec(const Json& question, const LinearCost& dense, CodecCost* codec) {
  if (member(question, "codec") == nullptr) return {};
  LinearCost all;
  GRADBUS_RETURN_IF_ERROR(read_cost(question, "codec", &all));
  const Json* given = member(question, "codec");
  const std::string name = text_of(*given, "name");
  const Result<CodecCost> known = parse_codec_cost(name.substr(0, name.find(':')));
  if (known.ok()) *codec = known.value();
  if (!known.ok()) codec->name = name.substr(0, 40);
  if (!known.ok()) codec->ratio = 0.5;
  if (codec->is_dense()) return {};
  double ratio = 0;
  if (read_number(*given, "ratio", 1e-6, 2, &ratio)) codec->ratio = ratio;
  codec->carrier = codec->carrier == Carrier::kAllReduce ? Carrier::kAllReduce : Carrier::kOwners;
  if (codec->carrier == Carrier::kOwners) {
    codec->ratio = std::min(codec->ratio, dense.byte_ns > 0 ? all.byte_ns / dense.byte_ns : 1.0);
  }
  const double left_us = std::max(0.0, all.startup_us - dense.startup_us);
  const double left_ns = std::max(0.0, all.byte_ns - codec->ratio * dense.byte_ns);
  const double bytes_coded = codec->carrier == Carrier::kOwners ? 1.5 : 1;  // 2 nodes: x + x / 2
  codec->encode = {left_us, left_ns / bytes_coded};
  codec->decode = {};
  return {};
}

Result<Groups> read_groups(const Json& now, const Workload& workload) {
  const Json* given = member(now, "groups");
  if (given == nullptr || !given->is_array()) return bad("\"now\" has no list \"groups\"");
  Groups groups;
  std::vector<bool> seen(workload.layers.size());
  size_t left = gradient_order(workload).size();
  for (const Json& list : *given) {
    groups.emplace_back();
    if (!list.is_array() || list.empty()) return bad("a group of \"now\" has no layers");
    for (const Json& number : list) {
      if (!number.is_number_unsigned() || number.get<uint64_t>() >= seen.size() ||
          seen[number.get<size_t>()] || workload.layers[number.get<size_t>()].elements == 0)
        return bad("the groups of \"now\" do not hold each layer once");
      seen[number.get<size_t>()] = true;
      groups.back().push_back(number.get<uint32_t>());
      --left;
    }
  }
  if (left != 0) return bad("the groups of \"now\" do not hold each layer once");
  return groups;
}

Result<double> now_us(const Json& question, const Workload& workload, const Cluster& cluster) {
  const Json* now = member(question, "now");
  if (now == nullptr) return 0.0;
  const std::optional<JobWait> wait = job_wait_of(text_of(*now, "waits"));
  if (!wait) return bad("\"now\" does not say where ranks wait");
  Result<Groups> groups = read_groups(*now, workload);
  if (!groups.ok()) return groups.status();
  JobPlan plan{.schedule = "now", .wait = *wait, .groups = groups.take()};
  const bool split_codec = *wait != JobWait::kSplit || can_split(cluster.codec);
  plan.compressed.assign(plan.groups.size(), !cluster.codec.is_dense() && split_codec);
  predict(workload, cluster, &plan);
  return plan.step_us;
}

Json json_of(const JobPlan& plan) {
  return {{"schedule", plan.schedule},
          {"waits", job_wait_name(plan.wait)},
          {"groups", plan.groups},
          {"compressed", plan.compressed},
          {"us", plan.step_us},
          {"exposed_us", plan.exposed_us},
          {"why", plan.why}};
}

Status read_workload(const Json& question, Workload* workload, LinearCost* dense) {
  const Json* layers = member(question, "workload");
  if (layers == nullptr) return bad("there is no \"workload\"");
  Result<Workload> read = parse_workload(layers->dump(), kWhere);
  if (!read.ok()) return read.status();
  *workload = read.take();
  if (workload->layers.size() > kJobLayersMax)
    return bad("there are more than " + std::to_string(kJobLayersMax) + " layers");
  return read_cost(question, "network", dense);
}

Result<std::string> answer_plan(const Json& question) {
  Workload workload;
  LinearCost dense;
  GRADBUS_RETURN_IF_ERROR(read_workload(question, &workload, &dense));
  Cluster cluster;
  cluster.network = network_of(dense);
  GRADBUS_RETURN_IF_ERROR(read_codec(question, dense, &cluster.codec));
  JobOptions options;
  const Json* forward = member(question, "forward");
  options.forward = forward != nullptr && forward->is_boolean() && forward->get<bool>();
  double groups = 0;
  if (member(question, "groups") != nullptr &&
      !read_number(question, "groups", 0, kJobLayersMax, &groups))
    return error("F100", "groups must be 1 to " + std::to_string(kJobLayersMax),
                 "leave it out to have them searched");
  options.groups = static_cast<uint32_t>(groups);
  const Result<JobPlan> plan = plan_job(text_of(question, "schedule"), workload, cluster, options);
  if (!plan.ok()) return plan.status();
  const Result<double> now = now_us(question, workload, cluster);
  if (!now.ok()) return now.status();
  Json found = json_of(plan.value());
  found["now_us"] = now.value();
  found["others"] = Json::array();
  for (const JobPlan& other : plan.value().others) found["others"].push_back(json_of(other));
  return found.dump();
}

Status read_codecs(const Json& question, const LinearCost& dense, std::vector<CodecCost>* codecs) {
  const Json* given = member(question, "codecs");
  if (given == nullptr || !given->is_array() || given->empty() || given->size() > kJobCodecsMax)
    return bad("\"codecs\" is no list of 1 to " + std::to_string(kJobCodecsMax));
  for (const Json& one : *given) {
    codecs->emplace_back();
    GRADBUS_RETURN_IF_ERROR(read_codec({{"codec", one}}, dense, &codecs->back()));
  }
  return {};
}

Status read_compressible(const Json& now, std::vector<bool>* compressible) {
  const Json* dense = member(now, "dense");
  if (dense == nullptr) return {};
  if (!dense->is_array()) return bad("\"dense\" is no list");
  for (const Json& number : *dense) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() >= compressible->size())
      return bad("\"dense\" names a group that there is not");
    (*compressible)[number.get<size_t>()] = false;
  }
  return {};
}

Result<std::string> answer_codecs(const Json& question) {
  Workload workload;
  LinearCost dense;
  GRADBUS_RETURN_IF_ERROR(read_workload(question, &workload, &dense));
  Cluster cluster;
  cluster.network = network_of(dense);
  GRADBUS_RETURN_IF_ERROR(read_codecs(question, dense, &cluster.more_codecs));
  const Json* now = member(question, "now");
  const std::optional<JobWait> wait =
      now == nullptr ? std::nullopt : job_wait_of(text_of(*now, "waits"));
  if (!wait) return bad("\"now\" does not say where ranks wait");
  Result<Groups> groups = read_groups(*now, workload);
  if (!groups.ok()) return groups.status();
  const JobPlan plan{.schedule = "now", .wait = *wait, .groups = groups.take()};
  std::vector<bool> compressible(plan.groups.size(), true);
  GRADBUS_RETURN_IF_ERROR(read_compressible(*now, &compressible));
  const CodecPlans found = plan_codecs(workload, cluster, plan, compressible);
  Json answer = {{"dense_us", found.dense_us}, {"plans", Json::array()}};
  for (const CodecPlan& one : found.plans)
    answer["plans"].push_back({{"codecs", one.codecs}, {"us", one.step_us}});
  return answer.dump();
}

Result<std::string> check_codecs(const Json& question) {
  const Json* given = member(question, "codecs");
  if (given == nullptr || !given->is_array() || given->empty() || given->size() > kJobCodecsMax)
    return bad("\"codecs\" is no list of 1 to " + std::to_string(kJobCodecsMax));
  for (const Json& one : *given) {
    if (!one.is_string()) return bad("a codec is no text");
    const Result<CompressionSpec> codec = parse_compression(one.get<std::string>());
    if (!codec.ok()) return codec.status();
  }
  return std::string("{}");
}

Status read_dimensions(const Json& question, std::vector<Dimension>* dimensions) {
  const Json* given = member(question, "dimensions");
  if (given == nullptr || !given->is_array() || given->empty() ||
      given->size() > kSearchDimensionsMax)
    return bad("\"dimensions\" is no list of 1 to " + std::to_string(kSearchDimensionsMax));
  for (const Json& one : *given) {
    Dimension dimension;
    dimension.name = text_of(one, "name").substr(0, 40);
    const Json* log = member(one, "log");
    dimension.logarithmic = log != nullptr && log->is_boolean() && log->get<bool>();
    const double least = dimension.logarithmic ? 1e-9 : -kCostMax;
    if (!read_number(one, "min", least, kCostMax, &dimension.min) ||
        !read_number(one, "max", least, kCostMax, &dimension.max) ||
        !(dimension.min < dimension.max))
      return bad("a dimension needs \"min\" below \"max\", above 0 if it is logarithmic");
    dimensions->push_back(std::move(dimension));
  }
  return {};
}

Status tell_measured(const Json& question, BayesianSearch* search) {
  const Json* measured = member(question, "measured");
  if (measured == nullptr) return {};
  if (!measured->is_array() || measured->size() > kSearchPointsMax)
    return bad("\"measured\" is no list of at most " + std::to_string(kSearchPointsMax));
  for (const Json& one : *measured) {
    const Json* given = member(one, "point");
    double cost = 0;
    if (given == nullptr || !given->is_array() || !read_number(one, "cost", 0, kCostMax, &cost))
      return bad("a measured point has no \"point\" and \"cost\"");
    std::vector<double> point;
    for (const Json& number : *given) {
      if (!number.is_number()) return bad("a measured point has no numbers");
      point.push_back(number.get<double>());
    }
    search->ask();  // so that a replay draws the same random numbers
    GRADBUS_RETURN_IF_ERROR(search->tell(point, cost));
  }
  return {};
}

Result<std::string> answer_point(const Json& question) {
  std::vector<Dimension> dimensions;
  GRADBUS_RETURN_IF_ERROR(read_dimensions(question, &dimensions));
  BayesianSearch search(dimensions, {});
  GRADBUS_RETURN_IF_ERROR(tell_measured(question, &search));
  return Json{{"point", search.ask()}}.dump();
}

}  // namespace

Result<std::string> answer_job(std::string_view text) {
  const Json question = parse_json(text);
  if (question.is_discarded() || !question.is_object())
    return bad("this is no JSON object, or it is cut short");
  const std::string want = text_of(question, "want");
  if (want == "plan") return answer_plan(question);
  if (want == "codecs") return answer_codecs(question);
  if (want == "check_codecs") return check_codecs(question);
  if (want == "point") return answer_point(question);
  return bad("it wants neither a plan, nor codecs, nor a point");
}

}  // namespace gradbus::scheduling
