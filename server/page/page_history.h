// The figures of jobs and links in the last ten minutes, for the charts of the web page. One thread
// at a time.
//
// Every two seconds a sample is made from the coordinator's status. The number of jobs, nodes and
// samples is bounded, so the memory is at most a few megabytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "common/clock.h"
#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

inline constexpr Nanos kSampleEvery = 2 * kSecond;
inline constexpr size_t kSamplesKept = 300;
inline constexpr size_t kJobsCharted = 32;  // the newest ones that run
inline constexpr size_t kNodesCharted = 64;

class PageHistory {
 public:
  // False: the last sample is younger than kSampleEvery, so nothing was added.
  bool add(const v1::StatusReply& reply, Nanos now);

  // {"every_ms": ..., "samples": [...]}, all samples, oldest first.
  std::string all_json() const;
  // The newest sample; "null" before the first one.
  std::string newest_json() const;

 private:
  struct JobSample {
    double operations_per_s = 0;   // of the busiest rank: all ranks take part in an operation
    double bytes_per_s = 0;        // of all ranks
    double waiting = 0;            // mean share of the time
    double late_s = 0;             // of the latest rank, since the start
    std::optional<double> ratio;   // of compression since the sample before
    std::optional<double> cosine;  // the worst tensor's fidelity
  };
  struct NodeSample {
    double sent_per_s = 0;
    double received_per_s = 0;
  };
  struct Sample {
    uint64_t number = 0;                    // from 1
    std::map<std::string, JobSample> jobs;  // by id
    std::map<std::string, NodeSample> nodes;
  };
  struct Totals {
    uint64_t pid = 0;
    uint64_t one = 0;    // sent, or uncompressed bytes
    uint64_t other = 0;  // received, or compressed bytes
  };
  using TotalsByName = std::map<std::string, Totals>;

  void add_jobs(const v1::StatusReply& reply, Sample& sample, TotalsByName& totals) const;
  void add_nodes(const v1::StatusReply& reply, double seconds, Sample& sample,
                 TotalsByName& totals) const;
  static std::string sample_json(const Sample& sample);

  std::deque<std::string> samples_;  // as JSON
  Nanos last_ = 0;
  uint64_t number_ = 0;
  TotalsByName job_totals_;   // of the last sample
  TotalsByName node_totals_;  // the same
};

}  // namespace gradbus
