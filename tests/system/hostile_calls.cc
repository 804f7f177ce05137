// A caller that knows the cluster token and means harm: an agent or a tool that is broken, or of
// another version. tests/system/faults/test_hostile_calls.py starts it.
//
//   hostile_calls ADDRESS calls SEED COUNT
//     a message of more than 4 MiB to every method; then as many calls of each: random messages,
//     cut ones, random bytes; proven and not
//   hostile_calls ADDRESS streams SEED COUNT
//     as many agents or shards, which say Hello, join jobs and send random messages of every kind
//   hostile_calls ADDRESS proofs SEED COUNT
//     every method without a proof; proofs used twice, of other requests, cut, changed
//
// Messages are made from their descriptors, so new methods and fields are covered. SEED decides
// them. Prints "done COUNT", for calls "refused N of METHODS" of the large messages, and for
// proofs "accepted N" of the wrong ones.
#include <google/protobuf/dynamic_message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/trust/handshake.h"
#include "common/trust/token_file.h"
#include "gradbus/v1/coordinator.grpc.pb.h"
#include "proto/control.h"
#include "random_values.h"

namespace {

using namespace gradbus;
namespace pb = google::protobuf;

constexpr auto kDeadline = std::chrono::seconds(20);
constexpr int kMessagesPerStream = 60;
constexpr size_t kLargeBytes = (4 << 20) + 1;

std::vector<uint64_t> known_;  // ids of jobs that the coordinator has named

uint64_t any_number() {
  if (!known_.empty() && below(3) == 0) return known_[below(known_.size())];
  return one_of<uint64_t>({0, 0, 1, 1, 2, 3, 4, 16, 1000, uint64_t{1} << 31, uint64_t{1} << 32,
                           uint64_t{1} << 40, uint64_t{1} << 63, UINT64_MAX, UINT32_MAX,
                           random_()});
}

double any_double() {
  return one_of({0.0, 1.0, -1.0, 1e-300, 1e300, std::numeric_limits<double>::infinity(),
                 std::numeric_limits<double>::quiet_NaN()});
}

std::string any_text() {
  if (below(60) == 0) return std::string(below(5000), 'x');
  return one_of({"", "a", "b", "job", "prey", "w", "sync", "ps:sync", "ps:async,lr=0.1",
                 "topk:ratio=0.1", "int8", "tcp", "127.0.0.1:1", "*", "[2,4]", "\n", "%s",
                 "x\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                 "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                 "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"});
}

void fill(pb::Message& message, int depth);

// A map's entries are messages for reflection, too.
void set_field(pb::Message& message, const pb::FieldDescriptor* field, int depth) {
  const pb::Reflection& reflection = *message.GetReflection();
  const bool many = field->is_repeated();
#define GRADBUS_SET(kind, value)                         \
  many ? reflection.Add##kind(&message, field, (value))  \
       : reflection.Set##kind(&message, field, (value)); \
  return
  using Type = pb::FieldDescriptor;
  switch (field->cpp_type()) {
    case Type::CPPTYPE_INT32: GRADBUS_SET(Int32, static_cast<int32_t>(any_number()));
    case Type::CPPTYPE_INT64: GRADBUS_SET(Int64, static_cast<int64_t>(any_number()));
    case Type::CPPTYPE_UINT32: GRADBUS_SET(UInt32, static_cast<uint32_t>(any_number()));
    case Type::CPPTYPE_UINT64: GRADBUS_SET(UInt64, any_number());
    case Type::CPPTYPE_DOUBLE: GRADBUS_SET(Double, any_double());
    case Type::CPPTYPE_FLOAT: GRADBUS_SET(Float, static_cast<float>(any_double()));
    case Type::CPPTYPE_BOOL: GRADBUS_SET(Bool, below(2) == 0);
    case Type::CPPTYPE_ENUM: GRADBUS_SET(EnumValue, static_cast<int>(below(5)));
    case Type::CPPTYPE_STRING: GRADBUS_SET(String, any_text());
    case Type::CPPTYPE_MESSAGE:
      if (depth == 0) return;
      fill(many ? *reflection.AddMessage(&message, field)
                : *reflection.MutableMessage(&message, field),
           depth - 1);
  }
#undef GRADBUS_SET
}

void fill(pb::Message& message, int depth) {
  const pb::Descriptor& kind = *message.GetDescriptor();
  for (int i = 0; i < kind.field_count(); ++i) {
    const pb::FieldDescriptor* field = kind.field(i);
    const bool choice = field->containing_oneof() != nullptr;
    if (below(choice ? static_cast<uint64_t>(field->containing_oneof()->field_count()) : 5) ==
        (choice ? 0 : 4))
      continue;
    for (uint64_t left = field->is_repeated() ? below(4) : 1; left > 0; --left)
      set_field(message, field, depth);
  }
}

std::unique_ptr<pb::Message> new_message(const pb::Descriptor* kind) {
  const pb::Message* prototype = pb::MessageFactory::generated_factory()->GetPrototype(kind);
  return std::unique_ptr<pb::Message>(prototype->New());
}

class Cluster {
 public:
  Cluster(const std::string& address, const Secret& token)
      : token_(token),
        channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        stub_(v1::Coordinator::NewStub(channel_)),
        generic_(channel_) {}

