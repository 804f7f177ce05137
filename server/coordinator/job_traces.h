// Traces of jobs that tools record: the agents that take part, the offsets of their clocks, and the
// spans that no tool has fetched yet.
//
// Part of Coordinator; pure. A trace stores at most kTraceBytesMax of spans, and ends when no tool
// fetches them for kTakenWithin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "gradbus/v1/coordinator.pb.h"
#include "server/coordinator/jobs/coordinator_job.h"
#include "server/coordinator/jobs/outbox.h"
#include "server/status/timelines.h"

namespace gradbus {

inline constexpr size_t kTracesMax = 8;
inline constexpr size_t kTraceBytesMax = 64 << 20;
inline constexpr Nanos kTakenWithin = 10 * kSecond;

class JobTraces {
 public:
  explicit JobTraces(Outbox* outbox) : outbox_(outbox) {}

  // A tool's call for a trace that exists, or that begins with this call. `job`: the running one of
  // this name, or null. A job that ends stays until its spans are taken. GB-C506 when there are too
  // many traces, or another tool records this job. The caller was checked.
  v1::TraceReply take(const v1::TraceRequest& request, const CoordinatorJob* job, Nanos now);
  bool has(const std::string& job) const { return traces_.contains(job); }
  // The user who began the trace of a job that has not started.
  uint32_t uid(const std::string& job) const { return traces_.at(job).uid; }

  // A job has just started; its trace begins if one waits for it. Call it in the same event.
  void started(const CoordinatorJob& job, Nanos now);
  // False for records of a job that is not traced, or of an agent that is not in it. (Those that
  // crossed the end of a trace are accepted.)
  bool receive(uint64_t agent, const v1::TraceRecords& records, Nanos now);
  // The last spans of jobs, for the web page. They stay when the trace has ended.
  Timelines& timelines() { return timelines_; }
  // Renews traces on the agents, and ends those that nobody takes. `ended`: whether the job of this
  // id has ended.
  template <typename Ended>
  void tick(Nanos now, Ended ended) {
    for (auto& [name, trace] : traces_)
      if (trace.job_id != 0 && trace.ended_at == 0 && ended(trace.job_id)) trace.ended_at = now;
    renew(now);
  }

 private:
  struct Agent {
    uint64_t id = 0;
    std::string name;
    int64_t offset = 0;
    uint64_t error = 0;  // half of the fastest round trip; 0: none yet
  };
  struct Trace {
    uint32_t uid = 0;
    uint64_t tool = 0;
    Nanos start = 0;      // of the recording; 0: the job has not started
    uint64_t job_id = 0;  // 0: the job has not started
    std::vector<Agent> agents = {};
    std::vector<v1::TraceRecords> parts = {};
    size_t bytes = 0;  // of the parts
    uint64_t dropped = 0;
    Nanos taken = 0;
    Nanos renewed = 0;
    Nanos ended_at = 0;  // 0: the job runs
  };
  void begin(Trace& trace, const CoordinatorJob& job, Nanos now);
  void tell(const Trace& trace, bool on, Nanos now);
  void renew(Nanos now);

  Outbox* const outbox_;
  std::map<std::string, Trace> traces_;  // by the job's name
  Timelines timelines_;
};

}  // namespace gradbus
