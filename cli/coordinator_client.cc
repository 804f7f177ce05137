#include "cli/coordinator_client.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "common/endpoint.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr std::chrono::seconds kDeadline{2};
// A status of 4096 ranks and 4096 tensors for each of many jobs; we asked for it, so it may be
// large.
constexpr int kReplyBytesMax = 256 << 20;

void limit(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
}

// gRPC's reasons may hold line ends; an error is one line.
std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text.substr(0, 200);
}

Status status_of(const v1::Error& refusal) {
  if (refusal.code() == 0 && refusal.message().empty()) return {};
  return Status(static_cast<Code>(refusal.code()), refusal.message());
}

}  // namespace

CoordinatorClient::CoordinatorClient(const std::string& address) : address_(address) {
  const Result<std::string> target = coordinator_endpoint(address, "--coordinator");
  if (!target.ok()) {
    wrong_address_ = target.status();
    return;
  }
  address_ = target.value();
  grpc::ChannelArguments arguments;
  // A proxy of the environment is for the world outside, never for the cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kReplyBytesMax);
  stub_ = v1::Coordinator::NewStub(
      grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
}

Result<v1::StatusReply> CoordinatorClient::status(const std::string& job) {
  if (!wrong_address_.ok()) return wrong_address_;
  grpc::ClientContext context;
  limit(context);
  v1::StatusRequest request;
  request.set_job(job);
  v1::StatusReply reply;
  const grpc::Status done = stub_->Status(&context, request, &reply);
  if (!done.ok()) return lost(done.error_message());
  return reply;
}

Status CoordinatorClient::stop_job(const std::string& job, const std::string& reason) {
  if (!wrong_address_.ok()) return wrong_address_;
  grpc::ClientContext context;
  limit(context);
  v1::StopJobRequest request;
  request.set_job(job);
  request.set_reason(reason);
  v1::StopJobReply reply;
  const grpc::Status done = stub_->StopJob(&context, request, &reply);
  if (!done.ok()) return lost(done.error_message());
  return status_of(reply.error());
}

Status CoordinatorClient::change_mode(const v1::ChangeModeRequest& request) {
  if (!wrong_address_.ok()) return wrong_address_;
  grpc::ClientContext context;
  limit(context);
  v1::ChangeModeReply reply;
  const grpc::Status done = stub_->ChangeMode(&context, request, &reply);
  if (!done.ok()) return lost(done.error_message());
  return status_of(reply.error());
}

Status CoordinatorClient::lost(const std::string& reason) const {
  return error("C501", "no coordinator answers at " + address_ + ": " + one_line(reason),
               "start gradbus-server, or name its address with --coordinator");
}

std::string asker(const std::string& command) {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  const char* user = std::getenv("USER");
  const std::string name = user == nullptr ? "user " + std::to_string(getuid()) : user;
  return "gradbus " + command + " by " + name + " on " + host;
}

std::string coordinator_address(const std::string& given) {
  if (!given.empty()) return given;
  const char* address = std::getenv("GRADBUS_COORDINATOR");
  return address != nullptr && *address != '\0' ? address : "127.0.0.1:7400";
}

}  // namespace gradbus
