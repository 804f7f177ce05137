// `gradbus bench codec`: each codec alone on one core, on a gradient that no cache holds, beside
// what the memory of this machine allows; or its kernels on a GPU (cuda_bench.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradbus {

inline constexpr char kProcessor[] = "cpu";

struct CodecBenchOptions {
  std::vector<std::string> specs;     // none: every codec with its defaults
  std::string elements = "67108864";  // 64 Mi: 256 MiB
  std::string device = kProcessor;    // or cuda, cuda:1
  int iterations = 5;                 // the best counts
  std::string json;                   // json_file.h
  bool list = false;                  // only print what there is
};

// The exit code.
int bench_codecs(const CodecBenchOptions& options);

}  // namespace gradbus
