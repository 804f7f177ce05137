// Reads what the shards of an earlier run of a job have left (proto/shard_snapshot.h): of all files
// of that run together, whatever number of shards wrote them, for any chunks of any shards.
//
// Files are the world: nothing of them is used before it is checked. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/status.h"
#include "proto/shard_snapshot.h"
#include "worker_agent/shard/shard_plan.h"

namespace gradbus {

// Removes what the runs of the job have left in `directory` that are older than its `keep` newest
// ones (1 or more) of which the files of all shards are there. Files of other names stay, and
// damaged runs. How many runs have gone.
size_t remove_old_runs(const std::string& directory, const std::string& job, size_t keep);

class SnapshotSet {
 public:
  // The newest run in `directory` of which the files of all shards are there, but `except_runs`,
  // which are being made. F111 when there is none; F110, naming the file and what is wrong with it,
  // when one of its files is not whole.
  static Result<SnapshotSet> open(const std::string& directory, const std::string& job,
                                  std::span<const uint64_t> except_runs);

  // The chunks of the tensor that plan.shard holds, in their order. F110 for a value that was
  // damaged; F111 for a tensor or elements that are in no file; F112 when the tensor had another
  // size or optimizer.
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
  const Piece* loaded_ = nullptr;                     // whose values these are
  std::vector<float> values_;
};

}  // namespace gradbus
