// The gRPC service on a real loopback port: streams that end in every way, bytes that are garbage.
#include "server/coordinator/service.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <random>

#include "gradbus/v1/coordinator.grpc.pb.h"
#include "proto/control.h"
#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::StartsWith;

constexpr auto kDeadline = std::chrono::seconds(120);
// Well below the deadline of a stream and a lease, so that it was neither of those.
constexpr auto kAtOnce = std::chrono::seconds(15);

std::unique_ptr<Service> start_service(uint32_t lease_ms = 60'000,
                                       size_t queue_bytes_max = kQueueBytesMax) {
  ServiceOptions options;
  options.listen = "127.0.0.1:0";
  options.insecure = true;
  options.coordinator.lease_ms = lease_ms;
  options.queue_bytes_max = queue_bytes_max;
  Result<std::unique_ptr<Service>> service = Service::start(options);
  EXPECT_TRUE(service.ok()) << service.status().message();
  return service.take();
}

std::shared_ptr<grpc::Channel> open_channel(const Service& service) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(service.address(), grpc::InsecureChannelCredentials(),
                                   arguments);
}

// An agent's end of Attach.
class TestAgent {
 public:
  TestAgent(const Service& service, const std::string& name)
      : stub_(v1::Coordinator::NewStub(open_channel(service))) {
    context_.set_deadline(std::chrono::system_clock::now() + kDeadline);
    stream_ = stub_->Attach(&context_);
    v1::AgentMessage message;
    message.mutable_hello()->set_name(name);
    message.mutable_hello()->set_protocol(kControlProtocol);
    (*message.mutable_hello()->mutable_addresses())["tcp"] = "127.0.0.1:1";
    EXPECT_TRUE(stream_->Write(message));
  }
  ~TestAgent() {
    context_.TryCancel();
    v1::CoordinatorMessage rest;
    while (stream_->Read(&rest)) {
    }
    stream_->Finish();
  }

  bool join(const std::string& job, uint32_t rank, uint32_t world) {
    v1::AgentMessage message;
    message.mutable_join_job()->set_job(job);
    message.mutable_join_job()->set_rank(rank);
    message.mutable_join_job()->set_world_size(world);
    return stream_->Write(message);
  }
  bool write(const v1::AgentMessage& message) { return stream_->Write(message); }
  void half_close() { stream_->WritesDone(); }
  void cancel() { context_.TryCancel(); }

  // Questions about paths are left unanswered. An empty message when the stream has ended.
  v1::CoordinatorMessage read() {
    v1::CoordinatorMessage message;
    do {
      if (!stream_->Read(&message)) message.Clear();
    } while (message.has_measure_path());
    return message;
  }

 private:
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::CoordinatorMessage>> stream_;
};

v1::StatusReply status(const Service& service) {
  const auto stub = v1::Coordinator::NewStub(open_channel(service));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  v1::StatusReply reply;
  EXPECT_TRUE(stub->Status(&context, {}, &reply).ok());
  return reply;
}

TEST(Service, TwoAgentsStartAJobAndItIsShown) {
  const auto service = start_service();
  TestAgent a(*service, "node-a");
  TestAgent b(*service, "node-b");
  EXPECT_TRUE(a.read().has_welcome());
  EXPECT_TRUE(b.read().has_welcome());
  EXPECT_TRUE(a.join("train", 0, 2));
  EXPECT_TRUE(b.join("train", 1, 2));
  EXPECT_EQ(a.read().job_started().SerializeAsString(), b.read().job_started().SerializeAsString());
  const auto reply = status(*service);
  EXPECT_EQ(reply.version(), GRADBUS_VERSION);
  EXPECT_EQ(reply.agents_size(), 2);
  ASSERT_EQ(reply.jobs_size(), 1);
  EXPECT_EQ(reply.jobs(0).state(), "running");
}

TEST(Service, EveryWayAStreamEndsTellsTheOthers) {
  const auto service = start_service();
  for (const bool politely : {false, true}) {
    const std::string suffix = politely ? "2" : "1";
    TestAgent a(*service, "node-a" + suffix);
    TestAgent b(*service, "node-b" + suffix);
    a.read();
    b.read();
    a.join("train" + suffix, 0, 2);
    b.join("train" + suffix, 1, 2);
    EXPECT_TRUE(a.read().has_job_started());
    EXPECT_TRUE(b.read().has_job_started());
    const auto before = steady_clock::now();
    politely ? b.half_close() : b.cancel();
    const auto failed = a.read();
    EXPECT_LT(steady_clock::now() - before, kAtOnce);
    EXPECT_THAT(failed.job_failed().error().message(), StartsWith("GB-P104"));
    EXPECT_THAT(failed.job_failed().error().message(), HasSubstr("node-b"));
  }
}

