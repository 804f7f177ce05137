#include "common/daemon/health_port.h"

#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <chrono>

#include "common/check.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/metrics/host_port.h"

namespace gradbus {
namespace {

constexpr size_t kConnectionsMax = 16;
constexpr int kBacklog = 64;
constexpr int kIdleMs = 2'000;      // a connection without a call
constexpr int kAgeMs = 60'000;      // clients that watch connect again
constexpr int kAgeGraceMs = 2'000;  // then calls end
constexpr int kCallsPerConnection = 16;
constexpr int kMessageBytesMax = 4096;
constexpr int kHeaderBytesMax = 8192;
constexpr size_t kMemoryBytesMax = 16 << 20;
constexpr int kStopMs = 500;

// gRPC's own log: for us a detail.
void log_line(gpr_log_func_args* line) {
  spdlog::debug("grpc {}:{}: {}", line->file, line->line, line->message);
}

void limit(grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("gradbus-health");
  quota.Resize(kMemoryBytesMax);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kHeaderBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, kAgeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kAgeGraceMs);
}

}  // namespace

void show_health(grpc::HealthCheckServiceInterface* service, bool serves, bool moves) {
  if (service == nullptr) return;
  service->SetServingStatus("", serves);
  service->SetServingStatus(kLiveness, moves);
}

HealthPort::HealthPort() = default;

Result<std::unique_ptr<HealthPort>> HealthPort::start(const std::string& address) {
  const Result<HostPort> parsed = parse_host_port("health-listen", address);
  if (!parsed.ok()) return parsed.status();
  Result<Fd> listener = listen_at("health-listen", parsed.value(), kBacklog);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<HealthPort> port(new HealthPort());
  port->listener_ = listener.take();
  port->address_ = address_of(port->listener_, parsed.value());
  port->stop_.reset(eventfd(0, EFD_CLOEXEC));
  GRADBUS_CHECK(port->stop_.valid());
  gpr_set_log_function(log_line);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  limit(builder);
  // Without any service of callbacks gRPC does not start; this one refuses all other methods.
  port->others_ = std::make_unique<grpc::CallbackGenericService>();
  builder.RegisterCallbackGenericService(port->others_.get());
  port->server_ = builder.BuildAndStart();
  if (port->server_ == nullptr)
    return error("D603", "--health-listen " + port->address_ + ": gRPC did not start");
  port->set(false, true);
  port->thread_ = std::thread([self = port.get()] {
    pthread_setname_np(pthread_self(), "health");
    self->accept_until_stopped();
  });
  return port;
}

void HealthPort::set(bool serves, bool moves) {
  show_health(server_->GetHealthCheckService(), serves, moves);
}

void HealthPort::accept_until_stopped() {
  for (;;) {
    std::vector<pollfd> waits{{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    const bool room = open_.size() < kConnectionsMax;
    waits.push_back({.fd = room ? listener_.get() : -1, .events = POLLIN, .revents = 0});
    for (const Fd& one : open_) waits.push_back({.fd = one.get(), .events = 0, .revents = 0});
    if (poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[0].revents != 0) return;
    std::vector<Fd> kept;
    for (size_t i = 0; i < open_.size(); ++i)
      if (waits[i + 2].revents == 0) kept.push_back(std::move(open_[i]));
    open_ = std::move(kept);
    if (waits[1].revents != 0) accept_one();
  }
}

// gRPC shuts a socket down when it has done with it, which also its copy here shows.
void HealthPort::accept_one() {
  Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    poll(nullptr, 0, 10);  // no descriptor is free, perhaps
    return;
  }
  Fd copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return;
  open_.push_back(std::move(copy));
  if (open_.size() == kConnectionsMax)
    slow_.add("--health-listen " + address_ + ": " + std::to_string(kConnectionsMax) +
              " clients are connected; further ones wait until one of them leaves or is cut off");
  grpc::AddInsecureChannelFromFd(server_.get(), fd.release());
}

HealthPort::~HealthPort() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  if (server_ == nullptr) return;
  if (server_->GetHealthCheckService() != nullptr) server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(kStopMs));
  server_->Wait();
}

}  // namespace gradbus
