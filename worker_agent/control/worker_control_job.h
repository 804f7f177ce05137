// A running job for the conductor: its local ranks, its arena, its tensors, its end.
//
// Conductor thread only.
#pragma once

#include <bitset>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/metric_page.h"
#include "data_plane/coordinator_plans.h"
#include "data_plane/engine.h"
#include "gradbus/v1/coordinator.pb.h"
#include "worker_agent/clients/attached_client.h"
#include "worker_agent/control/job_tracer.h"
#include "worker_agent/gpu/devices.h"
#include "worker_agent/job/arena.h"
#include "worker_agent/job/worker_commands.h"

namespace gradbus {

// Events of the NCCL processes of jobs, and the reason why this agent starts no more of them.
struct NcclUse {
  std::shared_ptr<Mailbox<NcclEvent>> events = std::make_shared<Mailbox<NcclEvent>>();
  Nanos timeout = 0;  // of every order to an NCCL process
  Status lost;
};

class WorkerControlJob {
 public:
  // `clients` by local rank. `agent_index` is the index of this node among the job's agents.
  WorkerControlJob(const v1::JobStarted& started, uint32_t agent_index, uint64_t incarnation,
                   std::vector<AttachedClient*> clients, ShmQuota& quota, Devices& devices,
                   const NcclUse& nccl, Engine& engine);
  ~WorkerControlJob();
  WorkerControlJob(const WorkerControlJob&) = delete;
  WorkerControlJob& operator=(const WorkerControlJob&) = delete;

  uint64_t id() const { return started_.job_id(); }
  const std::string& name() const { return started_.job(); }
  uint64_t incarnation() const { return incarnation_; }
  uint32_t world_size() const { return static_cast<uint32_t>(started_.members_size()); }
  bool failed() const { return failed_; }
  // The whole job, for a coordinator of this incarnation that does not know it
  // (worker_control_job_return.cc).
  std::vector<v1::AgentMessage> announce(uint64_t incarnation);
  bool deserted() const;                      // no local client is left
  bool deserted_for(Nanos now, Nanos grace);  // since the first call that returned true

  // Creates the arena and channels, starts the job in the engine, and answers every local client.
  Status start(uint32_t cores);
  // All ranks have registered these: places new tensors and answers the clients that registered
  // them.
  Status place(const v1::TensorsReady& ready);
  void refuse(const v1::TensorRefused& refused);
  // Tensors that are registered from now on may be on the new shards.
  Status change_shards(const v1::ShardsChanged& changed);

  // ---- tensors that NCCL may carry (worker_control_job_devices.cc)
  //
  // The reports for the coordinator, and its results.
  std::vector<v1::NcclReport> take_nccl_reports() { return std::exchange(nccl_reports_, {}); }
  void handle_nccl_event(const NcclQueue::Ended& ended);
  void connect_nccl(const v1::NcclConnect& connect);
  Status settle_nccl(const v1::NcclSettled& settled);

  // ---- tensors that are not used any more (worker_control_job_retire.cc)
  //
  // A client does not use the tensor any more. GB-S211 when it has none of this id.
  Status release(const AttachedClient& client, const UnregisterPacket& done);
  // No rank of the job uses these any more: tells the engine to remove them.
  void retire(const v1::TensorsRetired& retired, const std::shared_ptr<Mailbox<TensorGone>>& gone);
  // The engine has removed it: its memory is free for other tensors.
  void free_tensor(uint32_t tensor);

  // Every local operation ends with this error; nothing more is exchanged.
  void fail(const Status& status);
  void notify(Code code, const std::string& text);
  // An administrator wants another mode for the parameters that match `group`.
  void tell_mode(const std::string& group, const std::string& mode);
  void client_gone(const AttachedClient& client);

  void report_progress(const v1::ProgressQuery& query, v1::ProgressReport& report) const;
  // `room`: for measured tensors in the message; less is left afterwards.
  void report_counters(v1::JobCounters& counters, size_t& room, Nanos now) const;
  void add_metrics(MetricPage& page, const std::string& label) const;  // (agent_metrics.cc)
  JobTracer& tracer() { return tracer_; }

 private:
  struct PlacedTensor {
    TensorPlan plan;
    v1::ReadyTensor ready;  // the same, as the coordinator sent it
    LocalReductionShape shape;
    ArenaSlot slot;
    LocalReduction local_reduction;
    TensorMemory memory = {};
    std::string why_not_on_device = {};         // the reason, if a rank requested it
    uint64_t charged = 0;                       // of the quota, for its compression
    std::bitset<kLocalRanksMax> users = {};     // by local rank: they know the tensor
    std::bitset<kLocalRanksMax> released = {};  // by local rank: they do not use it any more
    // By local rank: they do not use it any more, but have views of it.
    std::bitset<kLocalRanksMax> viewed = {};
    bool retired = false;  // the engine is removing it

