#include "transport/rdma/device.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "common/errors.h"

namespace gradbus {
namespace {

std::string mebibytes(uint64_t bytes) { return std::to_string((bytes + 0xfffff) >> 20) + " MiB"; }

Status device_cannot(const char* what, const RdmaPlace& place) {
  return error("D607",
               std::string("cannot ") + what + " " + place.device + ": " + std::strerror(errno));
}

}  // namespace

RdmaDevice::RdmaDevice(const VerbsLibrary& verbs, RdmaPlace place)
    : verbs_(verbs),
      place_(std::move(place)),
      context_(nullptr, verbs.close_device),
      domain_(nullptr, verbs.dealloc_pd),
      channel_(nullptr, verbs.destroy_comp_channel) {}

Result<std::unique_ptr<RdmaDevice>> RdmaDevice::open(const VerbsLibrary& verbs,
                                                     const SocketAddress& near) {
  const Result<std::vector<RdmaPort>> ports = survey_ports(verbs);
  GRADBUS_RETURN_IF_ERROR(ports.status());
  Result<RdmaPlace> place = choose_place(ports.value(), near);
  GRADBUS_RETURN_IF_ERROR(place.status());
  std::unique_ptr<RdmaDevice> device(new RdmaDevice(verbs, place.take()));
  device->context_ = open_device(verbs, device->place_.device);
  if (device->context_ == nullptr) return device_cannot("open", device->place_);
  device->domain_.reset(verbs.alloc_pd(device->context()));
  if (device->domain_ == nullptr)
    return device_cannot("make a protection domain on", device->place_);
  device->channel_.reset(verbs.create_comp_channel(device->context()));
  if (device->channel_ == nullptr ||
      fcntl(device->channel_->fd, F_SETFL, fcntl(device->channel_->fd, F_GETFL) | O_NONBLOCK) != 0)
    return device_cannot("make a completion channel on", device->place_);
  return device;
}

Result<Verbs<ibv_mr>> RdmaDevice::register_memory(std::span<std::byte> memory) const {
  ibv_mr* region =
      verbs_.reg_mr(domain_.get(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  if (region != nullptr) return Verbs<ibv_mr>(region, verbs_.dereg_mr);
  const int failure = errno;
  std::string what = mebibytes(memory.size()) + " cannot be registered with " + place_.device +
                     ": " + std::strerror(failure);
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool limited = limit.rlim_cur != RLIM_INFINITY;
  if (failure != ENOMEM || !limited)
    return error("D606", what, limited ? "" : "free memory, or use --transport tcp");
  return error("D606", what + "; locked memory is limited to " + mebibytes(limit.rlim_cur));
}

void* RdmaDevice::next_notice() const {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (verbs_.get_cq_event(channel_.get(), &queue, &context) != 0) return nullptr;
  verbs_.ack_cq_events(queue, 1);  // a queue with unacknowledged events cannot be destroyed
  return context;
}

}  // namespace gradbus
