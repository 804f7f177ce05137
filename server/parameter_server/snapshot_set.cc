#include "server/parameter_server/snapshot_set.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>

#include "common/crc32c.h"
#include "common/errors.h"
#include "common/log.h"
#include "server/parameter_server/server_optimizer.h"
#include "server/parameter_server/snapshot_writer.h"

namespace gradbus {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".snapshot";

Status damaged(const std::string& path, const std::string& what) {
  return error("F110", path + " " + what,
               "put an older one in its place (" + path +
                   ".previous, where there is one), or remove this run's directory to use the run "
                   "before it");
}

// Reads all bytes or fails. Returns false at the end of the file and on disk errors.
bool read_at(int fd, uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    offset += static_cast<uint64_t>(got);
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return true;
}

template <typename Struct>
bool read_struct(int fd, uint64_t offset, Struct& into) {
  const auto bytes = std::as_writable_bytes(std::span(&into, 1));
  return read_at(fd, offset, bytes) && into.crc == crc32c(bytes.first(offsetof(Struct, crc)));
}

struct Run {
  std::string path;
  uint64_t written_ns = 0;  // time of its newest file
  uint32_t files = 0;
  uint32_t shards = 0;  // number of shards
};

// A lost shard and its copy may both leave a file. The copy continued, so its file is used.
std::vector<fs::path> files_of_run(const fs::path& run) {
  std::vector<fs::path> files;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(run, problem)) {
    fs::path promoted = entry.path();
    promoted.replace_extension(".promoted.snapshot");
    if (entry.path().extension() == kSuffix && !fs::exists(promoted, problem))
      files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

// A file with a damaged header counts as the newest one, so that it is reported.
Run look_at_run(const std::string& path, std::span<const uint64_t> except_runs) {
  Run run{path};
  for (const fs::path& name : files_of_run(path)) {
    const Fd file(open(name.c_str(), O_RDONLY | O_CLOEXEC));
    SnapshotHeader header;
    if (!file.valid() || !read_struct(file.get(), 0, header)) return {path, UINT64_MAX, 1, 1};
    if (std::ranges::count(except_runs, header.run) > 0) return {path};
    run.written_ns = std::max(run.written_ns, header.written_ns);
    run.shards = std::max(run.shards, header.shards);
    ++run.files;
  }
  return run;
}

// Complete and incomplete runs.
std::vector<Run> all_runs(const std::string& directory, const std::string& job,
                          std::span<const uint64_t> except_runs) {
  std::vector<Run> runs;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(snapshot_job_directory(directory, job), problem))
    runs.push_back(look_at_run(entry.path(), except_runs));
  return runs;
}

// Another shard may remove it at the same time.
bool remove_run(const fs::path& run) {
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(run, problem)) {
    const std::string name = entry.path().filename();
    std::error_code gone;
    if (name.starts_with("shard-") && name.find(kSuffix) != name.npos)
      fs::remove(entry.path(), gone);
  }
  return fs::remove(run, problem);
}

// If a shard's file is missing, the run ended early or that shard was killed.
Result<std::string> newest_run(const std::string& directory, const std::string& job,
                               std::span<const uint64_t> except_runs) {
  Run newest;
  for (Run& run : all_runs(directory, job, except_runs)) {
    if (run.files < run.shards)
      spdlog::warn("{} has the files of only {} of {} shards and is ignored", run.path, run.files,
                   run.shards);
    if (run.files >= run.shards && run.written_ns > newest.written_ns) newest = std::move(run);
  }
  if (newest.path.empty())
    return error("F111", "no earlier run of job \"" + job +
                             "\" has left a snapshot of all its shards in " +
                             snapshot_job_directory(directory, job));
  return newest.path;
}

