#include "cli/cluster/coordinator_client.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "cli/cluster/cluster_token.h"
#include "cli/cluster/node_settings.h"
#include "common/endpoint.h"
#include "common/errors.h"
#include "common/trust/handshake.h"
#include "common/trust/token_file.h"
#include "common/user_name.h"

namespace gradbus {
namespace {

// A status of 4096 ranks and 4096 tensors for each of many jobs; we asked for it, so it may be
// large.
constexpr int kReplyBytesMax = 256 << 20;

void limit(grpc::ClientContext& context, std::chrono::seconds patience) {
  context.set_deadline(std::chrono::system_clock::now() + patience);
}

// gRPC's reasons may hold line ends; an error is one line.
std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text.substr(0, 400);
}

// Without gRPC's own words in front: "failed to connect to all addresses; last error: UNKNOWN:
// ipv4:127.0.0.1:7400: Failed to connect to remote host: Connection refused".
std::string plain_reason(const grpc::Status& done) {
  const std::string text = one_line(done.error_message());
  constexpr std::string_view kConnect = "Failed to connect to remote host: ";
  const size_t reason = text.rfind(kConnect);
  return reason == std::string::npos ? text : text.substr(reason + kConnect.size());
}

std::string host_name() {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return host;
}

v1::Caller this_user() {
  v1::Caller caller;
  caller.set_uid(geteuid());
  caller.set_user(local_user_name(geteuid()));
  caller.set_host(host_name());
  return caller;
}

Status status_of(const v1::Error& refusal) {
  if (refusal.code() == 0 && refusal.message().empty()) return {};
  return Status(static_cast<Code>(refusal.code()), refusal.message());
}

}  // namespace

