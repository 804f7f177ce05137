// The commands of the conductor to the engine that concern every job, and the engine's answers. The
// commands of a role are beside it: worker_agent/job/worker_commands.h and
// server/parameter_server/shard_commands.h.
//
// For each command type there is a function carry_out(Engine&, Command). The engine's thread calls
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "data_plane/job_traffic.h"
#include "data_plane/mailbox.h"

namespace gradbus {

class Engine;

// The engine has removed the tensor. No frame here or in flight uses its memory any more.
struct TensorGone {
  uint64_t job = 0;
  uint32_t tensor = 0;
};

// No rank of the job uses the tensor any more. `gone` gets the answer; null: no answer is needed.
struct RemoveTensor {
  uint64_t job = 0;
  uint32_t tensor = 0;
  std::shared_ptr<Mailbox<TensorGone>> gone;
};

// A shard of the job is lost for good, and the job continues with the copies of its chunks.
struct LoseShard {
  uint64_t job = 0;
  uint32_t shard = 0;
};

// The coordinator is gone, or has returned after that: it reports lost shards by `at`.
struct ExpectReports {
  Nanos at = 0;
};

// New shards of the job, after the known ones. The listed lost ones may be new or known.
struct AddShards {
  uint64_t job = 0;
  std::vector<std::string> addresses;
  std::vector<uint32_t> lost;
};

struct EndJob {
  uint64_t job = 0;
};

// The answer to MeasurePath. The figures are 0 when the measurement failed.
struct PathAnswer {
  uint64_t probe = 0;
  double alpha_us = 0;
  double beta_ns = 0;
};

struct MeasurePath {
  uint64_t probe = 0;
  std::string address;
  std::shared_ptr<Mailbox<PathAnswer>> answer;
};

void carry_out(Engine& engine, const RemoveTensor& command);
void carry_out(Engine& engine, const LoseShard& command);
void carry_out(Engine& engine, const ExpectReports& command);
void carry_out(Engine& engine, const AddShards& command);
void carry_out(Engine& engine, const EndJob& command);
void carry_out(Engine& engine, MeasurePath command);

// The job cannot continue: a link broke, or a client wrote invalid data.
struct JobBroken {
  uint64_t job = 0;
  Status status;
};

}  // namespace gradbus