// Why no shard can have written the head of this piece; nullptr if it is valid.
const char* problem_of(const SnapshotPiece& piece, uint64_t left) {
  const bool terminated = std::memchr(piece.tensor, 0, sizeof(piece.tensor)) != nullptr;
  if (piece.magic != kSnapshotPieceMagic || !terminated) return "has a piece that is none";
  if (piece.vectors > kSnapshotVectorsMax) return "has a piece of too many vectors";
  if (piece.elements > piece.count || piece.first > piece.count - piece.elements)
    return "has a piece outside its tensor";
  if (piece.elements > left / sizeof(float) / (1 + piece.vectors)) return "is cut short";
  return nullptr;
}

}  // namespace

size_t remove_old_runs(const std::string& directory, const std::string& job, size_t keep) {
  const std::vector<Run> runs = all_runs(directory, job, {});
  std::vector<uint64_t> whole;
  for (const Run& run : runs)
    if (run.files >= run.shards && run.written_ns < UINT64_MAX) whole.push_back(run.written_ns);
  if (whole.size() < keep) return 0;
  std::ranges::sort(whole, std::greater());
  size_t removed = 0;
  for (const Run& run : runs)
    if (run.files > 0 && run.written_ns < whole[keep - 1]) removed += remove_run(run.path) ? 1 : 0;
  return removed;
}

uint64_t newest_snapshot_ns(const std::string& directory, const std::string& job) {
  uint64_t newest = 0;
  for (const Run& run : all_runs(directory, job, {}))
    if (run.written_ns < UINT64_MAX) newest = std::max(newest, run.written_ns);
  return newest;
}

Result<SnapshotSet> SnapshotSet::open(const std::string& directory, const std::string& job,
                                      std::span<const uint64_t> except_runs) {
  const Result<std::string> run = newest_run(directory, job, except_runs);
  if (!run.ok()) return run.status();
  SnapshotSet set;
  set.run_directory_ = run.value();
  for (const fs::path& path : files_of_run(run.value()))
    GRADBUS_RETURN_IF_ERROR(set.add_file(path, job));
  for (auto& [tensor, pieces] : set.pieces_)
    std::ranges::sort(pieces, {}, [](const Piece& piece) { return piece.head.first; });
  return set;
}

Status SnapshotSet::add_file(const std::string& path, const std::string& job) {
  files_.push_back({path, Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC))});
  const int fd = files_.back().fd.get();
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0)
    return damaged(path, std::string("cannot be read: ") + std::strerror(errno));
  const auto size = static_cast<uint64_t>(info.st_size);
  SnapshotHeader header;
  if (!read_struct(fd, 0, header)) return damaged(path, "has a header whose checksum is wrong");
  if (header.magic != kSnapshotMagic || header.version != kSnapshotVersion)
    return damaged(path, "is of format version " + std::to_string(header.version) + ", not " +
                             std::to_string(kSnapshotVersion));
  if (job.compare(0, kJobNameBytesMax, header.job, strnlen(header.job, sizeof(header.job))) != 0)
    return damaged(path, "is of another job");
  uint64_t offset = sizeof(header);
  for (uint64_t number = 0;; ++number) {
    Piece piece;
    const std::string which = " (piece " + std::to_string(number) + ")";
    if (size - offset < sizeof(piece.head)) return damaged(path, "is cut short" + which);
    if (!read_struct(fd, offset, piece.head)) return damaged(path, "has a wrong checksum" + which);
    offset += sizeof(piece.head);
    if (piece.head.magic == kSnapshotEndMagic) {
      if (piece.head.count == number && offset == size) return {};
      return damaged(path, "does not end where it says" + which);
    }
    if (const char* problem = problem_of(piece.head, size - offset); problem != nullptr)
      return damaged(path, problem + which);
    piece.file = files_.size() - 1;
    piece.offset = offset;
    offset += (1 + piece.head.vectors) * piece.head.elements * sizeof(float);
    pieces_[piece.head.tensor].push_back(piece);
  }
}