CoordinatorClient::CoordinatorClient(const std::string& address, const std::string& token_file,
                                     std::chrono::seconds patience)
    : patience_(patience), address_(address) {
  const Result<std::string> target = coordinator_endpoint(address, "--coordinator");
  if (!target.ok()) {
    wrong_address_ = target.status();
    return;
  }
  address_ = target.value();
  token_file_ = token_file_for(token_file, address_);
  grpc::ChannelArguments arguments;
  // A proxy of the environment is for the world outside, never for the cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kReplyBytesMax);
  stub_ = v1::Coordinator::NewStub(
      grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
}

Status CoordinatorClient::prove(grpc::ClientContext& context, const char* method,
                                const google::protobuf::MessageLite& request) {
  limit(context, patience_);
  if (token_file_.empty()) return {};
  const Result<Secret> token = read_token_file(token_file_);
  if (!token.ok()) return token.status();
  const CallProof proof(token.value());
  grpc::ClientContext challenge_context;
  limit(challenge_context, patience_);
  v1::ChallengeRequest challenge;
  challenge.set_nonce(proof.nonce());
  v1::ChallengeReply answer;
  const grpc::Status done = stub_->Challenge(&challenge_context, challenge, &answer);
  if (!done.ok() && done.error_code() != grpc::StatusCode::UNIMPLEMENTED) return lost(done);
  if (!proof.coordinator_knows(answer.nonce(), answer.proof()))
    return error("C503", "the coordinator at " + address_ +
                             " does not prove that it knows the cluster token in " + token_file_);
  context.AddMetadata(kProofKey,
                      proof.metadata(answer.nonce(), method, request.SerializeAsString()));
  return {};
}

Result<v1::StatusReply> CoordinatorClient::status(const std::string& job) {
  if (!wrong_address_.ok()) return wrong_address_;
  grpc::ClientContext context;
  v1::StatusRequest request;
  request.set_job(job);
  GRADBUS_RETURN_IF_ERROR(prove(context, "Status", request));
  v1::StatusReply reply;
  const grpc::Status done = stub_->Status(&context, request, &reply);
  if (!done.ok()) return lost(done);
  return reply;
}

Status CoordinatorClient::stop_job(const std::string& job, const std::string& reason) {
  if (!wrong_address_.ok()) return wrong_address_;
  grpc::ClientContext context;
  v1::StopJobRequest request;
  request.set_job(job);
  request.set_reason(reason);
  *request.mutable_caller() = this_user();
  GRADBUS_RETURN_IF_ERROR(prove(context, "StopJob", request));
  v1::StopJobReply reply;
  const grpc::Status done = stub_->StopJob(&context, request, &reply);
  if (!done.ok()) return lost(done);
  return status_of(reply.error());
}

Status CoordinatorClient::forget_node(const std::string& node, const std::string& reason) {
  if (!wrong_address_.ok()) return wrong_address_;
  grpc::ClientContext context;
  v1::ForgetNodeRequest request;
  request.set_node(node);
  request.set_reason(reason);
  *request.mutable_caller() = this_user();
  GRADBUS_RETURN_IF_ERROR(prove(context, "ForgetNode", request));
  v1::ForgetNodeReply reply;
  const grpc::Status done = stub_->ForgetNode(&context, request, &reply);
  if (!done.ok()) return lost(done);
  return status_of(reply.error());
}

Status CoordinatorClient::change_mode(v1::ChangeModeRequest request) {
  if (!wrong_address_.ok()) return wrong_address_;
  grpc::ClientContext context;
  *request.mutable_caller() = this_user();
  GRADBUS_RETURN_IF_ERROR(prove(context, "ChangeMode", request));
  v1::ChangeModeReply reply;
  const grpc::Status done = stub_->ChangeMode(&context, request, &reply);
  if (!done.ok()) return lost(done);
  return status_of(reply.error());
}

Status CoordinatorClient::drain_node(v1::DrainNodeRequest request) {
  if (!wrong_address_.ok()) return wrong_address_;
  grpc::ClientContext context;
  *request.mutable_caller() = this_user();
  GRADBUS_RETURN_IF_ERROR(prove(context, "DrainNode", request));
  v1::DrainNodeReply reply;
  const grpc::Status done = stub_->DrainNode(&context, request, &reply);
  if (!done.ok()) return lost(done);
  return status_of(reply.error());
}

Result<v1::EventsReply> CoordinatorClient::events(uint64_t after) {
  if (!wrong_address_.ok()) return wrong_address_;
  grpc::ClientContext context;
  v1::EventsRequest request;
  request.set_after(after);
  GRADBUS_RETURN_IF_ERROR(prove(context, "Events", request));
  v1::EventsReply reply;
  const grpc::Status done = stub_->Events(&context, request, &reply);
  if (!done.ok()) return lost(done);
  return reply;
}

Result<v1::TraceReply> CoordinatorClient::trace(v1::TraceRequest request) {
  if (!wrong_address_.ok()) return wrong_address_;
  grpc::ClientContext context;
  *request.mutable_caller() = this_user();
  GRADBUS_RETURN_IF_ERROR(prove(context, "Trace", request));
  v1::TraceReply reply;
  const grpc::Status done = stub_->Trace(&context, request, &reply);
  if (!done.ok()) return lost(done);
  if (const Status refused = status_of(reply.error()); !refused.ok()) return refused;
  return reply;
}

Status CoordinatorClient::lost(const grpc::Status& done) const {
  if (done.error_code() == grpc::StatusCode::UNAUTHENTICATED)
    return Status(Code::kPermission, one_line(done.error_message()));
  if (done.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
      done.error_message().starts_with("GB-C506"))
    return Status(Code::kExhausted, one_line(done.error_message()));
  if (done.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return error("C501",
                 "the coordinator at " + address_ + " has not answered for " +
                     std::to_string(patience_.count()) + " s",
                 "it is stopped, overloaded or unreachable, and jobs may go on without it: try "
                 "again, then look at the log and the CPU time of gradbus-server there");
  return error("C501", "no coordinator answers at " + address_ + ": " + plain_reason(done),
               "start gradbus-server, or name its address with --coordinator");
}

std::string asker(const std::string& command) {
  const std::string name = local_user_name(geteuid());
  return "gradbus " + command + " by " +
         (name.empty() ? "user " + std::to_string(geteuid()) : name) + " on " + host_name();
}

std::string coordinator_address(const std::string& given) {
  if (!given.empty()) return given;
  const char* address = std::getenv("GRADBUS_COORDINATOR");
  if (address != nullptr && *address != '\0') return address;
  const std::string of_node = node_coordinator();
  return of_node.empty() ? "127.0.0.1:7400" : of_node;
}

}  // namespace gradbus
