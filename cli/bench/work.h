// What the user asked of `gradbus bench`, checked before anything is started; and the same as the
// words that each rank's program reads. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/collectives.h"
#include "common/dtype.h"
#include "common/reduce_op.h"
#include "common/status.h"

namespace CLI {
class App;
}

namespace gradbus {

// As typed; what stays the same on every rank. Sizes are texts because "256M" is one.
struct BenchOptions {
  std::string collective;
  std::string bytes_min = "4";
  std::string bytes_max = "64M";
  uint64_t factor = 4;
  int iterations = 20;
  int warmup = 5;
  bool check = false;
  bool private_buffers = false;
  std::string dtype = "f32";
  std::string op = "sum";
  int root = 0;
  std::string model;  // "": sizes
  std::string fuse;   // "": every tensor by itself
  std::string codec;  // "": dense
  std::string mode;   // "": sync; else one of shards
  std::string memory = "host";
  std::string json;  // "": no file; json_file.h
  uint64_t seed = 1;
};

// The options above, for the command and for the rank's program.
void declare_bench_options(CLI::App& app, BenchOptions& options);
// The words of a command line that give the same options again.
std::vector<std::string> bench_words(const BenchOptions& options);

// What is to be done, with numbers.
struct BenchWork {
  const BenchCollective* collective = nullptr;
  int ranks = 1;
  std::vector<uint64_t> sizes;  // bytes, ascending; not for a model
  int iterations = 0;
  int warmup = 0;
  bool check = false;
  bool registered = false;  // tensors in shared memory, in place; else private buffers
  bool on_device = false;   // ... in memory of GPUs
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // kNone when the collective has none
  int root = 0;
  std::string model;
  uint64_t fuse_bytes = 0;
  std::string codec;
  std::string mode;
  std::string json;
  uint64_t seed = 0;
};

// Errors: F100 names the option, its value and what is allowed.
Result<BenchWork> make_work(const BenchOptions& options, int ranks);

// "4", "64K", "256M", "1G" (1024 based, also KiB, MB, ...), at most 1 TiB. F100 naming `option`.
Result<uint64_t> parse_bytes(const std::string& text, const char* option);

// `first`, then times `factor` up to `last`; 0 is followed by 1. The list has 64 entries at most.
std::vector<uint64_t> sizes_between(uint64_t first, uint64_t last, uint64_t factor);

}  // namespace gradbus
