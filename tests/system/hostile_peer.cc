// A node of the cluster that means harm. tests/system/faults/test_hostile_calls.py starts it. It
// attaches with the token, takes rank 1 of jobs whose rank 0 is an honest client of a real agent,
// and sends frames with wrong fields and payloads to that agent and to the job's shards.
//
//   hostile_peer ADDRESS SEED JOBS SOCKET
//
// SEED decides everything. Prints "sent FRAMES" and "done JOBS".
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/trust/handshake.h"
#include "common/trust/token_file.h"
#include "gradbus/gradbus.hpp"
#include "gradbus/v1/coordinator.grpc.pb.h"
#include "proto/control.h"
#include "random_values.h"
#include "transport/registry.h"

namespace {

using namespace gradbus;

constexpr uint64_t kCount = 3000;
constexpr uint64_t kColumns = 100;
constexpr int kFramesPerJob = 60;
constexpr int kSlots = 8;
constexpr size_t kPayloadBytesMax = 1 << 16;

struct Wanted {
  uint8_t collective;
  const char* compression;
  const char* mode;
};
constexpr Wanted kWanted[] = {
    {GRADBUS_ALLREDUCE, "", ""},
    {GRADBUS_REDUCE, "", ""},
    {GRADBUS_ALLREDUCE, "topk:ratio=0.1", ""},
    {GRADBUS_ALLREDUCE, "int8", ""},
    {GRADBUS_ALLREDUCE, "powersgd", ""},
    {GRADBUS_ALLREDUCE, "threshold:value=0.5", ""},
    {GRADBUS_ALLREDUCE, "onebit", ""},
    {GRADBUS_ALLREDUCE, "", "ps:sync"},
    {GRADBUS_ALLREDUCE, "", "ps:async,lr=0.1"},
    {GRADBUS_ALLREDUCE, "topk:ratio=0.1", "ps:sync"},
};

uint64_t any_word() {
  return one_of<uint64_t>({0, 1, 2, 3, kCount, kCount * 4, uint64_t{1} << 31, uint64_t{1} << 32,
                           uint64_t{1} << 48, uint64_t{1} << 63, UINT64_MAX, UINT32_MAX, 0xffffff00,
                           0xfffffe00, random_()});
}

using Stream = grpc::ClientReaderWriter<v1::AgentMessage, v1::CoordinatorMessage>;

// Rank 0 of the job: everything as it should be.
void be_honest(const std::string& job, const char* socket) {
  try {
    gradbus_options options;
    gradbus_options_init(&options);
    options.socket_path = socket;
    options.job = job.c_str();
    options.rank = 0;
    options.world_size = 2;
    options.op_timeout_ms = 1000;
    Session session(options);
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < std::size(kWanted); ++i) {
      gradbus_tensor_spec spec;
      gradbus_tensor_spec_init(&spec);
      const std::string name = "t" + std::to_string(i);
      spec.name = name.c_str();
      spec.count = kCount;
      spec.dtype = GRADBUS_F32;
      spec.collective = static_cast<gradbus_collective>(kWanted[i].collective);
      spec.op = GRADBUS_SUM;
      spec.columns = kColumns;
      spec.compression = kWanted[i].compression;
      spec.mode = kWanted[i].mode;
      tensors.push_back(session.register_tensor(spec));
      std::fill_n(tensors.back().data<float>(), kCount, 1.0F);
    }
    for (Tensor& tensor : tensors) tensor.start();
    for (Tensor& tensor : tensors) tensor.wait();
  } catch (const Error&) {
    // the job ends with what the other rank's node does
  }
}

class Node {
 public:
  Node(const std::string& address, const Secret& token) {
    TransportOptions options;
    options.local_links = false;
    transport_ = find_transport("tcp")->create(options).take();
    memory_.resize(kSlots * kReceiveSlotBytes);
    region_ = transport_->register_memory(memory_).value();
    stub_ =
        v1::Coordinator::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    const CallProof proof(token);
    grpc::ClientContext context;
    v1::ChallengeRequest challenge;
    challenge.set_nonce(proof.nonce());
    v1::ChallengeReply answer;
    if (!stub_->Challenge(&context, challenge, &answer).ok()) std::exit(1);
    context_.AddMetadata(kProofKey, proof.metadata(answer.nonce(), "Attach", ""));
    stream_ = stub_->Attach(&context_);
    v1::AgentMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_name("hostile");
    hello.set_protocol(kControlProtocol);
    (*hello.mutable_addresses())["tcp"] = transport_->local_address();
    stream_->Write(message);
  }

