// One job of this node's ranks inside the engine: their posted rounds, its collectives, and its
// links.
//
// Engine thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "data_plane/data_job.h"
#include "data_plane/ended_links.h"
#include "data_plane/job_links.h"
#include "transport/transport.h"
#include "worker_agent/data/engine_tensor.h"
#include "worker_agent/data/ordered_starts.h"
#include "worker_agent/job/worker_commands.h"

namespace gradbus {

class WorkerDataJob final : public DataJob {
 public:
  WorkerDataJob(StartJob start, Transport* transport);
  ~WorkerDataJob() override;
  WorkerDataJob(const WorkerDataJob&) = delete;
  WorkerDataJob& operator=(const WorkerDataJob&) = delete;

  uint64_t id() const override { return start_.job; }
  bool remote() const override { return start_.agents + start_.shards > 1; }
  size_t clients() const override { return start_.channels.size(); }
  std::vector<int> doorbells() const override;
  const StartJob& start() const { return start_; }
  Status add_tensor(AddTensor add);

  // ---- its NCCL process (worker_data_job_nccl.cc)
  void start_nccl(std::unique_ptr<NcclQueue> queue, std::shared_ptr<Mailbox<NcclEvent>> events);
  void order_nccl(const NcclQueue::Order& order);

  // ---- one turn
  //
  // Reads the clients' submissions, computes local sums, posts frames. Returns how much it did.
  size_t do_work() override;
  bool idle() const override;  // no client has submitted anything that is not taken yet
  // Before the engine sleeps (true) and after: tells the clients whether to ring.
  void set_sleeping(bool sleeping) override;

  // ---- events of its links
  bool owns(LinkId link) const override;
  bool knows_peer(uint32_t peer) const override { return peer < links_->peers(); }
  Status on_accepted(LinkId link, const FrameHeader& hello) override;
  void on_connected(LinkId link) override { links_->connected(link); }
  void on_sent(const TransportEvent& event) override;
  void on_received(const TransportEvent& event) override;
  void on_closed(const TransportEvent& event, const std::string& why) override;

  void expect_reports_by(Nanos at) override { ended_links_.expect_reports_by(at); }
  void lose_shard(uint32_t shard) override;
  void add_shards(const AddShards& command) override;
  void remove_tensor(const RemoveTensor& command) override;
  Nanos wake_at() const override { return ended_links_.wake_at(); }

  void fail(const Status& status) override;
  // The first error; ok while the job works.
  const Status& broken() const override { return broken_; }
  void end() override;
  bool ended() const override { return links_ == nullptr || links_->closed(); }

 private:
  struct EarlyCredit {  // for a tensor not registered here yet
    OperationId operation;
    uint32_t from = 0;
    uint64_t round = 0;
  };
  Status open_tensor(EngineTensor& tensor);
  Status open_operation(CollectiveOperation& operation);
  size_t take_submissions(uint32_t local_rank);
  std::string who(uint32_t local_rank) const;
  std::string describe_peer(uint32_t peer) const;
  std::string with_tensor_name(const std::string& why) const;
  void on_submission(uint32_t local_rank, const Submission& record);
  void begin(EngineTensor& tensor);
  size_t reduce_local();
  size_t assist();
  size_t resume_coded();
  size_t run_nccl();
  // ---- tensors that no rank uses any more (worker_data_job_retire.cc)
  size_t retire();
  void forget(EngineTensor& tensor);
  bool is_retired(uint32_t id) const { return id < retired_.size() && retired_[id]; }
  void take_turn(const CollectiveOperation& operation, uint64_t number);
  void on_nccl_ended(const NcclQueue::Ended& ended);
  void run_actions(CollectiveOperation& operation);
  void run_queue();
  void carry_out_actions(CollectiveOperation& operation);
  void run(CollectiveOperation& operation, const Action& action);
  void proceed(EngineTensor& tensor, const Status& status);
  void send_data(CollectiveOperation& operation, const Action& action);
  void send_credit(CollectiveOperation& operation, const Action& action);
  std::span<const std::byte> payload(const CollectiveOperation& operation,
                                     const Action& action) const;
  void on_credit(uint32_t from, const FrameHeader& header);
  void on_credit(CollectiveOperation& operation, uint32_t from, uint64_t round);
  void on_data(uint32_t from, const FrameHeader& header, uint32_t buffer);
  Status check_frame(const TransportEvent& event, const FrameHeader& header) const;
  void finish(EngineTensor& tensor);
  void count_round(const EngineTensor& tensor) const;
  void push_completion(uint32_t local_rank, const CompletionRecord& record);
  size_t flush_completions();
  EngineTensor* tensor(uint32_t id);
  CollectiveOperation* operation(OperationId id);
  Result<RegionId> region_of(const std::shared_ptr<Segment>& segment);
  bool may_lose(uint32_t peer) const;
  // Null while the job is not traced.
  RoundTrace* traced(EngineTensor& tensor) const {
    return start_.trace->on() ? &tensor.trace() : nullptr;
  }
  RoundTrace* traced(const CollectiveOperation& operation) const {
    return traced(*tensors_[operation.id().tensor]);
  }
  void note(EngineTensor& tensor, TraceKind kind, uint64_t bytes = 0) const {
    if (start_.trace->on()) tensor.trace().note(kind, transport_->now(), bytes);
  }

  const StartJob start_;
  Transport* transport_;
  std::unique_ptr<JobLinks> links_;
  std::vector<std::unique_ptr<EngineTensor>> tensors_;  // by id, with holes
  size_t live_ = 0;                                     // of them
  std::vector<bool> retired_;                           // by id
  std::vector<RemoveTensor> retiring_;                  // tensors with frames in flight
  std::vector<EngineTensor*> reducing_;                 // rounds whose local sum is not complete
  std::vector<EngineTensor*> coding_;                   // ... whose next data GPUs are encoding
  std::vector<EngineTensor*> assisting_;                // tensors of one node with chunks to claim
  std::vector<EarlyCredit> early_credits_;
  std::vector<std::pair<std::shared_ptr<Segment>, RegionId>> regions_;
  std::vector<std::optional<Submission>> deferred_;      // by local rank: of a tensor not yet added
  std::vector<std::vector<CompletionRecord>> overflow_;  // by local rank: the ring was full
  std::vector<Action> actions_;
  OperationQueue queue_;
  OrderedStarts starts_;        // of rounds with a byte budget
  std::vector<uint32_t> lost_;  // shards, as peers
  EndedLinks ended_links_;
  StartNccl nccl_;  // without a queue: no tensor uses NCCL
  Status broken_;   // also when it has ended
};

}  // namespace gradbus
