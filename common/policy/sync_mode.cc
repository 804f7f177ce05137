#include "common/policy/sync_mode.h"

#include <vector>

#include "common/errors.h"
#include "common/policy/spec_options.h"

namespace gradbus {
namespace {

using Kind = SyncMode::Kind;

struct ModeRow {
  Kind kind;
  std::string_view name;
  std::vector<SpecOption> options;
};

// A whole number from 1; "0" as its default says that it was not given.
SpecOption steps_option(std::string_view name, std::string_view default_text, double max,
                        std::string_view sentence) {
  return {.name = name,
          .default_text = default_text,
          .min = 1,
          .max = max,
          .sentence = sentence,
          .whole = true};
}

SpecOption replicas_option() {
  return steps_option("replicas", "0", kReplicasMax,
                      "shards that have a gradient before it is answered; 2: the job survives the "
                      "loss of one; default: 2 where two or more shards hold parameters, else 1");
}

SpecOption epsilon_option(std::string_view default_text) {
  return {.name = "eps",
          .default_text = default_text,
          .min = 0,
          .max = 1,
          .sentence = "of all but sgd; of lamb 1e-06 by default"};
}

SpecOption placement_option() {
  return steps_option("placement", "0", kPlacementsMax,
                      "set by Gradbus when the shards of a job have changed: the tensor moves to "
                      "those there are now");
}

SpecOption layout_option() {
  return steps_option("layout", "0", kLayoutMax,
                      "set by Gradbus: a hash of the names and shapes of the parameters in a "
                      "tensor; a snapshot with another one is refused");
}

// Front ends ask whether a mode names its optimizer and learning rate, also with their defaults.
std::vector<SpecOption> with_parameters(std::vector<SpecOption> options) {
  const std::vector<SpecOption> of_parameters = {
      {.name = "optimizer",
       .default_text = "sgd",
       .choices = {"sgd", "adam", "adamw", "adagrad", "lamb"},
       .sentence = "what shards do with a gradient",
       .kept = true},
      {.name = "lr",
       .default_text = "0.01",
       .min = 0,
       .max = 1e6,
       .sentence = "learning rate until one comes with a gradient",
       .kept = true},
      {.name = "momentum", .default_text = "0", .min = 0, .max = 1, .sentence = "of sgd"},
      {.name = "dampening", .default_text = "0", .min = 0, .max = 1, .sentence = "of sgd"},
      {.name = "nesterov",
       .default_text = "0",
       .min = 0,
       .max = 1,
       .sentence = "of sgd: 1 looks ahead",
       .whole = true},
      {.name = "weight_decay", .default_text = "0", .min = 0, .max = 1e6, .sentence = "of all"},
      {.name = "beta1",
       .default_text = "0.9",
       .min = 0,
       .max = 0.999999,
       .sentence = "of adam, adamw and lamb"},
      {.name = "beta2",
       .default_text = "0.999",
       .min = 0,
       .max = 0.999999,
       .sentence = "of adam, adamw, lamb"},
      epsilon_option("1e-08"),
      {.name = "restore",
       .default_text = "0",
       .min = 0,
       .max = 1,
       .sentence = "1: begin from the shards' snapshot of an earlier run of the job",
       .whole = true},
      replicas_option(),
      layout_option(),
      placement_option(),
  };
  options.insert(options.end(), of_parameters.begin(), of_parameters.end());
  return options;
}

std::vector<SpecOption> delayed_options() {
  return {steps_option("k", "1", kDelayMax, "steps between a gradient and its use"),
          {.name = "dc",
           .default_text = "0",
           .min = 0,
           .max = 1e6,
           .sentence = "lambda of the delay compensation; 0: none"},
          {.name = "dc_decay",
           .default_text = "-1",  // was not given
           .min = 0,
           .max = 0.9999,
           .sentence = "of the mean square of gradients that adapts dc"}};
}

std::vector<SpecOption> gossip_options() {
  return {{.name = "topology",
           .default_text = "random",
           .choices = {"random", "ring"},
           .sentence = "who averages with whom"},
          steps_option("every", "1", kPeriodStepsMax, "steps between two averages"),
          {.name = "seed",
           .default_text = "0",
           .min = 0,
           .max = kSeedMax,
           .sentence = "of the order of random pairs",
           .whole = true},
          {.name = "wait",
           .default_text = "0",
           .min = 0,
           .max = 1,
           .sentence = "1: a step waits for its partners' step before",
           .whole = true}};
}

const std::vector<ModeRow>& mode_rows() {
  static const std::vector<ModeRow> rows = {
      {Kind::kSync, "sync", {}},
      {Kind::kDelayed, "delayed", delayed_options()},
      {Kind::kAveraging,
       "averaging",
       {steps_option("every", "0", kPeriodStepsMax, "steps between two averages"),
        steps_option("every_ms", "0", kPeriodMsMax, "milliseconds between two averages")}},
      {Kind::kLocalSgd,
       "localsgd",
       {steps_option("H", "8", kPeriodStepsMax, "steps between two exchanges")}},
      {Kind::kDiloco,
       "diloco",
       {steps_option("H", "50", kPeriodStepsMax, "steps between two exchanges"),
        {.name = "outer_lr",
         .default_text = "0.7",
         .min = 0.001,
         .max = 100,
         .sentence = "learning rate of the outer optimizer"},
        {.name = "outer_momentum",
         .default_text = "0.9",
         .min = 0,
         .max = 0.9999,
         .sentence = "Nesterov momentum of the outer optimizer"},
        steps_option("fragments", "1", kFragmentsMax, "parts that are exchanged in turn"),
        {.name = "overlap",
         .default_text = "0",
         .min = 0,
         .max = kPeriodStepsMax,
         .sentence = "steps that an exchange may take in the background",
         .whole = true}}},
      {Kind::kGossip, "gossip", gossip_options()},
      {Kind::kServerSync, "ps:sync", {replicas_option(), placement_option()}},
      {Kind::kServerAsync, "ps:async", with_parameters({})},
      {Kind::kServerSsp, "ps:ssp",
       with_parameters({{.name = "max_staleness",
                         .default_text = "4",
                         .min = 0,
                         .max = 1e6,
                         .sentence = "steps that a node may be ahead of the slowest",
                         .whole = true}})},
      {Kind::kServerQuorum, "ps:quorum",
       with_parameters({{.name = "q",
                         .default_text = "1",
                         .min = 1,
                         .max = 4096,
                         .sentence = "nodes whose gradients close a step",
                         .whole = true},
                        {.name = "deadline_ms",
                         .default_text = "0",
                         .min = 0,
                         .max = 600'000,
                         .sentence = "closes a step with fewer; 0: none",
                         .whole = true}})},
  };
  return rows;
}

std::vector<std::string> mode_names() {
  std::vector<std::string> names;
  for (const ModeRow& row : mode_rows()) names.emplace_back(row.name);
  return names;
}

Status bad(std::string_view text, const std::string& what) {
  return error("O911", "mode \"" + std::string(text.substr(0, 200)) + "\": " + what);
}

ServerOptimizer read_optimizer(const SpecOptions& options) {
  const std::string& name = options.text("optimizer");
  ServerOptimizer optimizer;
  optimizer.kind = name == "adam"      ? ServerOptimizer::Kind::kAdam
                   : name == "adamw"   ? ServerOptimizer::Kind::kAdamW
                   : name == "adagrad" ? ServerOptimizer::Kind::kAdagrad
                   : name == "lamb"    ? ServerOptimizer::Kind::kLamb
                                       : ServerOptimizer::Kind::kSgd;
  optimizer.learning_rate = options.number("lr");
  optimizer.momentum = options.number("momentum");
  optimizer.dampening = options.number("dampening");
  optimizer.nesterov = options.number("nesterov") == 1;
  optimizer.weight_decay = options.number("weight_decay");
  optimizer.beta1 = options.number("beta1");
  optimizer.beta2 = options.number("beta2");
  optimizer.epsilon = options.number("eps");
  return optimizer;
}

uint32_t whole(const SpecOptions& options, std::string_view name) {
  return static_cast<uint32_t>(options.number(name));
}

Status take_averaging(const SpecOptions& options, SyncMode& mode) {
  mode.period_steps = whole(options, "every");
  mode.period_ms = whole(options, "every_ms");
  if ((mode.period_steps == 0) == (mode.period_ms == 0))
    return {Code::kInvalid, "give one of every=STEPS and every_ms=MILLISECONDS"};
  return {};
}

Status take_delayed(const SpecOptions& options, SyncMode& mode) {
  mode.delay = whole(options, "k");
  mode.dc = options.number("dc");
  mode.dc_decay = options.number("dc_decay");
  if (mode.dc_decay >= 0 && mode.dc == 0)
    return {Code::kInvalid, "option dc_decay adapts dc, which is not given; for example dc=2"};
  return {};
}

Status take_gossip(const SpecOptions& options, SyncMode& mode) {
  mode.topology =
      options.text("topology") == "ring" ? SyncMode::Topology::kRing : SyncMode::Topology::kRandom;
  mode.period_steps = whole(options, "every");
  mode.seed = whole(options, "seed");
  mode.wait = options.number("wait") == 1;
  return {};
}

// Local SGD is DiLoCo whose outer step is as long as the mean of what the ranks changed.
Status take_localsgd(const SpecOptions& options, SyncMode& mode) {
  mode.period_steps = whole(options, "H");
  mode.outer_lr = 1;
  mode.fragments = 1;
  return {};
}

Status take_diloco(const SpecOptions& options, SyncMode& mode) {
  mode.period_steps = whole(options, "H");
  mode.outer_lr = options.number("outer_lr");
  mode.outer_momentum = options.number("outer_momentum");
  mode.fragments = whole(options, "fragments");
  mode.overlap = whole(options, "overlap");
  if (mode.fragments > mode.period_steps)
    return {Code::kInvalid, "option fragments is above H, and one step begins one fragment"};
  if (uint64_t{mode.overlap} * mode.fragments >= mode.period_steps)
    return {Code::kInvalid, "option overlap must be below H / fragments"};
  return {};
}

Status take_options(const SpecOptions& options, SyncMode& mode) {
  switch (mode.kind) {
    case Kind::kSync: return {};
    case Kind::kDelayed: return take_delayed(options, mode);
    case Kind::kAveraging: return take_averaging(options, mode);
    case Kind::kLocalSgd: return take_localsgd(options, mode);
    case Kind::kDiloco: return take_diloco(options, mode);
    case Kind::kGossip: return take_gossip(options, mode);
    case Kind::kServerSync:
      mode.replicas = whole(options, "replicas");
      mode.placement = whole(options, "placement");
      return {};
    case Kind::kServerSsp: mode.max_staleness = whole(options, "max_staleness"); break;
    case Kind::kServerQuorum:
      mode.quorum = whole(options, "q");
      mode.deadline_ms = whole(options, "deadline_ms");
      break;
    case Kind::kServerAsync: break;
  }
  mode.optimizer = read_optimizer(options);
  mode.restore = options.number("restore") == 1;
  mode.layout = whole(options, "layout");
  mode.replicas = whole(options, "replicas");
  mode.placement = whole(options, "placement");
  return {};
}

// What is known of a mode, where the optimizer has another default than others.
std::vector<const SpecOption*> known_options(const ModeRow& row, std::string_view text) {
  static const SpecOption of_lamb = epsilon_option("1e-06");
  const bool lamb = ("," + std::string(text) + ",").find(",optimizer=lamb,") != std::string::npos;
  std::vector<const SpecOption*> known;
  for (const SpecOption& option : row.options)
    known.push_back(lamb && option.name == of_lamb.name ? &of_lamb : &option);
  return known;
}

// "ps" is half a name: "ps:async,lr=0.1" is mode "ps:async" with one option.
struct SplitText {
  std::string_view name;
  std::string_view options;
  char separator;
};
SplitText split_mode(std::string_view text) {
  const char separator = text.starts_with("ps:") ? ',' : ':';
  const size_t end = text.find(separator);
  const bool none = end == std::string_view::npos;
  return {text.substr(0, end), none ? std::string_view() : text.substr(end + 1), separator};
}

}  // namespace

uint32_t SyncMode::settled_replicas(uint32_t shards) const {
  if (replicas != 0) return replicas;
  return holds_parameters() && shards > 1 ? 2 : 1;
}

std::string without_placement(std::string_view canonical) {
  constexpr std::string_view kOption = ",placement=";
  const size_t at = canonical.find(kOption);
  if (at == std::string_view::npos) return std::string(canonical);
  const size_t end = canonical.find(',', at + 1);
  return std::string(canonical.substr(0, at)) +
         std::string(end == std::string_view::npos ? "" : canonical.substr(end));
}

Result<SyncMode> parse_mode(std::string_view text) {
  if (text.empty()) return SyncMode();
  const auto [name, rest, separator] = split_mode(text);
  for (const ModeRow& row : mode_rows()) {
    if (row.name != name) continue;
    const Result<ReadOptions> read = read_spec_options(rest, known_options(row, rest));
    if (!read.ok()) return bad(text, read.status().message());
    SyncMode mode;
    mode.kind = row.kind;
    if (const Status taken = take_options(read.value().options, mode); !taken.ok())
      return bad(text, taken.message());
    mode.canonical = name;
    if (!read.value().canonical.empty()) mode.canonical += separator + read.value().canonical;
    return mode;
  }
  return bad(text, "no mode \"" + std::string(name) + "\"" + did_you_mean(name, mode_names()));
}

}  // namespace gradbus
