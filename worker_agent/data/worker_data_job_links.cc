// The links of a job in the engine: frames and credits that come, and links that end.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "common/errors.h"
#include "common/log.h"
#include "common/text/error_text.h"
#include "proto/tensor_ids.h"
#include "worker_agent/data/worker_data_job.h"

namespace gradbus {
namespace {

constexpr size_t kRanksNamedMax = 8;  // in an error

}  // namespace

bool WorkerDataJob::owns(LinkId link) const { return links_ != nullptr && links_->owns(link); }

Status WorkerDataJob::on_accepted(LinkId link, const FrameHeader& hello) {
  return links_->accept(link, hello).with_context("job \"" + start_.name + "\"");
}

void WorkerDataJob::on_sent(const TransportEvent& event) {
  if (links_->is_credit_token(event.token)) return;
  const SendRecord sent = links_->take_sent(event.link, event.token);
  const bool sent_it = event.code == Code::kOk;
  if (!broken_.ok() || !(sent_it || may_lose(sent.action.peer))) return;  // kClosed says why
  if (sent_it) {
    start_.traffic->sent_bytes.fetch_add(sent.action.bytes, std::memory_order_relaxed);
    start_.traffic->of_peer(sent.action.peer).sent_bytes.add(sent.action.bytes);
  }
  CollectiveOperation& from = *operation(sent.operation);
  EngineTensor& tensor = *tensors_[sent.operation.tensor];
  if (tensor.running()) note(tensor, TraceKind::kSend);
  from.collective().on_sent(sent.action, actions_);
  run_actions(from);
}

void WorkerDataJob::on_received(const TransportEvent& event) {
  if (event.code != Code::kOk || !broken_.ok()) return;
  if (links_->dropped(links_->peer_of(event.link))) return;
  FrameHeader header;
  std::memcpy(&header, links_->frame(event.link, event.token, sizeof(header)).data(),
              sizeof(header));
  start_.traffic->received_bytes.fetch_add(header.length, std::memory_order_relaxed);
  const uint32_t from = links_->peer_of(event.link);
  start_.traffic->of_peer(from).received_bytes.add(header.length);
  if (const Status status = check_frame(event, header); !status.ok()) return fail(status);
  if (!links_->outgoing(event.link))
    return on_data(from, header, links_->buffer_of(event.link, event.token));
  links_->release_credit(event.link, event.token);
  on_credit(from, header);
}

// Data arrives on links that peers have opened, credits on our links.
Status WorkerDataJob::check_frame(const TransportEvent& event, const FrameHeader& header) const {
  const bool credit = header.kind == static_cast<uint8_t>(FrameKind::kCredit);
  const bool ours = header.job == start_.job && header.epoch == start_.epoch;
  if (ours && credit == links_->outgoing(event.link)) return {};
  const std::string who = "a frame of agent " + std::to_string(links_->peer_of(event.link));
  if (ours)
    return error("D601", who + " has field kind " + std::to_string(header.kind) +
                             ", which does not go this way");
  return error("D601", who + " is of job " + std::to_string(header.job) + " epoch " +
                           std::to_string(header.epoch) + ", its link of job " +
                           std::to_string(start_.job) + " epoch " + std::to_string(start_.epoch));
}

void WorkerDataJob::on_credit(uint32_t from, const FrameHeader& header) {
  const OperationId id{header.tensor, header.operation};
  const bool may_start = starts_.has(header.tensor) || tensor(header.tensor) == nullptr;
  if (header.operation == kStartOperation && may_start) {
    if (is_retired(header.tensor)) return;
    if (const Status status = starts_.on_frame(from, header); !status.ok()) fail(status);
    return;
  }
  if (CollectiveOperation* credited = operation(id); credited != nullptr)
    return on_credit(*credited, from, header.step);
  if (tensor(header.tensor) != nullptr)
    return fail(error("D601", "field operation of a credit is " + std::to_string(header.operation) +
                                  ", which tensor \"" + tensor(header.tensor)->name() +
                                  "\" does not have"));
  if (is_retired(header.tensor)) return;  // for a round that will not take place
  // That node registered this tensor a little earlier.
  if (header.tensor < kTensorIdsMax && early_credits_.size() < kTensorsMax)
    early_credits_.push_back({id, from, header.step});
}

void WorkerDataJob::on_credit(CollectiveOperation& operation, uint32_t from, uint64_t round) {
  if (const Status status = operation.collective().on_credit(from, round, actions_); !status.ok())
    return fail(status);
  run_actions(operation);
}

void WorkerDataJob::on_data(uint32_t from, const FrameHeader& header, uint32_t buffer) {
  CollectiveOperation* target = operation({header.tensor, header.operation});
  if (target == nullptr && is_retired(header.tensor)) return links_->release(buffer);
  if (target == nullptr)
    return fail(error("D601", "fields tensor and operation of a frame are " +
                                  std::to_string(header.tensor) + " and " +
                                  std::to_string(header.operation) + ", not registered in job \"" +
                                  start_.name + "\""));
  note(*tensor(header.tensor), TraceKind::kReceive, header.length);
  tensor(header.tensor)->round().received(header, *target);
  const Status status = target->collective().on_frame(from, header, buffer, actions_);
  if (!status.ok())
    return fail(status.with_context("job \"" + start_.name + "\", agent " + std::to_string(from)));
  run_actions(*target);
}

// "shard 0", "node "a" (rank 2)", "node "a" (ranks 2, 3)"; at most eight ranks.
std::string WorkerDataJob::describe_peer(uint32_t peer) const {
  if (peer >= start_.agents) return "shard " + std::to_string(peer - start_.agents);
  std::string ranks;
  size_t count = 0;
  for (size_t rank = 0; rank < start_.agent_of_rank.size(); ++rank) {
    if (start_.agent_of_rank[rank] != peer || ++count > kRanksNamedMax) continue;
    ranks += (count == 1 ? "" : ", ") + std::to_string(rank);
  }
  if (count > kRanksNamedMax) ranks += ", ...";
  const std::string agent = peer < start_.node_names.size()
                                ? "node \"" + start_.node_names[peer] + "\""
                                : "agent " + std::to_string(peer);
  return count == 0 ? agent : agent + (count == 1 ? " (rank " : " (ranks ") + ranks + ")";
}

// The transport knows tensors by their numbers: "tensor 7 changed" becomes "tensor "fc1" changed".
std::string WorkerDataJob::with_tensor_name(const std::string& why) const {
  constexpr std::string_view kWord = "tensor ";
  const size_t at = why.find(kWord);
  if (at == std::string::npos) return why;
  const char* const digits = why.data() + at + kWord.size();
  uint32_t id = 0;
  const auto [end, problem] = std::from_chars(digits, why.data() + why.size(), id);
  if (problem != std::errc() || id >= tensors_.size() || tensors_[id] == nullptr) return why;
  return why.substr(0, at) + "tensor \"" + tensors_[id]->name() + "\"" + end;
}

void WorkerDataJob::on_closed(const TransportEvent& event, const std::string& why) {
  const uint32_t peer = links_->peer_of(event.link);
  links_->on_closed(event.link);
  if (links_->dropped(peer)) return;
  start_.traffic->links_lost.add(1);
  const char* corrupt = why.find("GB-D612") == std::string::npos ? "D601" : "D612";
  const Status lost =
      error(event.code == Code::kCorrupt ? corrupt : "P102",
            "job \"" + start_.name + "\": the link from " + describe_peer(start_.agent_index) +
                " to " + describe_peer(peer) + " ended" +
                (why.empty() ? "" : " (" + with_tensor_name(what_of(why)) + ")"));
  if (event.code == Code::kCorrupt || !may_lose(peer)) return fail(lost);
  ended_links_.add(peer, lost, transport_->now());
}

// ---- shards that are lost

// Not all data is lost with it, because its chunks have copies.
bool WorkerDataJob::may_lose(uint32_t peer) const {
  if (peer < start_.agents) return false;
  return std::ranges::none_of(tensors_, [&](const auto& tensor) {
    return tensor != nullptr && tensor->round().needs(peer);
  });
}

void WorkerDataJob::lose_shard(uint32_t shard) {
  const uint32_t peer = start_.agents + shard;
  if (links_ == nullptr || peer >= links_->peers() || links_->dropped(peer)) return;
  lost_.push_back(peer);
  ended_links_.forget(peer);
  links_->drop(peer);
  for (const auto& tensor : tensors_) {
    if (tensor == nullptr) continue;
    for (const auto& operation : tensor->round().operations()) {
      operation->collective().on_peer_lost(peer, actions_);
      run_actions(*operation);
    }
  }
  SendRecord unsent;
  while (links_->take_unsent(peer, unsent)) {
    CollectiveOperation& from = *operation(unsent.operation);
    from.collective().on_sent(unsent.action, actions_);
    run_actions(from);
  }
}

void WorkerDataJob::add_shards(const AddShards& command) {
  if (links_ == nullptr) return;
  links_->add_peers(command.addresses);
  for (const uint32_t shard : command.lost) lose_shard(shard);
}

}  // namespace gradbus
