// Agents that exist only as streams to the coordinator, and callers that ask it all at once.
//
//   fake_nodes ADDRESS nodes COUNT RANKS   COUNT agents attach; each has RANKS ranks, 32 agents
//   share
//                                          a job, which never becomes complete. Prints "ready" and
//                                          keeps their leases until its standard input ends.
//   fake_nodes ADDRESS status CALLS        that many Status calls at once; prints how many had an
//                                          answer, and how many were refused: "answered 400 refused
//                                          0"
//
// GRADBUS_TOKEN_FILE names the cluster token.
#include <grpcpp/grpcpp.h>
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/trust/handshake.h"
#include "common/trust/token_file.h"
#include "gradbus/v1/coordinator.grpc.pb.h"
#include "proto/control.h"

namespace {

using namespace gradbus;
using Stub = std::unique_ptr<v1::Coordinator::Stub>;

constexpr int kAgentsPerJob = 32;
constexpr int kAgentsPerChannel = 64;
constexpr auto kDeadline = std::chrono::seconds(120);

Stub open_stub(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return v1::Coordinator::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

bool prove(v1::Coordinator::Stub& stub, const Secret& token, const char* method,
           const std::string& request, grpc::ClientContext& context) {
  const CallProof proof(token);
  grpc::ClientContext challenge_context;
  challenge_context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  v1::ChallengeRequest challenge;
  challenge.set_nonce(proof.nonce());
  v1::ChallengeReply answer;
  if (!stub.Challenge(&challenge_context, challenge, &answer).ok()) return false;
  context.AddMetadata(kProofKey, proof.metadata(answer.nonce(), method, request));
  return true;
}

struct Agent {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::CoordinatorMessage>> stream;
};

bool attach(v1::Coordinator::Stub& stub, const Secret& token, int number, uint32_t ranks,
            Agent& agent) {
  if (!prove(stub, token, "Attach", "", agent.context)) return false;
  agent.stream = stub.Attach(&agent.context);
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_name("fake-" + std::to_string(number));
  hello.set_protocol(kControlProtocol);
  (*hello.mutable_addresses())["tcp"] = "127.0.0.1:1";
  if (!agent.stream->Write(message)) return false;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    v1::JoinJob& join = *message.mutable_join_job();
    join.set_job("fake-" + std::to_string(number / kAgentsPerJob));
    join.set_rank(static_cast<uint32_t>(number % kAgentsPerJob) * ranks + rank);
    join.set_world_size(kAgentsPerJob * ranks);
    join.set_pid(1);
    join.set_start_timeout_ms(3'600'000);
    if (number % kAgentsPerJob == 0 && rank == 0) join.set_world_size(kAgentsPerJob * ranks);
    // One rank of each job stays away, so that it never starts.
    if (number % kAgentsPerJob == kAgentsPerJob - 1 && rank + 1 == ranks) continue;
    if (!agent.stream->Write(message)) return false;
  }
  return true;
}

int run_nodes(const std::string& address, const Secret& token, int count, uint32_t ranks) {
  std::vector<Stub> stubs;
  std::vector<std::unique_ptr<Agent>> agents;
  for (int number = 0; number < count; ++number) {
    if (number % kAgentsPerChannel == 0) stubs.push_back(open_stub(address));
    agents.push_back(std::make_unique<Agent>());
    if (!attach(*stubs.back(), token, number, ranks, *agents.back())) return 1;
  }
  std::printf("ready\n");
  std::fflush(stdout);
  pollfd input{.fd = 0, .events = POLLIN, .revents = 0};
  while (poll(&input, 1, 500) == 0) {
    v1::AgentMessage message;
    message.mutable_heartbeat();
    for (const auto& agent : agents) agent->stream->Write(message);
  }
  std::_Exit(0);
}

int run_status(const std::string& address, const Secret& token, int calls) {
  struct Ask {
    grpc::ClientContext context;
    v1::StatusRequest request;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::StatusReply>> reader;
    v1::StatusReply reply;
  };
  const Stub stub = open_stub(address);
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Ask>> asks;
  for (int i = 0; i < calls; ++i) {
    Ask& ask = *asks.emplace_back(std::make_unique<Ask>());
    ask.context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    if (!prove(*stub, token, "Status", "", ask.context)) return 1;
  }
  for (auto& ask : asks) {
    ask->reader = stub->AsyncStatus(&ask->context, ask->request, &queue);
    ask->reader->Finish(&ask->reply, &ask->status, ask.get());
  }
  int answered = 0, refused = 0;
  void* tag = nullptr;
  for (bool ok = false; answered + refused < calls && queue.Next(&tag, &ok);) {
    Ask& ask = *static_cast<Ask*>(tag);
    ask.reply.Clear();
    ask.status.ok() ? ++answered : ++refused;
    if (!ask.status.ok()) std::fprintf(stderr, "%s\n", ask.status.error_message().c_str());
  }
  std::printf("answered %d refused %d\n", answered, refused);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const char* file = std::getenv("GRADBUS_TOKEN_FILE");
  const auto token = read_token_file(file == nullptr ? "" : file);
  if (!token.ok()) return 2;
  const std::string verb = argv[2];
  if (verb == "status") return run_status(argv[1], token.value(), std::atoi(argv[3]));
  if (verb == "nodes" && argc == 5)
    return run_nodes(argv[1], token.value(), std::atoi(argv[3]),
                     static_cast<uint32_t>(std::atoi(argv[4])));
  return 2;
}
