// Reads the files that the shards of an earlier run of a job have written (proto/shard_snapshot.h).
// It combines all files of that run, for any number of old and new shards and any chunks.
//
// Files are untrusted: everything is checked before it is used. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/status.h"
#include "proto/shard_snapshot.h"
#include "server/parameter_server/shard_plan.h"

namespace gradbus {

// Removes the job's runs in `directory` that are older than its `keep` newest complete ones (1 or
// more). A run is complete when the files of all shards exist. Other files and damaged runs stay.
// Returns the number of removed runs.
size_t remove_old_runs(const std::string& directory, const std::string& job, size_t keep);

// The time at which any file of the job's runs was written last; damaged ones do not count. 0:
// there is none.
uint64_t newest_snapshot_ns(const std::string& directory, const std::string& job);

class SnapshotSet {
 public:
  // Opens the newest complete run in `directory` except `except_runs`, which are being written.
  // Returns F111 when there is none. Returns F110, naming the file and the problem, when one of its
  // files is damaged.
  static Result<SnapshotSet> open(const std::string& directory, const std::string& job,
                                  std::span<const uint64_t> except_runs);

  // The chunks of the tensor that plan.shard holds, in their order. Returns F110 for a damaged
  // value, F111 for a tensor or elements that are in no file, and F112 when the tensor had other
  // parameters, another size or another optimizer.
  Result<std::vector<RestoredChunk>> read(const ShardPlan& plan);

  const std::string& run_directory() const { return run_directory_; }

 private:
  struct Piece {
    SnapshotPiece head;
    size_t file = 0;
    uint64_t offset = 0;  // of its values
  };
  struct File {
    std::string path;
    Fd fd;
  };
  Status add_file(const std::string& path, const std::string& job);
  Status check_tensor(const ShardPlan& plan, const std::vector<Piece>& pieces) const;
  Status load(const Piece& piece);
  Status read_chunk(const ShardPlan& plan, const std::vector<Piece>& pieces, uint64_t first,
                    uint64_t elements, RestoredChunk& chunk);

  std::string run_directory_;
  std::vector<File> files_;
  std::map<std::string, std::vector<Piece>> pieces_;  // by tensor, in order of their first element
  const Piece* loaded_ = nullptr;                     // the piece whose values are loaded
  std::vector<float> values_;
};

}  // namespace gradbus
