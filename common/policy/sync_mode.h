// When the gradients of a tensor are exchanged, by whom they are summed and whose result a step
// gets: "sync", "delayed:k=2", "ps:async,optimizer=adam". What a person writes;
// docs/concepts/modes.md.
//
//   sync       the mean of this step
//   delayed    the mean of k steps before, while this step's is under way: k = 1 is DADT's
//              asynchronous all-reduce, any k Pipe-SGD (Li et al. 2018). All ranks get the same.
//              dc corrects it for what the parameters have changed since (DC-ASGD, Zheng et al.
//              2017); who steps the parameters does that, as below
//   ps:sync    the mean of this step, summed by parameter-server shards instead of the agents
//   ps:async   shards hold the parameters: each node's gradient is a step of its own there, and the
//              node gets the parameters as they are then (Dean et al. 2012, Downpour SGD)
//   ps:ssp     the same, but no node gets more than max_staleness steps ahead of the slowest
//              (Ho et al. 2013, stale synchronous parallel)
//   ps:quorum  a step closes with the mean of the first q nodes' gradients, or of those that are
//              there when its deadline ends; a late one counts in the step that is open then
//
// Four more exchange parameters instead; whoever owns the parameters makes their steps (PyTorch:
// client_lib/python/gradbus/torch), out of synchronous all-reduces:
//
//   averaging  the mean of a snapshot now and then, in the background (Bagua's and DADT's)
//   localsgd   the mean after H steps of each rank's own (Stich 2019)
//   gossip     the mean with one partner or two, in the background: random pairs (AD-PSGD, Lian et
//              al. 2018) or both neighbours on a ring (D-PSGD, Lian et al. 2017)
//   diloco     an outer optimizer's step on what H steps changed (Douillard et al. 2023), by
//              fragments and overlapped as in Streaming DiLoCo (Douillard et al. 2025)
//
// Pure; control plane only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace gradbus {

inline constexpr uint32_t kDelayMax = 64;  // of steps; each costs the tensor's memory again
inline constexpr uint32_t kPeriodStepsMax = 1'000'000;
inline constexpr uint32_t kPeriodMsMax = 3'600'000;  // an hour
inline constexpr uint32_t kFragmentsMax = 1024;      // each is at least one message
inline constexpr uint32_t kSeedMax = UINT32_MAX;
inline constexpr uint32_t kPlacementsMax = 10'000;  // of a job, with the one of its start
inline constexpr uint32_t kLayoutMax = UINT16_MAX;
inline constexpr uint32_t kReplicasMax = 2;  // proto/placement.h: a chunk's shard and its backup

// What shards do with gradients (modes that hold parameters). Formulas: torch.optim of these names;
// lamb: You et al. 2020, algorithm 2, whose layers are tensors.
struct ServerOptimizer {
  enum class Kind : uint8_t { kSgd = 1, kAdam = 2, kAdamW = 3, kAdagrad = 4, kLamb = 5 };
  Kind kind = Kind::kSgd;
  double learning_rate = 0.01;  // until one comes with a push
  double momentum = 0;          // sgd
  double dampening = 0;         // sgd
  bool nesterov = false;        // sgd
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999;  // adam, adamw, lamb
  double epsilon = 1e-8;              // all but sgd; of lamb 1e-6 where nothing is said

  // Of as many elements as the parameters: what it remembers.
  uint32_t vectors() const {
    switch (kind) {
      case Kind::kSgd: return momentum == 0 ? 0 : 1;
      case Kind::kAdagrad: return 1;
      default: return 2;
    }
  }
  // A step on an element depends on all others, so no part of a tensor is stepped on by itself.
  bool steps_on_whole_tensors() const { return kind == Kind::kLamb; }
};

struct SyncMode {
  enum class Kind : uint8_t {
    kSync = 1,
    kDelayed = 2,
    kAveraging = 3,
    kLocalSgd = 4,
    kDiloco = 5,
    kServerSync = 6,
    kServerAsync = 7,
    kServerSsp = 8,
    kServerQuorum = 9,
    kGossip = 10,
  };
  enum class Topology : uint8_t { kRandom = 1, kRing = 2 };
  Kind kind = Kind::kSync;
  uint32_t delay = 0;    // kDelayed: steps
  double dc = 0;         // kDelayed: lambda of the compensation; 0: none
  double dc_decay = -1;  // kDelayed: of the mean square that lambda is divided by; below 0: by none
  // averaging has one of both; H of localsgd and diloco; every of gossip.
  uint32_t period_steps = 0;
  uint32_t period_ms = 0;
  // localsgd and diloco: the outer optimizer, parts that take turns, steps an exchange may take.
  double outer_lr = 0;
  double outer_momentum = 0;
  uint32_t fragments = 0;
  uint32_t overlap = 0;
  // gossip: who averages with whom, the order of random pairs, and whether a step waits for its
  // partners' step before.
  Topology topology = Topology::kRandom;
  uint32_t seed = 0;
  bool wait = false;
  uint32_t max_staleness = 0;  // kServerSsp: steps
  uint32_t quorum = 0;         // kServerQuorum: nodes
  uint32_t deadline_ms = 0;    // kServerQuorum: of a step, from its first gradient on; 0: none
  ServerOptimizer optimizer;   // of shards that hold parameters
  bool restore = false;        // they begin from a snapshot of an earlier run
  uint32_t replicas = 0;       // as said; 0: not said, settled_replicas()
  uint32_t layout = 0;         // hash of the parameters in the tensor; 0: not said
  uint32_t placement = 0;      // counts how often the tensor has moved with the job's shards
  std::string canonical = "sync";

  // Parameters are exchanged and gradients are not.
  bool is_local() const {
    return (kind >= Kind::kAveraging && kind <= Kind::kDiloco) || kind == Kind::kGossip;
  }
  bool on_shards() const { return kind >= Kind::kServerSync && kind <= Kind::kServerQuorum; }
  // Shards hold the parameters and step on them; else what they send back is the reduced gradient.
  bool holds_parameters() const { return on_shards() && kind != Kind::kServerSync; }
  // That ranks may read and write (proto/frame.h, kReadOptimizerState): the parameters, the
  // optimizer's vectors, counts of steps.
  uint32_t optimizer_state_parts() const {
    return holds_parameters() ? 2 + optimizer.vectors() : 0;
  }
  // All of a tensor's chunks are on one shard then. Dense gradients only.
  bool keeps_tensors_whole() const {
    return holds_parameters() && optimizer.steps_on_whole_tensors();
  }
  // Shards that have a push before it is answered, in a job of `shards`. Where nothing is said: 2
  // of parameters, if there are two shards; 1 of sums, with which nothing is lost that outlives the
  // step.
  uint32_t settled_replicas(uint32_t shards) const;
};

// Of a mode in its canonical form: who reduces.
constexpr bool is_on_shards(std::string_view canonical) { return canonical.starts_with("ps:"); }

// The same mode of a tensor that has not moved.
std::string without_placement(std::string_view canonical);

// "" is sync. GB-O911 names the part that is wrong and what was probably meant.
Result<SyncMode> parse_mode(std::string_view text);

}  // namespace gradbus
