// Tests snapshots of shards: damaged or missing files, and jobs that end and continue from them. A
// parameter's value is its index. The optimizer's vectors are the index plus a fraction. So a
// position gives the expected value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/crc32c.h"
#include "proto/placement.h"
#include "server/parameter_server/snapshot_set.h"
#include "server/parameter_server/snapshot_writer.h"
#include "tests/unit/data_plane/engine_cluster.h"

namespace gradbus {
namespace {

namespace fs = std::filesystem;
using test::Cluster;
using test::Layout;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class TempDirectory {
 public:
  TempDirectory() : path_((fs::temp_directory_path() / "gradbus-snapshots-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TempDirectory() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

ShardPlan plan_of(uint64_t count, uint64_t chunk, uint32_t shard, uint32_t shards,
                  const std::string& mode = "ps:async,optimizer=adam") {
  ShardPlan plan;
  plan.collective.count = count;
  plan.collective.chunk_elements = chunk;
  plan.collective.agents = 1;
  plan.collective.shards = shards;
  plan.name = "t";
  plan.shard = shard;
  plan.mode = parse_mode(mode).take();
  // With more than two shards, the last one has half as many chunks.
  if (shards > 2) {
    std::vector<uint16_t> pattern;
    for (uint16_t other = 0; other + 1U < shards; ++other)
      pattern.insert(pattern.end(), {other, static_cast<uint16_t>(shards - 1)});
    plan.collective.pattern = std::make_shared<const std::vector<uint16_t>>(pattern);
  }
  return plan;
}

float value_at(uint64_t vector, uint64_t element) {
  return static_cast<float>(element) + 0.25F * static_cast<float>(vector);
}

class SnapshotFiles : public testing::Test {
 protected:
  SnapshotPlace place(uint32_t shard, uint32_t shards, uint64_t run = 1) const {
    return {directory_.path(), "job", run, shard, shards};
  }

  // Writes the state of `shards` shards for a tensor after 9 steps of adam.
  void write(uint64_t count, uint64_t chunk, uint32_t shards, uint64_t run = 1) {
    for (uint32_t shard = 0; shard < shards; ++shard) {
      Result<SnapshotWriter> writer = SnapshotWriter::create(place(shard, shards, run));
      ASSERT_TRUE(writer.ok()) << writer.status().message();
      add_chunks(writer.value(), plan_of(count, chunk, shard, shards));
      ASSERT_TRUE(writer.value().commit().ok());
    }
  }
  static void add_chunks(SnapshotWriter& writer, const ShardPlan& plan, uint64_t steps = 9) {
    const ChunkPlan cut = plan.collective.chunk_plan();
    for (uint32_t chunk = 0; chunk < cut.chunks(); ++chunk) {
      if (plan.collective.shard_of(chunk) != plan.shard) continue;
      const auto range = cut.range(chunk);
      SnapshotPiece piece;
      piece.optimizer = static_cast<uint32_t>(ServerOptimizer::Kind::kAdam);
      piece.vectors = 2;
      piece.count = cut.count;
      piece.first = range.first;
      piece.elements = range.elements;
      piece.steps = steps;
      piece.tensor[0] = 't';
      std::vector<float> values;
      for (uint64_t vector = 0; vector < 3; ++vector)
        for (uint64_t i = 0; i < range.elements; ++i)
          values.push_back(value_at(vector, range.first + i));
      ASSERT_TRUE(writer.add(piece, values).ok());
    }
  }

  SnapshotKeeper::Restored read(const ShardPlan& plan, std::vector<uint64_t> except_runs = {}) {
    Result<SnapshotSet> set = SnapshotSet::open(directory_.path(), "job", except_runs);
    if (!set.ok()) return set.status();
    return set.value().read(plan);
  }
  void refused(const ShardPlan& plan, Code code, const std::string& words) {
    const auto restored = read(plan);
    ASSERT_FALSE(restored.ok());
    EXPECT_EQ(restored.status().code(), code) << restored.status().message();
    EXPECT_THAT(restored.status().message(), HasSubstr(words));
  }

  const TempDirectory directory_;
};

// Expect: any number of shards, with any chunks, can read the files of three shards.
TEST_F(SnapshotFiles, AnyChunksOfAnyNumberOfShardsCanBeRead) {
  constexpr uint64_t kCount = 1000;
  write(kCount, 64, 3);
  const std::pair<uint32_t, uint64_t> readers[] = {{1, 1000}, {2, 100}, {3, 64}, {5, 7}, {4, 999}};
  for (const auto& [shards, chunk] : readers) {
    uint64_t seen = 0;
    for (uint32_t shard = 0; shard < shards; ++shard) {
      const ShardPlan plan = plan_of(kCount, chunk, shard, shards);
      const auto restored = read(plan);
      ASSERT_TRUE(restored.ok()) << restored.status().message();
      size_t at = 0;
      const ChunkPlan cut = plan.collective.chunk_plan();
      for (uint32_t index = 0; index < cut.chunks(); ++index) {
        if (plan.collective.shard_of(index) != shard) continue;
        const auto range = cut.range(index);
        const RestoredChunk& got = restored.value().at(at++);
        EXPECT_EQ(got.steps, 9u);
        ASSERT_EQ(got.values.size(), 3 * range.elements);
        for (uint64_t i = 0; i < got.values.size(); ++i)
          ASSERT_EQ(got.values[i], value_at(i / range.elements, range.first + i % range.elements));
        seen += range.elements;
      }
    }
    EXPECT_EQ(seen, kCount);
  }
}

std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void put(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

// Expect: wherever a file is cut, the error names it. It is complete only with its last byte.
TEST_F(SnapshotFiles, CutAnywhereIsRefused) {
  write(40, 20, 1);
  const std::string path = snapshot_path(place(0, 1));
  const std::vector<char> whole = bytes_of(path);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    put(path, {whole.begin(), whole.begin() + static_cast<long>(bytes)});
    refused(plan_of(40, 20, 0, 1), Code::kCorrupt, path);
  }
  put(path, whole);
  EXPECT_TRUE(read(plan_of(40, 20, 0, 1)).ok());
}

// Expect: every flipped bit is detected, and none makes the reader read beyond the file.
TEST_F(SnapshotFiles, EveryFlippedBitIsFound) {
  write(8, 8, 1);
  const std::string path = snapshot_path(place(0, 1));
  std::vector<char> bytes = bytes_of(path);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    put(path, bytes);
    refused(plan_of(8, 8, 0, 1), Code::kCorrupt, path);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
}

// Expect: impossible lengths are refused even with valid checksums.
TEST_F(SnapshotFiles, LengthsThatCannotBeAreRefused) {
  const auto with = [&](auto change, const std::string& words) {
    Result<SnapshotWriter> writer = SnapshotWriter::create(place(0, 1));
    SnapshotPiece piece;
    piece.optimizer = static_cast<uint32_t>(ServerOptimizer::Kind::kAdam);
    piece.vectors = 2;
    piece.count = piece.elements = 8;
    piece.tensor[0] = 't';
    change(piece);
    ASSERT_TRUE(writer.value().add(piece, std::vector<float>(24)).ok());
    ASSERT_TRUE(writer.value().commit().ok());
    refused(plan_of(8, 8, 0, 1), Code::kCorrupt, words);
  };
  with([](SnapshotPiece& p) { p.vectors = 3; }, "too many vectors");
  with([](SnapshotPiece& p) { p.first = 1; }, "outside its tensor");
  with([](SnapshotPiece& p) { p.first = UINT64_MAX - 3; }, "outside its tensor");
  with([](SnapshotPiece& p) { p.count = p.elements = UINT64_MAX; }, "is cut short (piece 0)");
  with([](SnapshotPiece& p) { p.count = p.elements = 9; }, "is cut short (piece 1)");
  with([](SnapshotPiece& p) { std::fill_n(p.tensor, sizeof(p.tensor), 'x'); }, "that is none");
}

// Expect: parameters that have changed their order or shapes are not mistaken for each other. A
// program that does not say which ones a tensor holds is not refused, nor is a file without it.
TEST_F(SnapshotFiles, OtherParametersInATensorAreRefused) {
  const auto read_as = [&](uint32_t written, uint32_t now) {
    Result<SnapshotWriter> writer = SnapshotWriter::create(place(0, 1));
    SnapshotPiece piece;
    piece.optimizer = static_cast<uint32_t>(ServerOptimizer::Kind::kAdam);
    piece.vectors = 2;
    piece.layout = static_cast<uint16_t>(written);
    piece.count = piece.elements = 8;
    piece.tensor[0] = 't';
    EXPECT_TRUE(writer.value().add(piece, std::vector<float>(24)).ok());
    EXPECT_TRUE(writer.value().commit().ok());
    ShardPlan plan = plan_of(8, 8, 0, 1);
    plan.mode.layout = now;
    return read(plan).status();
  };
  for (const auto& [written, now] : {std::pair(0, 0), {7, 7}, {0, 7}, {7, 0}})
    EXPECT_TRUE(read_as(written, now).ok()) << written << " " << now;
  EXPECT_THAT(read_as(7, 65535).message(),
              AllOf(HasSubstr("F112"), HasSubstr("other parameters"), HasSubstr("another order")));
}

// Expect: the newest complete run is read, not one that is being written.
TEST_F(SnapshotFiles, TheNewestRunIsRead) {
  write(10, 10, 1, 1);
  write(20, 20, 1, 2);
  write(30, 30, 1, 3);
  EXPECT_TRUE(read(plan_of(30, 30, 0, 1)).ok());
  EXPECT_TRUE(read(plan_of(20, 20, 0, 1), {3}).ok());
  EXPECT_TRUE(read(plan_of(10, 10, 0, 1), {2, 3}).ok());
}

// Expect: a run that is written after the clock was set back by a day is the newest one.
TEST_F(SnapshotFiles, TheClockMayBeSetBack) {
  write(10, 10, 2, 1);
  for (const uint32_t shard : {0U, 1U}) {
    const std::string path = snapshot_path(place(shard, 2, 1));
    std::vector<char> bytes = bytes_of(path);
    SnapshotHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    header.written_ns += 24ULL * 3600 * kSecond;
    header.crc = crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(SnapshotHeader, crc)));
    std::memcpy(bytes.data(), &header, sizeof(header));
    put(path, bytes);
  }
  write(20, 20, 2, 2);
  EXPECT_TRUE(read(plan_of(20, 20, 0, 1)).ok());
  EXPECT_EQ(remove_old_runs(directory_.path(), "job", 1), 1u);
  EXPECT_TRUE(fs::exists(snapshot_path(place(1, 2, 2))));
  EXPECT_FALSE(fs::exists(snapshot_path(place(1, 2, 1))));
}

// Expect: a run without all of its files does not prevent reading the run before it.
TEST_F(SnapshotFiles, ARunThatLacksAFileIsLeftOut) {
  write(30, 10, 3, 1);
  write(30, 10, 2, 2);
  fs::remove(snapshot_path(place(0, 2, 2)));
  EXPECT_TRUE(read(plan_of(30, 10, 0, 1)).ok());
  fs::remove(snapshot_path(place(1, 3, 1)));
  refused(plan_of(30, 10, 0, 1), Code::kUnavailable, "a snapshot of all its shards");
}

// Expect: the requested number of newest complete runs stays. An incomplete run does not count, and
// is removed if it is older than those. Damaged files and other files stay.
TEST_F(SnapshotFiles, OldRunsAreRemoved) {
  const auto run_of = [&](uint64_t run) {
    return fs::path(snapshot_path(place(0, 2, run))).parent_path();
  };
  for (const uint64_t run : {1, 2, 3, 4, 5, 6}) write(30, 10, 2, run);
  write(30, 10, 2, 3);  // written again: it has a .previous, and is now the newest
  fs::remove(snapshot_path(place(1, 2, 2)));
  fs::remove(snapshot_path(place(1, 2, 6)));
  fs::resize_file(snapshot_path(place(1, 2, 1)), 100);  // shorter than its header
  std::ofstream(run_of(4) / "notes") << "mine";
  // Run 2 was removed: 3, 4, 5 are complete.
  EXPECT_EQ(remove_old_runs(directory_.path(), "job", 3), 1u);
  EXPECT_FALSE(fs::exists(run_of(2)));
  EXPECT_EQ(remove_old_runs(directory_.path(), "job", 3), 0u);
  EXPECT_TRUE(fs::exists(snapshot_path(place(0, 2, 4))));
  EXPECT_EQ(remove_old_runs(directory_.path(), "another", 1), 0u);
  // Run 5, and run 6, which is older than 3.
  EXPECT_EQ(remove_old_runs(directory_.path(), "job", 1), 2u);
  EXPECT_TRUE(fs::exists(snapshot_path(place(1, 2, 3))));
  EXPECT_EQ(std::distance(fs::directory_iterator(run_of(4)), fs::directory_iterator()), 1);
  EXPECT_FALSE(fs::exists(run_of(5)) || fs::exists(run_of(6)));
  EXPECT_TRUE(fs::exists(snapshot_path(place(0, 2, 1)))) << "it is damaged: somebody has to look";
}

// Expect: for a lost shard and its promoted copy, the copy's file is read, whichever was written
// last. Without the file of the lost shard, the copy's file is required.
TEST_F(SnapshotFiles, APromotedCopyIsReadInPlaceOfTheLostShard) {
  const ShardPlan plan = plan_of(100, 10, 1, 2);
  SnapshotPlace promoted = place(1, 2);
  promoted.promoted = true;
  Result<SnapshotWriter> writer = SnapshotWriter::create(promoted);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  add_chunks(writer.value(), plan, 7);
  ASSERT_TRUE(writer.value().commit().ok());
  write(100, 10, 2);  // 9 steps; shard 1 was only frozen, and continues
  const auto of_copy = read(plan);
  const auto of_other = read(plan_of(100, 10, 0, 2));
  ASSERT_TRUE(of_copy.ok() && of_other.ok());
  EXPECT_EQ(of_copy.value().size(), 5u);
  for (const RestoredChunk& chunk : of_copy.value()) EXPECT_EQ(chunk.steps, 7u);
  for (const RestoredChunk& chunk : of_other.value()) EXPECT_EQ(chunk.steps, 9u);
  fs::remove(snapshot_path(place(1, 2)));
  EXPECT_TRUE(read(plan).ok());
  fs::remove(snapshot_path(place(0, 2)));
  refused(plan, Code::kUnavailable, "all its shards");
}

// Expect: an error names what is missing, and where.
TEST_F(SnapshotFiles, WhatDoesNotFitIsNamed) {
  refused(plan_of(10, 10, 0, 1), Code::kUnavailable, "no earlier run of job \"job\"");
  write(100, 10, 2);
  refused(plan_of(99, 10, 0, 1), Code::kMismatch, "has 99 elements");
  refused(plan_of(100, 10, 0, 1, "ps:async,momentum=0.9"), Code::kMismatch, "another optimizer");
  ShardPlan other = plan_of(100, 10, 0, 1);
  other.name = "u";
  refused(other, Code::kUnavailable, "tensor \"u\" is in no file");
  put(snapshot_path(place(1, 2)), bytes_of(snapshot_path(place(0, 2))));
  refused(plan_of(100, 10, 0, 1), Code::kUnavailable, "elements from 10 on of tensor \"t\"");
}

// Expect: an unfinished snapshot has no effect. A finished one keeps the one before.
TEST_F(SnapshotFiles, TheOldOneStaysUntilTheNewOneIsWhole) {
  write(10, 10, 1);
  const std::string path = snapshot_path(place(0, 1));
  const std::vector<char> old = bytes_of(path);
  {
    Result<SnapshotWriter> writer = SnapshotWriter::create(place(0, 1));
    add_chunks(writer.value(), plan_of(10, 5, 0, 1));
  }
  EXPECT_EQ(bytes_of(path), old);
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1);
  write(10, 5, 1);
  EXPECT_NE(bytes_of(path), old);
  EXPECT_EQ(bytes_of(path + ".previous"), old);
  EXPECT_TRUE(read(plan_of(10, 10, 0, 1)).ok());
}

TEST_F(SnapshotFiles, WhereNothingCanBeWrittenTheReasonIsGiven) {
  put(directory_.path() + "/job", {'x'});
  const Result<SnapshotWriter> writer = SnapshotWriter::create(place(0, 1));
  ASSERT_FALSE(writer.ok());
  EXPECT_THAT(writer.status().message(), HasSubstr("GB-F113"));
}

// Expect: for any job name, the files are in one folder below the directory.
TEST(SnapshotPaths, AJobsNameIsAFilesName) {
  EXPECT_EQ(snapshot_job_directory("/d", "train.v2-a_B"), "/d/train.v2-a_B");
  EXPECT_EQ(snapshot_job_directory("/d", "train/3"), "/d/train%2f3");
  EXPECT_EQ(snapshot_job_directory("/d", ".."), "/d/%2e.");
  EXPECT_EQ(snapshot_job_directory("/d", "../../etc"), "/d/%2e.%2f..%2fetc");
  EXPECT_EQ(snapshot_job_directory("/d", "50%"), "/d/50%25");
}

// ---- jobs

class SnapshotJobs : public testing::Test {
 protected:
  static constexpr uint64_t kCount = 200;