  v1::Coordinator::Stub& stub() { return *stub_; }

  std::string proof_of(const std::string& method, const std::string& request) {
    const CallProof proof(token_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    v1::ChallengeRequest challenge;
    challenge.set_nonce(proof.nonce());
    v1::ChallengeReply answer;
    if (!stub_->Challenge(&context, challenge, &answer).ok()) return "";
    return proof.metadata(answer.nonce(), method, request);
  }

  grpc::Status call(const std::string& method, const std::string& bytes, const std::string& proof) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    if (!proof.empty()) context.AddMetadata(kProofKey, proof);
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::CompletionQueue queue;
    const auto reader =
        generic_.PrepareUnaryCall(&context, "/gradbus.v1.Coordinator/" + method, request, &queue);
    reader->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    reader->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }

 private:
  const Secret token_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  grpc::GenericStub generic_;
};

std::string any_bytes(const pb::MethodDescriptor& method) {
  const auto request = new_message(method.input_type());
  fill(*request, 3);
  std::string bytes = request->SerializeAsString();
  const uint64_t wrong = below(8);
  if (wrong == 0) bytes.resize(below(bytes.size() + 1));
  if (wrong == 1)
    for (char& byte : bytes)
      if (below(6) == 0) byte = static_cast<char>(random_());
  return bytes;
}

const pb::ServiceDescriptor& coordinator_service() {
  return *v1::StatusRequest::descriptor()->file()->FindServiceByName("Coordinator");
}

void run_calls(Cluster& cluster, int count) {
  const pb::ServiceDescriptor& service = coordinator_service();
  const std::string large(kLargeBytes, 'x');
  int refused = 0;
  for (int m = 0; m < service.method_count(); ++m) {
    const std::string& method = service.method(m)->name();
    const grpc::Status status = cluster.call(method, large, cluster.proof_of(method, large));
    refused += status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ? 1 : 0;
  }
  std::printf("refused %d of %d\n", refused, service.method_count());
  for (int i = 0; i < count; ++i)
    for (int m = 0; m < service.method_count(); ++m) {
      const pb::MethodDescriptor& method = *service.method(m);
      const std::string bytes = any_bytes(method);
      const bool proven = below(8) != 0;
      (void)cluster.call(method.name(), bytes,
                         proven ? cluster.proof_of(method.name(), bytes) : "");
    }
}

v1::AgentMessage hello(int number, bool shard) {
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_name("hostile-" + std::to_string(number));
  hello.set_version("0.1.0");
  hello.set_protocol(kControlProtocol);
  (*hello.mutable_addresses())["tcp"] = "127.0.0.1:1";
  hello.set_shard(shard);
  return message;
}

// A job of its own, which starts at once: later messages are about it.
v1::AgentMessage join(int number) {
  v1::AgentMessage message;
  v1::JoinJob& join = *message.mutable_join_job();
  join.set_job("hostile-" + std::to_string(number));
  join.set_world_size(1);
  join.set_pid(1);
  join.set_start_timeout_ms(1000);
  return message;
}

v1::AgentMessage any_message() {
  v1::AgentMessage message;
  const pb::Descriptor& kind = *v1::AgentMessage::descriptor();
  set_field(message, kind.field(static_cast<int>(below(static_cast<uint64_t>(kind.field_count())))),
            4);
  if (message.has_goodbye() && below(10) != 0) message.mutable_heartbeat();
  return message;
}

void run_stream(Cluster& cluster, int number) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  context.AddMetadata(kProofKey, cluster.proof_of("Attach", ""));
  const auto stream = cluster.stub().Attach(&context);
  const bool shard = below(4) == 0;
  if (below(20) != 0) (void)stream->Write(hello(number, shard));
  if (!shard) (void)stream->Write(join(number));
  v1::CoordinatorMessage answer;
  while (!shard && stream->Read(&answer)) {
    if (!answer.has_job_started()) continue;
    known_ = {answer.job_started().job_id()};
    break;
  }
  for (int i = 0; i < kMessagesPerStream; ++i)
    if (!stream->Write(any_message())) break;
  if (below(2) == 0) stream->WritesDone();
  usleep(static_cast<useconds_t>(below(2000)));
  context.TryCancel();
  (void)stream->Finish();
}