  void run(const std::string& job, const char* socket) {
    tensors_.clear();
    links_.clear();
    std::thread honest([&] { be_honest(job, socket); });
    if (start(job)) {
      for (const v1::JobAgent& peer : started_.agents()) open_link(peer.address());
      for (const v1::JobAgent& shard : started_.shards()) open_link(shard.address());
      for (int i = 0; i < kFramesPerJob && !links_.empty(); ++i) send_frame();
    }
    v1::AgentMessage message;
    message.mutable_rank_left()->set_job_id(started_.job_id());
    message.mutable_rank_left()->set_rank(1);
    stream_->Write(message);
    honest.join();
    for (const LinkId link : links_) transport_->disconnect(link);
    turn();
  }

  uint64_t sent() const { return sent_; }

 private:
  // Joins, registers what the honest rank registers, and waits until the tensors are ready.
  bool start(const std::string& job) {
    v1::AgentMessage message;
    v1::JoinJob& join = *message.mutable_join_job();
    join.set_job(job);
    join.set_rank(1);
    join.set_world_size(2);
    join.set_pid(1);
    join.set_uid(getuid());
    join.set_start_timeout_ms(30'000);
    stream_->Write(message);
    v1::CoordinatorMessage answer;
    while (stream_->Read(&answer)) {
      if (answer.has_join_refused()) return false;
      if (answer.has_job_started()) {
        started_ = answer.job_started();
        register_all();
      }
      if (answer.has_job_failed() && answer.job_failed().job_id() == started_.job_id())
        return false;
      for (const v1::ReadyTensor& ready : answer.tensors_ready().tensors())
        tensors_.push_back(ready);
      if (answer.has_tensors_ready() && tensors_.size() == std::size(kWanted)) return true;
    }
    return false;
  }

  void register_all() {
    v1::AgentMessage message;
    v1::RegisterTensors& wanted = *message.mutable_register_tensors();
    wanted.set_job_id(started_.job_id());
    wanted.set_rank(1);
    for (size_t i = 0; i < std::size(kWanted); ++i) {
      v1::TensorSpec& spec = *wanted.add_tensors();
      spec.set_name("t" + std::to_string(i));
      spec.set_count(kCount);
      spec.set_dtype(GRADBUS_F32);
      spec.set_collective(kWanted[i].collective);
      spec.set_op(GRADBUS_SUM);
      spec.set_row_elements(1);
      spec.set_prescale(1);
      spec.set_postscale(1);
      spec.set_compression(kWanted[i].compression);
      if (*kWanted[i].compression != '\0') spec.set_columns(kColumns);
      spec.set_mode(kWanted[i].mode);
    }
    stream_->Write(message);
  }

  void open_link(const std::string& address) {
    if (address == transport_->local_address()) return;
    FrameHeader hello;
    hello.kind = static_cast<uint8_t>(FrameKind::kHello);
    hello.source = 1 - static_cast<uint32_t>(started_.members(0).agent_index());
    hello.job = started_.job_id();
    hello.epoch = started_.epoch();
    hello.total = started_.link_key();
    const Result<LinkId> link = transport_->connect(address, hello);
    if (!link.ok()) return;
    links_.push_back(link.value());
    post_receive(link.value(), 0);
    turn();
  }

  void post_receive(LinkId link, uint64_t slot) {
    (void)transport_->post_receive(link, {region_, slot * kReceiveSlotBytes, kReceiveSlotBytes},
                                   slot);
  }

  // A header that fits a tensor, in which none or some fields are wrong.
  FrameHeader any_header() {
    const v1::ReadyTensor& tensor = tensors_[below(tensors_.size())];
    FrameHeader header;
    header.kind = static_cast<uint8_t>(one_of({2, 3, 3, 3, 4, 4, 6, 8, 5, 7}));
    header.codec = static_cast<uint8_t>(
        tensor.spec().compression().empty() ? 0 : one_of<uint64_t>({4, 6, 9, 14, 17, below(20)}));
    header.dtype = static_cast<uint8_t>(tensor.spec().dtype());
    header.op = static_cast<uint8_t>(tensor.spec().op());
    header.collective = static_cast<uint8_t>(tensor.spec().collective());
    header.job = started_.job_id();
    header.epoch = started_.epoch();
    header.tensor = tensor.id();
    header.step = one_of<uint64_t>({1, 1, 1, 2, 0});
    header.source = 1;
    header.total = kCount;
    header.length = static_cast<uint32_t>(one_of<uint64_t>(
        {0, kCount * 4, kCount * 2, kCount * 4 / 2, 16, 64, below(kPayloadBytesMax)}));
    const uint64_t wrong = below(3) == 0 ? random_() : 0;
    if ((wrong & 1) != 0)
      header.operation = static_cast<uint16_t>(one_of<uint64_t>({1, 2, any_word()}));
    if ((wrong & 2) != 0) header.source = static_cast<uint32_t>(any_word());
    if ((wrong & 12) == 12) header.tensor = static_cast<uint32_t>(any_word());
    if ((wrong & 48) == 48) header.step = any_word();
    if ((wrong & 64) != 0) header.chunk = static_cast<uint32_t>(any_word());
    if ((wrong & 128) != 0) header.total = any_word();
    if ((wrong & 768) == 768) header.dtype = static_cast<uint8_t>(1 + below(14));
    if ((wrong & 3072) == 3072) header.op = static_cast<uint8_t>(below(9));
    if ((wrong & 12288) == 12288) header.collective = static_cast<uint8_t>(1 + below(8));
    if ((wrong & 49152) == 49152) header.epoch = static_cast<uint32_t>(any_word());
    return header;
  }

  void send_frame() {
    const FrameHeader header = any_header();
    const auto words = reinterpret_cast<uint32_t*>(memory_.data() + kReceiveSlotBytes);
    for (uint32_t i = 0; i < header.length / 4; ++i)
      words[i] = static_cast<uint32_t>(below(4) == 0 ? any_word() : 0x3f800000);
    // What a payload begins with: counts of elements and of entries.
    if (below(2) == 0) words[0] = static_cast<uint32_t>(kCount);
    if (below(2) == 0) words[1] = static_cast<uint32_t>(any_word());
    const LinkId link = links_[below(links_.size())];
    const Code code =
        transport_->post_send(link, header, {region_, kReceiveSlotBytes, header.length}, 1);
    sent_ += code == Code::kOk ? 1 : 0;
    turn();
  }

  // Polls for a while; accepts links and forgets those that have ended.
  void turn() {
    TransportEvent events[16];
    const Nanos end = monotonic_now() + 2 * kMillisecond;
    while (monotonic_now() < end) {
      const size_t count = transport_->poll(events);
      for (size_t i = 0; i < count; ++i) {
        const TransportEvent& event = events[i];
        if (event.kind == TransportEvent::Kind::kAccepted) post_receive(event.link, 2 + below(6));
        if (event.kind == TransportEvent::Kind::kReceived && event.code == Code::kOk)
          post_receive(event.link, event.token);
        if (event.kind == TransportEvent::Kind::kClosed) std::erase(links_, event.link);
      }
    }
  }

  std::unique_ptr<Transport> transport_;
  std::vector<std::byte> memory_;
  RegionId region_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
  v1::JobStarted started_;
  std::vector<v1::ReadyTensor> tensors_;
  std::vector<LinkId> links_;
  uint64_t sent_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const char* file = std::getenv("GRADBUS_TOKEN_FILE");
  const auto token = read_token_file(file == nullptr ? "" : file);
  if (!token.ok()) return 2;
  random_.seed(std::stoull(argv[2]));
  const int jobs = std::atoi(argv[3]);
  Node node(argv[1], token.value());
  for (int i = 0; i < jobs; ++i)
    node.run("peer-" + std::string(argv[2]) + "-" + std::to_string(i), argv[4]);
  std::printf("sent %llu\ndone %d\n", static_cast<unsigned long long>(node.sent()), jobs);
  std::fflush(stdout);
  std::_Exit(0);
}
