#include "cli/launch/torch_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "common/fd.h"

namespace gradbus {
namespace {

constexpr int kFirstPort = 29500;  // torchrun's
constexpr int kPorts = 10000;

int port_of(const std::string& job) {
  uint32_t hash = 2166136261u;
  for (const char letter : job) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return kFirstPort + static_cast<int>(hash % kPorts);
}

// 0 when there is none.
int free_port() {
  const Fd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t bytes = sizeof(address);
  if (bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    return 0;
  return ntohs(address.sin_port);
}

std::string this_host() {
  char name[256] = "localhost";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

TorchAddress torch_address(const LaunchPlan& plan) {
  const Host& first = plan.blocks[plan.places.front().block];
  if (!first.local) return {first.name.substr(first.name.find('@') + 1), port_of(plan.job)};
  const bool all_here = plan.ranks_on_this_machine() == plan.ranks;
  const int free = free_port();
  return {all_here ? "127.0.0.1" : this_host(), free > 0 ? free : port_of(plan.job)};
}

}  // namespace gradbus
