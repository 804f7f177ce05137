// The trace of a launched job: `gradbus trace`, as a child of `gradbus run`. It waits for the job's
// start and ends with the job. Main thread only.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "cli/process/child.h"
#include "common/status.h"

namespace gradbus {

class TraceRecorder {
 public:
  // `netns_fd`: the namespace of the coordinator; -1: ours. GB-H201 when it cannot be started.
  static Result<std::unique_ptr<TraceRecorder>> start(const std::string& file,
                                                      const std::string& job,
                                                      const std::string& coordinator,
                                                      const std::string& token_file, int netns_fd);
  ~TraceRecorder() { finish(); }
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  // Waits until the file is complete, for a few seconds at most. Call it before the daemons stop.
  void finish();

 private:
  explicit TraceRecorder(Child child) : child_(std::move(child)) {}

  Child child_;
};

}  // namespace gradbus
