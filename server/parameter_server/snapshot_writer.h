// Writes one snapshot file (proto/shard_snapshot.h). The file is written under another name and
// renamed when it is complete and on disk. The file that it replaces stays as FILE.previous.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/fd.h"
#include "common/status.h"
#include "proto/shard_snapshot.h"

namespace gradbus {

// Identifies the shard, the job and the directory.
struct SnapshotPlace {
  std::string directory;  // of all snapshots
  std::string job;
  uint64_t run = 0;
  uint32_t shard = 0;
  uint32_t shards = 1;
  bool promoted = false;  // written by the copy that replaced a lost shard
};

// DIRECTORY/JOB: the job's name is converted to a valid file name.
std::string snapshot_job_directory(const std::string& directory, const std::string& job);
// DIRECTORY/JOB/run-RUN/shard-0-of-2.snapshot. The file of a promoted copy is
// shard-0-of-2.promoted.snapshot. So a shard that was only frozen, and writes later, overwrites
// nothing.
std::string snapshot_path(const SnapshotPlace& place);

class SnapshotWriter {
 public:
  // Returns F113, with the system's reason, when files cannot be created.
  static Result<SnapshotWriter> create(const SnapshotPlace& place);
  SnapshotWriter(SnapshotWriter&&) = default;
  SnapshotWriter& operator=(SnapshotWriter&&) = delete;
  ~SnapshotWriter();  // without commit(): removes the file

  // `values`: the parameters, then the optimizer's vectors. Fills in the checksums.
  Status add(SnapshotPiece piece, std::span<const float> values);
  Status commit();

  uint64_t pieces() const { return pieces_; }
  uint64_t bytes() const { return bytes_; }

 private:
  SnapshotWriter(std::string path, Fd file) : path_(std::move(path)), file_(std::move(file)) {}
  Status write(std::span<const std::byte> bytes);
  Status failed(const char* what) const;
  std::string unfinished() const { return path_ + ".unfinished"; }
  std::string previous() const { return path_ + ".previous"; }

  std::string path_;
  Fd file_;  // invalid after commit()
  uint64_t pieces_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace gradbus
