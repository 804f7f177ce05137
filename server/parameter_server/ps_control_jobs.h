// The jobs for which this node is a parameter-server shard. Messages of the coordinator become
// commands to the engine (server/parameter_server/ps_data_job.h does the work).
//
// Conductor thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/status.h"
#include "data_plane/engine.h"
#include "data_plane/tensor_plan.h"
#include "gradbus/v1/coordinator.pb.h"
#include "server/parameter_server/shard_commands.h"
#include "server/parameter_server/snapshot_keeper.h"

namespace gradbus {

class PsControlJobs {
 public:
  // Without a keeper there are no snapshots.
  PsControlJobs(Engine& engine, std::shared_ptr<SnapshotKeeper> keeper)
      : engine_(engine), keeper_(std::move(keeper)) {}

  // Does nothing when `agent_id` is not among the job's shards. `incarnation` is that of the
  // coordinator.
  void begin(const v1::JobStarted& started, uint64_t agent_id, uint64_t incarnation);
  bool has(uint64_t job) const { return jobs_.contains(job); }
  // Places the tensors that are on shards. If one is to be restored, the keeper passes it to the
  // engine after its values were read. GB-D602 for an invalid plan, GB-F111 without a keeper.
  Status place(const v1::TensorsReady& ready);
  // Shards were added or removed. GB-D602 for an invalid placement.
  Status change(const v1::ShardsChanged& changed);
  // No rank uses these tensors any more.
  void retire(const v1::TensorsRetired& retired);
  // Reports all jobs that a coordinator of another incarnation does not know.
  std::vector<v1::AgentMessage> announce(uint64_t incarnation);
  void end(uint64_t job);
  void end_all();
  // For the jobs that this coordinator knows.
  void report_counters(uint64_t incarnation, v1::Heartbeat& heartbeat) const;
  size_t size() const { return jobs_.size(); }
  // Calls `report(id, started, traffic)` for each job.
  template <typename Report>
  void for_each_traffic(const Report& report) const {
    for (const auto& [id, ps_job] : jobs_) report(id, ps_job.started, *ps_job.traffic);
  }

 private:
  struct PsControlJob {
    v1::JobStarted started;
    uint32_t shard = 0;
    uint64_t incarnation = 0;
    uint64_t run = 0;  // name of the run in snapshots
    std::shared_ptr<JobTraffic> traffic;
    bool told_single_copy = false;
    std::vector<ShardSet> shard_sets = {};                 // by placement
    uint32_t started_shards = 0;                           // known to the engine
    std::map<uint32_t, v1::ReadyTensor> tensors = {};      // on shards, by id
    uint32_t tensor_last = 0;                              // the highest tensor id
    std::optional<v1::ShardsChanged> shards_changed = {};  // the latest one
  };
  static void tell_single_copy(PsControlJob& ps_job, const ShardPlan& plan);
  Status place_one(PsControlJob& ps_job, const TensorPlan& tensor);
  Status add(const PsControlJob& ps_job, AddShardTensor command);

  Engine& engine_;
  const std::shared_ptr<SnapshotKeeper> keeper_;
  std::map<uint64_t, PsControlJob> jobs_;
};

}  // namespace gradbus
