// Writes a trace in the Trace Event Format (JSON), which https://ui.perfetto.dev and
// chrome://tracing open. Each rank and each agent is a process there, each kind of span of each
// tensor a row. Times of all nodes are those of the coordinator's clock.
//
// Spans are written as they come, so memory does not grow with the trace. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "common/status.h"
#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

inline constexpr int64_t kAgentPids = 1'000'000;  // above every rank
inline constexpr int64_t kPhaseRow = 1;
inline constexpr uint64_t kTraceFileBytesMax = uint64_t{1} << 30;

class TraceFile {
 public:
  // GB-F114 when the file cannot be written. More than `bytes_max` bytes of spans are dropped.
  static Result<std::unique_ptr<TraceFile>> create(const std::string& path, const std::string& job,
                                                   uint64_t bytes_max = kTraceFileBytesMax);

  void add(const v1::TraceReply& reply);
  // Ends the file. GB-F114 when something could not be written.
  Status finish();

  uint64_t spans() const { return spans_; }
  // Spans that found no room: in a rank, an agent, the coordinator or this file.
  uint64_t dropped() const;

 private:
  struct Closer {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  // Tensor and kind, and the name of a span without a tensor.
  using RowKey = std::tuple<uint32_t, uint32_t, std::string>;
  struct Row {
    std::string words;  // of an event, without its numbers
    bool is_phase = false;
  };
  struct Process {
    int64_t pid = 0;
    std::map<RowKey, Row> rows = {};
  };
  TraceFile(std::string path, std::string job, uint64_t bytes_max, FILE* file)
      : path_(std::move(path)), job_(std::move(job)), bytes_max_(bytes_max), file_(file) {}
  void add_part(const v1::TraceReply& reply, const v1::TraceRecords& part);
  void add_span(Process& process, const v1::TraceSpan& span, int64_t offset);
  Process& process_of(const v1::TraceReply& reply, uint32_t agent, int32_t rank);
  Row make_row(const Process& process, const v1::TraceSpan& span);
  void name_row(const Process& process, int64_t row, const std::string& name);
  void write(const std::string& event);

  const std::string path_;
  const std::string job_;
  const uint64_t bytes_max_;
  std::unique_ptr<FILE, Closer> file_;
  std::map<int64_t, Process> processes_;
  std::map<uint32_t, std::string> tensors_;                            // by id
  std::map<std::pair<uint32_t, int32_t>, uint64_t> dropped_by_track_;  // (agent, rank)
  uint64_t dropped_by_coordinator_ = 0;
  uint64_t dropped_here_ = 0;
  uint64_t clock_error_ns_ = 0;
  uint64_t spans_ = 0;
  uint64_t bytes_ = 0;
  int64_t base_ns_ = 0;  // time zero of the file; 0: not known yet
  bool failed_ = false;
};

}  // namespace gradbus