int run_proofs(Cluster& cluster, int count) {
  int accepted = 0;
  const auto try_proof = [&](const std::string& method, const std::string& request,
                             std::string proof) {
    accepted += cluster.call(method, request, proof).ok() ? 1 : 0;
  };
  const pb::ServiceDescriptor& service = coordinator_service();
  for (int m = 0; m < service.method_count(); ++m)
    if (service.method(m)->name() != "Challenge") try_proof(service.method(m)->name(), "", "");
  v1::StatusRequest of_job;
  of_job.set_job("x");
  for (int i = 0; i < count; ++i) {
    const std::string proof = cluster.proof_of("Status", "");
    try_proof("Status", of_job.SerializeAsString(), proof);  // another request
    if (!cluster.call("Status", "", cluster.proof_of("Status", "")).ok()) return 1;
    const std::string used = cluster.proof_of("Events", "");
    if (!cluster.call("Events", "", used).ok()) return 1;
    try_proof("Events", "", used);                            // a second time
    try_proof("Status", "", cluster.proof_of("Events", ""));  // another method
    std::string changed = cluster.proof_of("Status", "");
    changed[below(changed.size())] ^= static_cast<char>(1 + below(255));
    try_proof("Status", "", changed);
    try_proof("Status", "", changed.substr(0, below(changed.size())));
    try_proof("Status", "", std::string(changed.size(), '\0'));
    try_proof("Status", "", changed + changed);
  }
  std::printf("accepted %d\n", accepted);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const char* file = std::getenv("GRADBUS_TOKEN_FILE");
  const auto token = read_token_file(file == nullptr ? "" : file);
  if (!token.ok()) return 2;
  Cluster cluster(argv[1], token.value());
  const std::string verb = argv[2];
  const int count = std::atoi(argv[4]);
  random_.seed(std::stoull(argv[3]));
  if (verb == "calls") run_calls(cluster, count);
  if (verb == "streams")
    for (int i = 0; i < count; ++i) run_stream(cluster, i);
  if (verb == "proofs" && run_proofs(cluster, count) != 0) return 1;
  std::printf("done %d\n", count);
}