  void open(uint32_t agents, uint32_t shards, uint64_t chunk, const std::string& mode,
            Nanos every = 0) {
    rounds_.assign(agents, 0);
    keeper_ = std::make_shared<SnapshotKeeper>(directory_.path(), every);
    Layout layout{.agents = agents, .shards = shards};
    layout.keeper = keeper_;
    layout.run = ++run_;
    cluster_ = std::make_unique<Cluster>(layout);
    TensorSpec spec;
    spec.name = "t";
    spec.count = kCount;
    cluster_->add_on_shards(0, spec, chunk, mode);
  }
  // Every agent brings `value`. Returns the result of the last one.
  std::vector<float> push(float value) {
    for (uint32_t agent = 0; agent < rounds_.size(); ++agent) {
      std::fill_n(cluster_->data(agent, 0, 0), kCount, value);
      cluster_->post(agent, 0, 0, ++rounds_[agent]);
      EXPECT_EQ(cluster_->completions(agent, 0, 1).size(), 1u);
    }
    const float* data = cluster_->data(static_cast<uint32_t>(rounds_.size()) - 1, 0, 0);
    return {data, data + kCount};
  }

  const TempDirectory directory_;
  std::shared_ptr<SnapshotKeeper> keeper_;
  std::unique_ptr<Cluster> cluster_;
  std::vector<uint64_t> rounds_;  // by agent
  uint64_t run_ = 0;
};

// Expect: a job continues from the end of the previous one, with momentum, with other agents,
// shards and chunks: v = 0.5 v + g, one step for each agent.
TEST_F(SnapshotJobs, GoOnWithAnotherNumberOfShards) {
  open(1, 2, 64, "ps:async,lr=1,momentum=0.5");
  EXPECT_THAT(push(100), Each(100.0F));
  EXPECT_THAT(push(4), Each(96.0F));  // v = 4
  cluster_->end_job();
  open(2, 3, 48, "ps:async,lr=1,momentum=0.5,restore=1");
  EXPECT_THAT(push(-7), Each(96.0F)) << "what ranks bring at first sets nothing";
  EXPECT_THAT(push(0), Each(93.0F));  // v = 2, then 1
  cluster_->end_job();
  open(1, 1, 200, "ps:async,lr=1,momentum=0.5,restore=1");
  EXPECT_THAT(push(0), Each(93.0F));
  EXPECT_THAT(push(2), Each(90.5F));  // v = 2.5
}

// Expect: snapshots are written while the job runs, and each piece contains the parameters of one
// moment.
TEST_F(SnapshotJobs, AreKeptWhileTheyWork) {
  open(2, 2, 64, "ps:async,lr=1", kMillisecond);
  push(100);
  const auto has_file = [&] {
    std::error_code none;
    return Result<SnapshotSet>(SnapshotSet::open(directory_.path(), "job", {})).ok();
  };
  float steps = 0;
  for (const Nanos deadline = monotonic_now() + 30 * kSecond;
       !has_file() && monotonic_now() < deadline;)
    EXPECT_THAT(push(1), Each(100.0F - 2 * ++steps));
  for (int i = 0; i < 20; ++i) EXPECT_THAT(push(1), Each(100.0F - 2 * ++steps));
  cluster_.reset();  // as if all were killed: nothing was ended
  open(1, 1, 200, "ps:async,lr=1,restore=1");
  const std::vector<float> restored = push(-7);
  EXPECT_THAT(restored, Each(testing::AllOf(testing::Ge(100.0F - 2 * steps), testing::Le(100.0F))));
}

// Expect: a shard that could not restore a tensor leaves no file that a later run would use, even
// if it restored later tensors.
TEST_F(SnapshotJobs, WithoutARestoredTensorLeaveNothing) {
  open(1, 1, 64, "ps:async,lr=1");
  push(100);
  TensorSpec other;
  other.name = "u";
  other.count = kCount;
  cluster_->add_to_shard(0, 1, other, 64, "ps:async,optimizer=adam,restore=1");
  EXPECT_EQ(cluster_->broken(1).size(), 1u);
  cluster_->add_to_shard(0, 2, other, 64,
                         "ps:sync");  // needs no restored state, and no complete push
  cluster_->turn(10);
  cluster_->end_job();
  EXPECT_FALSE(SnapshotSet::open(directory_.path(), "job", {}).ok());
}

// Expect: a job that requests a missing snapshot ends with the reason.
TEST_F(SnapshotJobs, WithoutASnapshotAreRefused) {
  open(1, 1, 64, "ps:async,restore=1");
  const auto broken = cluster_->broken(1);
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_THAT(broken.front().status.message(), HasSubstr("GB-F111"));
}

// Expect: a job whose parameters were never set leaves no file.
TEST_F(SnapshotJobs, WithoutParametersLeaveNothing) {
  open(2, 1, 64, "ps:async");
  cluster_->end_job();
  EXPECT_FALSE(SnapshotSet::open(directory_.path(), "job", {}).ok());
}

}  // namespace
}  // namespace gradbus