    const TensorSpec& spec() const { return plan.spec; }
    // Null: in the arena.
    DeviceTensor* device() const {
      const auto* const gpu = std::get_if<GpuMemory>(&memory);
      return gpu == nullptr ? nullptr : gpu->device.get();
    }
  };
  void add_ranks(v1::RunningJob& part) const;
  void add_tensor(uint32_t id, const PlacedTensor& placed, v1::RunningJob& part) const;
  Result<std::vector<TensorPlan>> plans_from(const v1::TensorsReady& ready) const;
  Status place_one(const v1::ReadyTensor& ready, TensorPlan plan);
  Status charge(uint64_t bytes, const std::string& what);
  bool may_be_pinned() const;
  uint32_t agents() const { return static_cast<uint32_t>(started_.agents_size()); }
  LocalReductionShape shape_of(const TensorPlan& plan) const;
  Status charge_compression(PlacedTensor& placed);
  void put_on_devices(PlacedTensor& placed);
  Status fits_devices(const PlacedTensor& placed) const;
  Status make_on_devices(PlacedTensor& placed,
                         const std::vector<std::optional<WantedDevice>>& wanted, DevicePlan plan);
  struct DeferredTensor {
    v1::ReadyTensor ready;
    AddTensor add;
    uint32_t rank_buffer = 0;  // in the NCCL process
  };
  Status hold(const v1::ReadyTensor& ready, AddTensor add);
  Status may_go_by_nccl(const PlacedTensor& placed);
  Status start_nccl(uint32_t device);
  void report_nccl(uint32_t tensor, const Status& status);
  static Fd share_descriptor(const DeviceTensor& device, const AttachedClient& client,
                             RegisteredPacket& packet);
  void tell_sharing(const DevicePlan& plan);
  void tell_nccl(const PlacedTensor& placed, const Status& why_not);
  std::vector<LocalReductionShape> shapes_of_new(const std::vector<TensorPlan>& plans) const;
  template <typename Packet>
  void send_all(const Packet& packet);
  void announce_segments();
  void answer(const v1::ReadyTensor& ready, const std::set<uint32_t>& ranks);
  Status join_clients(uint32_t cores);
  StartJob engine_start() const;
  void report_boards(v1::JobCounters& counters, size_t& room) const;

  const v1::JobStarted started_;
  const uint32_t agent_index_;
  uint64_t incarnation_;                  // of the coordinator that knows the job
  std::vector<AttachedClient*> clients_;  // by local rank; null: gone
  std::vector<uint32_t> local_ranks_;
  std::vector<uint64_t> pids_;  // of the local ranks
  std::vector<std::shared_ptr<Channel>> channels_;
  Arena arena_;
  ShmQuota& quota_;
  uint64_t charged_ = 0;  // of the quota, in addition to the arena
  Devices& devices_;
  const NcclUse& nccl_;
  Engine& engine_;
  std::shared_ptr<JobTraffic> traffic_ = std::make_shared<JobTraffic>();
  std::shared_ptr<FidelityBoard> fidelity_ = std::make_shared<FidelityBoard>();
  std::shared_ptr<StalenessBoard> staleness_ = std::make_shared<StalenessBoard>();
  std::shared_ptr<JobTrace> trace_ = std::make_shared<JobTrace>();
  std::vector<ShardSet> shard_sets_;                 // by placement
  int shards_known_ = 0;                             // to the engine
  std::map<uint32_t, PlacedTensor> tensors_;         // by id
  std::map<std::string, uint32_t> newest_;           // name -> id
  uint32_t tensor_last_ = 0;                         // the highest id that the coordinator has sent
  std::optional<v1::ShardsChanged> shards_changed_;  // the latest one
  // Of removed tensors: memory that the NCCL process has opened lives as long as the job
  std::vector<std::shared_ptr<DeviceTensor>> kept_for_nccl_;
  std::map<uint32_t, DeferredTensor>
      deferred_;                         // until all nodes have reported whether NCCL carries them
  std::optional<uint32_t> nccl_device_;  // device of the NCCL process; empty: not started
  Status no_nccl_;                       // why NCCL cannot be used
  std::optional<NcclId> nccl_id_;        // from agent 0, after its creation
  uint32_t nccl_rank_buffers_ = 0;       // rank buffers that the process has to open
  std::vector<v1::NcclReport> nccl_reports_;
  std::shared_ptr<uint64_t> nccl_turns_ = std::make_shared<uint64_t>(0);  // shared with the engine
  bool told_sharing_ = false;
  bool told_by_nccl_ = false;
  bool told_no_nccl_ = false;
  size_t announced_segments_ = 1;  // the first one goes with Joined
  Nanos deserted_since_ = 0;
  JobTracer tracer_;
  bool failed_ = false;
  Status failure_;
};

}  // namespace gradbus
