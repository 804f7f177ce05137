// gradbus-bench-rank: one rank of `gradbus bench`, which starts it. Rank 0 prints the rows.
//
// Uses the library as a trainer does: through gradbus.h. Exit status 1 when something was wrong.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/bench/benchmark.h"
#include "cli/bench/json_file.h"
#include "cli/bench/measure.h"
#include "cli/bench/models.h"
#include "cli/bench/row.h"
#include "cli/bench/work.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

int fail(int rank, const Status& status, int exit_code) {
  std::fprintf(stderr, "gradbus bench: rank %d: %s\n", rank, status.message().c_str());
  return exit_code;
}

// The rows so far; a file is whole after each of them.
class Report {
 public:
  explicit Report(const BenchWork& work) : work_(work) { say(column_titles()); }

  // A row that was printed is in the file: who reads it may end us at once.
  Status add(const BenchRow& row) {
    rows_.push_back(row_json(work_, row));
    const Status stored = work_.json == kStandardOutput ? Status() : store();
    say(row_text(work_, row));
    if (const std::string text = device_text(row); !text.empty()) say(text);
    return stored;
  }
  // All rows are there.
  Status finish() const { return work_.json == kStandardOutput ? store() : Status(); }

 private:
  Status store() const { return write_json(work_.json, rows_.dump(1) + "\n"); }

  void say(const std::string& line) const {
    std::FILE* const stream = table_stream(work_.json);
    std::fprintf(stream, "%s\n", line.c_str());
    std::fflush(stream);
  }

  const BenchWork& work_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

class RankProgram {
 public:
  RankProgram(gradbus_session* session, const BenchWork& work)
      : session_(session),
        work_(work),
        cpu_{ProcessCpu::children_of(getppid()), ProcessCpu::children_with("--shard", getppid())} {
    if (is_first()) report_.emplace(work_);
  }

  Status run_all() {
    GRADBUS_RETURN_IF_ERROR(work_.model.empty() ? run_sizes() : run_model());
    return is_first() ? report_->finish() : Status();
  }

  uint64_t wrong() const { return wrong_; }
  bool is_first() const { return gradbus_rank(session_) == 0; }

 private:
  Status run_sizes() {
    for (const uint64_t size : work_.sizes) {
      const Extent extent =
          extent_of(*work_.collective, size, dtype_bytes(work_.dtype), work_.ranks);
      GRADBUS_RETURN_IF_ERROR(run_one(make_benchmark(session_, work_, extent), extent));
    }
    return {};
  }

  Status run_model() {
    Result<Model> model = load_model(work_.model);
    if (!model.ok()) return model.status();
    const uint64_t fuse_elements = work_.fuse_bytes / dtype_bytes(work_.dtype);
    const uint64_t elements = model.value().elements();
    return run_one(
        make_concurrent_all_reduces(session_, work_, backward_order(model.value(), fuse_elements)),
        {elements, elements, elements * dtype_bytes(work_.dtype)});
  }

  Status run_one(Result<std::unique_ptr<Benchmark>> benchmark, const Extent& extent) {
    if (!benchmark.ok()) return benchmark.status();
    Result<Measured> measured =
        measure(session_, work_, *benchmark.value(), extent.bytes, is_first() ? &cpu_ : nullptr);
    if (!measured.ok()) return measured.status();
    wrong_ += measured.value().wrong.value_or(0);
    if (!is_first()) return {};
    BenchRow row = row_of(measured.value(), extent);
    if (const auto seconds = benchmark.value()->copy_seconds()) add_device(row, *seconds);
    return report_->add(row);
  }

  // Bytes per nanosecond are GB/s.
  void add_device(BenchRow& row, double copy_seconds) const {
    const auto bytes = static_cast<double>(row.extent.bytes);
    row.copy_gbs = 2 * bytes / copy_seconds / 1e9;
    if (gradbus_local_size(session_) == work_.ranks && row.times.best > 0)
      row.memory_gbs = 2 * work_.ranks * bytes / row.times.best / 1e3;
  }

  BenchRow row_of(const Measured& measured, const Extent& extent) const {
    BenchRow row = make_row(work_, extent, times_of(measured.microseconds));
    row.batch = measured.batch;
    row.wrong = measured.wrong;
    const uint64_t operations = measured.microseconds.size() * static_cast<uint64_t>(row.batch);
    row.cpu_s_per_gb = cpu_s_per_gb(measured.cpu_seconds, operations, extent.bytes);
    if (cpu_.shards.processes() > 0)
      row.shards_cpu_s_per_gb = cpu_s_per_gb(measured.shards_cpu_seconds, operations, extent.bytes);
    return row;
  }

  gradbus_session* session_;
  const BenchWork& work_;
  BenchCpu cpu_;
  std::optional<Report> report_;
  uint64_t wrong_ = 0;
};

// All ranks know of wrong elements; one says it.
int run_in(gradbus_session* session, const BenchWork& work) {
  const int rank = gradbus_rank(session);
  RankProgram program(session, work);
  if (const Status status = program.run_all(); !status.ok()) return fail(rank, status, kExitFailed);
  // Nobody leaves while another still measures.
  if (const Status last = to_status(gradbus_barrier(session)); !last.ok())
    return fail(rank, last, kExitFailed);
  if (program.wrong() == 0 || rank != 0) return 0;
  return fail(rank,
              error("D610", std::to_string(program.wrong()) + " elements of " +
                                std::string(work.collective->name) + " were wrong, see #wrong"),
              kExitFailed);
}

int run_main(int argc, char** argv) {
  CLI::App app("One rank of a benchmark; gradbus bench starts it.", "gradbus-bench-rank");
  BenchOptions options;
  app.add_option("collective", options.collective)->required();
  declare_bench_options(app, options);
  CLI11_PARSE(app, argc, argv);
  gradbus_session* session = nullptr;
  if (const Status status = to_status(gradbus_init(nullptr, &session)); !status.ok())
    return fail(-1, status, kExitFailed);
  Result<BenchWork> work = make_work(options, gradbus_size(session));
  const int exit_code = work.ok() ? run_in(session, work.value())
                                  : fail(gradbus_rank(session), work.status(), kExitUsage);
  gradbus_shutdown(session);
  return exit_code;
}

}  // namespace
}  // namespace gradbus

int main(int argc, char** argv) { return gradbus::run_main(argc, argv); }