TEST(Service, ARefusedAgentHearsWhyAndItsStreamEnds) {
  const auto service = start_service();
  TestAgent first(*service, "node-a");
  first.read();
  TestAgent second(*service, "node-a");
  EXPECT_THAT(second.read().refused().error().message(), StartsWith("GB-C502"));
  EXPECT_EQ(second.read().message_case(), v1::CoordinatorMessage::MESSAGE_NOT_SET);
}

TEST(Service, ASilentAgentLosesItsLease) {
  const auto service = start_service(1000);
  TestAgent agent(*service, "node-a");
  EXPECT_TRUE(agent.read().has_welcome());
  EXPECT_THAT(agent.read().refused().error().message(), HasSubstr("lease has ended"));
  EXPECT_EQ(agent.read().message_case(), v1::CoordinatorMessage::MESSAGE_NOT_SET);
}

TEST(Service, AnAdministratorStopsAJob) {
  const auto service = start_service();
  TestAgent agent(*service, "node-a");
  agent.read();
  agent.join("train", 0, 1);
  EXPECT_TRUE(agent.read().has_job_started());
  const auto stub = v1::Coordinator::NewStub(open_channel(*service));
  v1::StopJobRequest request;
  request.set_job("train");
  request.mutable_caller();  // root
  v1::StopJobReply reply;
  grpc::ClientContext context;
  EXPECT_TRUE(stub->StopJob(&context, request, &reply).ok());
  EXPECT_EQ(reply.error().code(), 0u);
  EXPECT_THAT(agent.read().job_failed().error().message(), StartsWith("GB-J405"));
  grpc::ClientContext again;
  EXPECT_TRUE(stub->StopJob(&again, request, &reply).ok());
  EXPECT_THAT(reply.error().message(), StartsWith("GB-J406"));
}

