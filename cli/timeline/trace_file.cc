#include "cli/timeline/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "common/errors.h"
#include "proto/trace.h"

namespace gradbus {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kWaitRow = 2;
constexpr int64_t kFirstTensorRow = 16;

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

}  // namespace

Result<std::unique_ptr<TraceFile>> TraceFile::create(const std::string& path,
                                                     const std::string& job, uint64_t bytes_max) {
  FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr)
    return error("F114", "the trace " + path + " cannot be written: " + std::strerror(errno));
  std::unique_ptr<TraceFile> trace(new TraceFile(path, job, bytes_max, file));
  std::fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file);
  return trace;
}

void TraceFile::add(const v1::TraceReply& reply) {
  if (reply.start_ns() != 0) base_ns_ = static_cast<int64_t>(reply.start_ns());
  dropped_by_coordinator_ = std::max(dropped_by_coordinator_, reply.dropped());
  for (const v1::TracedAgent& agent : reply.agents())
    clock_error_ns_ = std::max(clock_error_ns_, agent.error_ns());
  for (const v1::TraceRecords& part : reply.parts()) add_part(reply, part);
}

void TraceFile::add_part(const v1::TraceReply& reply, const v1::TraceRecords& part) {
  if (part.agent_index() >= static_cast<uint32_t>(reply.agents_size())) return;
  const int64_t offset = reply.agents(static_cast<int>(part.agent_index())).offset_ns();
  for (const v1::TracedTensor& tensor : part.tensors()) tensors_[tensor.id()] = tensor.name();
  for (const v1::TraceTrack& track : part.tracks()) {
    uint64_t& dropped = dropped_by_track_[{part.agent_index(), track.rank()}];
    dropped = std::max(dropped, track.dropped());
    if (track.spans_size() == 0) continue;
    Process& process = process_of(reply, part.agent_index(), track.rank());
    for (const v1::TraceSpan& span : track.spans()) add_span(process, span, offset);
  }
}

TraceFile::Process& TraceFile::process_of(const v1::TraceReply& reply, uint32_t agent,
                                          int32_t rank) {
  const int64_t pid = rank >= 0 ? rank : kAgentPids + agent;
  const auto [at, is_new] = processes_.try_emplace(pid, Process{pid});
  if (!is_new) return at->second;
  const std::string& node = reply.agents(static_cast<int>(agent)).name();
  const std::string name =
      rank >= 0 ? "rank " + std::to_string(rank) + " (" + node + ")" : "agent " + node;
  write(
      Json{{"ph", "M"}, {"name", "process_name"}, {"pid", pid}, {"args", {{"name", name}}}}.dump());
  write(Json{
      {"ph", "M"}, {"name", "process_sort_index"}, {"pid", pid}, {"args", {{"sort_index", pid}}}}
            .dump());
  return at->second;
}

void TraceFile::name_row(const Process& process, int64_t row, const std::string& name) {
  write(Json{{"ph", "M"},
             {"name", "thread_name"},
             {"pid", process.pid},
             {"tid", row},
             {"args", {{"name", name}}}}
            .dump());
  write(Json{{"ph", "M"},
             {"name", "thread_sort_index"},
             {"pid", process.pid},
             {"tid", row},
             {"args", {{"sort_index", row}}}}
            .dump());
}

// Phases nest, so they share a row; so do a rank's waits, which follow each other.
TraceFile::Row TraceFile::make_row(const Process& process, const v1::TraceSpan& span) {
  const auto kind = static_cast<TraceKind>(span.kind());
  const std::string shown(trace_kind_name(kind));
  const bool own_row = kind != TraceKind::kPhase && kind != TraceKind::kWait;
  const auto known = tensors_.find(span.tensor());
  const std::string tensor = span.tensor() == 0        ? span.name()
                             : known == tensors_.end() ? "tensor " + std::to_string(span.tensor())
                                                       : known->second;
  const int64_t number =
      !own_row ? (kind == TraceKind::kPhase ? kPhaseRow : kWaitRow)
               : kFirstTensorRow + int64_t{span.tensor()} * (kTraceKindMax + 1) + span.kind();
  name_row(process, number,
           own_row ? tensor + ": " + shown : (kind == TraceKind::kPhase ? "training" : "waits"));
  Json event{{"ph", "X"},
             {"pid", process.pid},
             {"tid", number},
             {"cat", process.pid < kAgentPids ? "rank" : "agent"},
             {"name", kind == TraceKind::kPhase ? span.name() : shown}};
  if (kind != TraceKind::kPhase) event["args"] = {{"tensor", tensor}};
  std::string text = event.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.pop_back();  // the object goes on with the numbers of a span
  if (kind != TraceKind::kPhase) text.pop_back();
  return {std::move(text), kind == TraceKind::kPhase};
}

// The words of a row are made once; of each span only the numbers are written.
void TraceFile::add_span(Process& process, const v1::TraceSpan& span, int64_t offset) {
  if (bytes_ > bytes_max_) {
    ++dropped_here_;
    return;
  }
  // Nothing begins before the trace, but for the error of a clock; viewers drop negative times.
  const int64_t begin = std::max(static_cast<int64_t>(span.begin_ns()) - offset, base_ns_);
  const RowKey key{span.tensor(), span.kind(), span.tensor() == 0 ? span.name() : ""};
  auto row = process.rows.find(key);
  if (row == process.rows.end()) row = process.rows.emplace(key, make_row(process, span)).first;
  char numbers[200];
  const double ts = microseconds(begin - base_ns_);
  const double length = microseconds(static_cast<int64_t>(span.end_ns() - span.begin_ns()));
  if (row->second.is_phase) {
    std::snprintf(numbers, sizeof(numbers), ",\"ts\":%.3f,\"dur\":%.3f}", ts, length);
  } else {
    std::snprintf(numbers, sizeof(numbers),
                  ",\"round\":%llu,\"bytes\":%llu,\"busy_us\":%.3f},\"ts\":%.3f,\"dur\":%.3f}",
                  static_cast<unsigned long long>(span.round()),
                  static_cast<unsigned long long>(span.bytes()),
                  span.busy_ns() == 0 ? length : microseconds(static_cast<int64_t>(span.busy_ns())),
                  ts, length);
  }
  write(row->second.words + numbers);
  ++spans_;
}

void TraceFile::write(const std::string& event) {
  if (bytes_ != 0) failed_ |= std::fputs(",\n", file_.get()) < 0;
  failed_ |= std::fwrite(event.data(), 1, event.size(), file_.get()) != event.size();
  bytes_ += event.size() + 2;
}

uint64_t TraceFile::dropped() const {
  uint64_t dropped = dropped_by_coordinator_ + dropped_here_;
  for (const auto& [track, count] : dropped_by_track_) dropped += count;
  return dropped;
}

Status TraceFile::finish() {
  const Json other{{"job", job_},
                   {"spans", spans_},
                   {"dropped", dropped()},
                   {"clock_error_us", microseconds(static_cast<int64_t>(clock_error_ns_))}};
  failed_ |= std::fprintf(file_.get(), "\n],\"otherData\":%s}\n", other.dump().c_str()) < 0;
  failed_ |= std::fflush(file_.get()) != 0;
  if (!failed_) return {};
  return error("F114", "the trace " + path_ + " could not be written to its end",
               "check the space that is left on its disk");
}

}  // namespace gradbus