Status SnapshotSet::check_tensor(const ShardPlan& plan, const std::vector<Piece>& pieces) const {
  const ServerOptimizer& optimizer = plan.mode.optimizer;
  const auto differ = [](uint32_t here, uint32_t there) {
    return here != 0 && there != 0 && here != there;
  };
  for (const Piece& piece : pieces) {
    if (differ(plan.mode.layout, piece.head.layout))
      return error("F112", "tensor \"" + plan.name + "\" has other parameters than in " +
                               run_directory_ + ", or in another order, or of other shapes");
    if (piece.head.count != plan.collective.count)
      return error("F112", "tensor \"" + plan.name + "\" has " +
                               std::to_string(plan.collective.count) + " elements, in " +
                               run_directory_ + " " + std::to_string(piece.head.count));
    if (piece.head.optimizer != static_cast<uint32_t>(optimizer.kind) ||
        piece.head.vectors != optimizer_vectors(optimizer))
      return error("F112", "tensor \"" + plan.name + "\" was stepped on by another optimizer in " +
                               run_directory_ + " than \"" + plan.mode.canonical + "\" names");
  }
  return {};
}

Result<std::vector<RestoredChunk>> SnapshotSet::read(const ShardPlan& plan) {
  const CollectivePlan& collective = plan.collective;
  const auto pieces = pieces_.find(plan.name);
  if (pieces == pieces_.end())
    return error("F111", "tensor \"" + plan.name + "\" is in no file of " + run_directory_);
  GRADBUS_RETURN_IF_ERROR(check_tensor(plan, pieces->second));
  const ChunkPlan cut = plan.cut();
  std::vector<RestoredChunk> chunks;
  for (uint32_t chunk = 0; chunk < cut.chunks(); ++chunk) {
    if (collective.shard_of(chunk) != plan.shard) continue;
    const auto range = cut.range(chunk);
    GRADBUS_RETURN_IF_ERROR(
        read_chunk(plan, pieces->second, range.first, range.elements, chunks.emplace_back()));
  }
  return chunks;
}

Status SnapshotSet::load(const Piece& piece) {
  if (loaded_ == &piece) return {};
  loaded_ = nullptr;
  values_.resize((1 + piece.head.vectors) * piece.head.elements);
  const auto bytes = std::as_writable_bytes(std::span(values_));
  const File& file = files_[piece.file];
  if (!read_at(file.fd.get(), piece.offset, bytes) || crc32c(bytes) != piece.head.values_crc)
    return damaged(file.path, "has a wrong checksum (values of tensor \"" +
                                  std::string(piece.head.tensor) + "\" from element " +
                                  std::to_string(piece.head.first) + ")");
  loaded_ = &piece;
  return {};
}

Status SnapshotSet::read_chunk(const ShardPlan& plan, const std::vector<Piece>& pieces,
                               uint64_t first, uint64_t elements, RestoredChunk& chunk) {
  const uint64_t vectors = 1 + optimizer_vectors(plan.mode.optimizer);
  chunk.values.resize(vectors * elements);
  uint64_t next = first;  // elements before it were found
  for (const Piece& piece : pieces) {
    const uint64_t begin = std::max(first, piece.head.first);
    const uint64_t end = std::min(first + elements, piece.head.first + piece.head.elements);
    if (begin >= end) continue;
    if (begin > next) break;
    GRADBUS_RETURN_IF_ERROR(load(piece));
    for (uint64_t vector = 0; vector < vectors; ++vector)
      std::copy_n(&values_[vector * piece.head.elements + begin - piece.head.first], end - begin,
                  &chunk.values[vector * elements + begin - first]);
    // If pieces differ, the largest step count is used: with it, the bias correction of an
    // optimizer's means is smaller.
    chunk.steps = std::max(chunk.steps, piece.head.steps);
    chunk.learning_rate = piece.head.learning_rate;
    next = std::max(next, end);
  }
  if (next == first + elements) return {};
  return error("F111", "elements from " + std::to_string(next) + " on of tensor \"" + plan.name +
                           "\" are in no file of " + run_directory_);
}

}  // namespace gradbus