TEST(Service, AnAgentThatNeverReadsLosesItsStream) {
  const auto service = start_service(60'000, 2 << 20);
  TestAgent agent(*service, "node-a");
  // Each name is refused, which is an answer of 1 MiB: the third that is not read is too much.
  v1::AgentMessage message;
  message.mutable_register_tensors()->set_job_id(1);
  for (int i = 0; i < kTensorsPerMessageMax; ++i) {
    message.mutable_register_tensors()->add_tensors()->set_name(std::to_string(i));
  }
  // Sooner than the deadline of the agent's own call, which would end the stream too.
  const auto deadline = steady_clock::now() + kDeadline / 2;
  while (agent.write(message)) ASSERT_LT(steady_clock::now(), deadline);
  while (status(*service).agents_size() > 0) ASSERT_LT(steady_clock::now(), deadline);
}

TEST(Service, StoppingWithOpenStreamsIsQuick) {
  auto service = start_service();
  TestAgent a(*service, "node-a");
  TestAgent b(*service, "node-b");
  a.read();
  b.read();
  const auto before = steady_clock::now();
  service->stop();
  EXPECT_LT(steady_clock::now() - before, kAtOnce);
  EXPECT_EQ(a.read().message_case(), v1::CoordinatorMessage::MESSAGE_NOT_SET);
}

// ---- garbage ----

TEST(Service, GarbageOnThePortHurtsNobody) {
  const auto service = start_service();
  TestAgent agent(*service, "node-a");
  EXPECT_TRUE(agent.read().has_welcome());
  std::mt19937 random(3);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(uint16_t(std::stoi(service->address().substr(10))));
  for (int i = 0; i < 50; ++i) {
    std::string bytes = i % 2 ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" : "";  // past the preface, too
    for (int n = 0; n < 2000; ++n) bytes.push_back(char(random()));
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    static_cast<void>(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  agent.join("train", 0, 1);
  EXPECT_TRUE(agent.read().has_job_started());
}

// One call with raw bytes; returns the first answer's bytes, "" when the call failed.
std::string call_raw(const Service& service, const std::string& method,
                     const std::string& request) {
  grpc::GenericStub stub(open_channel(service));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  grpc::CompletionQueue queue;
  const auto succeeded = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  bool ok = succeeded();
  const grpc::Slice slice(request);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  ok = succeeded() && ok;
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  ok = succeeded() && ok;
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  succeeded();
  queue.Shutdown();
  grpc::Slice answer;
  return ok && reply.DumpToSingleSlice(&answer).ok()
             ? std::string(reinterpret_cast<const char*>(answer.begin()), answer.size())
             : "";
}

TEST(Service, GarbageMessagesEndTheirCallOnly) {
  const auto service = start_service();
  std::mt19937 random(5);
  for (const std::string method : {"Attach", "Status", "StopJob", "NoSuchCall"}) {
    std::string bytes(500, '\xff');
    EXPECT_EQ(call_raw(*service, "/gradbus.v1.Coordinator/" + method, bytes), "") << method;
    bytes.assign(size_t{kControlMessageBytesMax} + 1000, '\0');
    EXPECT_EQ(call_raw(*service, "/gradbus.v1.Coordinator/" + method, bytes), "") << method;
  }
  EXPECT_EQ(status(*service).agents_size(), 0);
}

TEST(Service, HealthAndReflectionAnswer) {
  const auto service = start_service();
  EXPECT_EQ(call_raw(*service, "/grpc.health.v1.Health/Watch", ""), "\x08\x01");  // SERVING
  const std::string list_services("\x3a\x00", 2);
  EXPECT_THAT(call_raw(*service, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                       list_services),
              HasSubstr("gradbus.v1.Coordinator"));
}

// ---- addresses ----

TEST(Service, APortInUseIsAnError) {
  const auto service = start_service();
  ServiceOptions options;
  options.listen = service->address();
  options.insecure = true;
  const auto second = Service::start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), StartsWith("GB-D603"));
  EXPECT_THAT(second.status().message(), HasSubstr(service->address()));
  EXPECT_THAT(second.status().message(), HasSubstr("in use"));
}

TEST(Service, OnlyAUnixSocketWithoutATokenOrAskingForIt) {
  for (const char* address : {"0.0.0.0:0", "127.0.0.1:0", "localhost:0", "[::1]:0"}) {
    ServiceOptions options;
    options.listen = address;
    const auto refused = Service::start(options);
    ASSERT_FALSE(refused.ok()) << address;
    EXPECT_THAT(refused.status().message(), HasSubstr("--insecure-i-understand"));
    EXPECT_THAT(refused.status().message(), HasSubstr("--token-file"));
  }
  ServiceOptions options;
  options.listen =
      "unix:" + testing::TempDir() + "service_test-" + std::to_string(getpid()) + ".sock";
  const auto service = Service::start(options);
  ASSERT_TRUE(service.ok()) << service.status().message();
  struct stat info {};
  ASSERT_EQ(stat(options.listen.substr(5).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  EXPECT_EQ(status(*service.value()).agents_size(), 0);
  const auto second = Service::start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), StartsWith("GB-D603"));
  EXPECT_EQ(status(*service.value()).agents_size(), 0) << "the first one still answers";
}

TEST(ListenAddressTest, IsParsed) {
  struct Row {
    const char* text;
    const char* host;  // nullptr: not an address
  };
  const Row rows[] = {{"127.0.0.1:7400", "127.0.0.1"},
                      {"127.9.9.9:1", "127.9.9.9"},
                      {"localhost:0", "localhost"},
                      {"[::1]:7400", "::1"},
                      {"10.0.0.1:7400", "10.0.0.1"},
                      {"[::]:1", "::"},
                      {"node-a:7400", "node-a"},
                      {"127.0.0.1", nullptr},
                      {":7400", nullptr},
                      {"127.0.0.1:", nullptr},
                      {"127.0.0.1:65536", nullptr},
                      {"127.0.0.1:-1", nullptr},
                      {"127.0.0.1:80x", nullptr},
                      {"::1:7400", nullptr},
                      {"[]:1", nullptr},
                      {"unix:/run/gradbus/c.sock", ""},
                      {"unix:relative", nullptr},
                      {"unix:", nullptr},
                      {"", nullptr}};
  for (const Row& row : rows) {
    const auto address = parse_listen_address(row.text);
    ASSERT_EQ(address.ok(), row.host != nullptr) << row.text;
    if (!address.ok()) continue;
    EXPECT_EQ(address.value().host, row.host);
    EXPECT_EQ(address.value().text(), row.text);
  }
}

}  // namespace
}  // namespace gradbus
