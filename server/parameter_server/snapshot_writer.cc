#include "server/parameter_server/snapshot_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "common/crc32c.h"
#include "common/errors.h"
#include "server/parameter_server/snapshot_set.h"

namespace gradbus {
namespace {

namespace fs = std::filesystem;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

std::string hex(uint64_t value, int digits) {
  char text[17];
  std::snprintf(text, sizeof(text), "%0*llx", digits, static_cast<unsigned long long>(value));
  return text;
}

Status cannot_write(const std::string& path, const std::string& what, const std::string& why) {
  return error("F113", path + ": " + what + ": " + why);
}

// A new name in a directory is durable when the directory is synced.
void sync_directory_of(const std::string& path) {
  const Fd directory(
      open(fs::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid()) fsync(directory.get());
}

// Later than every file that is there, also after somebody has set the clock back: these times
// order the runs.
uint64_t time_of_new_file(const SnapshotPlace& place) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::max(static_cast<uint64_t>(std::chrono::nanoseconds(now).count()),
                  newest_snapshot_ns(place.directory, place.job) + 1);
}

}  // namespace

std::string snapshot_job_directory(const std::string& directory, const std::string& job) {
  std::string name;
  for (const char c : job) {
    // A point is allowed except in front, so that no name is "." or "..".
    if (is_plain(c) || (c == '.' && !name.empty())) {
      name += c;
    } else {
      name += "%" + hex(static_cast<unsigned char>(c), 2);
    }
  }
  return directory + "/" + name;
}

std::string snapshot_path(const SnapshotPlace& place) {
  return snapshot_job_directory(place.directory, place.job) + "/run-" + hex(place.run, 16) +
         "/shard-" + std::to_string(place.shard) + "-of-" + std::to_string(place.shards) +
         (place.promoted ? ".promoted.snapshot" : ".snapshot");
}

Result<SnapshotWriter> SnapshotWriter::create(const SnapshotPlace& place) {
  const std::string path = snapshot_path(place);
  std::error_code problem;
  fs::create_directories(fs::path(path).parent_path(), problem);
  if (problem) return cannot_write(path, "its directory cannot be made", problem.message());
  const std::string unfinished = path + ".unfinished";
  Fd file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return cannot_write(unfinished, "cannot be made", std::strerror(errno));
  SnapshotWriter writer(path, std::move(file));
  SnapshotHeader header;
  header.run = place.run;
  header.written_ns = time_of_new_file(place);
  header.shard = place.shard;
  header.shards = place.shards;
  place.job.copy(header.job, kJobNameBytesMax);
  const auto bytes = std::as_bytes(std::span(&header, 1));
  header.crc = crc32c(bytes.first(offsetof(SnapshotHeader, crc)));
  GRADBUS_RETURN_IF_ERROR(writer.write(bytes));
  return writer;
}

SnapshotWriter::~SnapshotWriter() {
  if (file_.valid()) unlink(unfinished().c_str());
}

Status SnapshotWriter::failed(const char* what) const {
  return cannot_write(path_, what, std::strerror(errno));
}

Status SnapshotWriter::write(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file_.get(), bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return failed("cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
  return {};
}

Status SnapshotWriter::add(SnapshotPiece piece, std::span<const float> values) {
  ++pieces_;
  piece.values_crc = crc32c(std::as_bytes(values));
  const auto bytes = std::as_bytes(std::span(&piece, 1));
  piece.crc = crc32c(bytes.first(offsetof(SnapshotPiece, crc)));
  GRADBUS_RETURN_IF_ERROR(write(bytes));
  return write(std::as_bytes(values));
}

Status SnapshotWriter::commit() {
  SnapshotPiece end;
  end.magic = kSnapshotEndMagic;
  end.count = pieces_;
  const auto bytes = std::as_bytes(std::span(&end, 1));
  end.crc = crc32c(bytes.first(offsetof(SnapshotPiece, crc)));
  GRADBUS_RETURN_IF_ERROR(write(bytes));
  if (fsync(file_.get()) != 0) return failed("cannot be brought to disk");
  // The old file gets its second name before it loses the first, so one complete file exists at any
  // time.
  unlink(previous().c_str());
  if (link(path_.c_str(), previous().c_str()) != 0 && errno != ENOENT)
    return failed("cannot be kept as .previous");
  if (rename(unfinished().c_str(), path_.c_str()) != 0) return failed("cannot be renamed");
  file_.reset();
  sync_directory_of(path_);
  return {};
}

}  // namespace gradbus
