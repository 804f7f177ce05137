// The open device of one transport: protection domain, completion channel and limits. The
// transport's thread owns it.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/rdma/ports.h"

namespace gradbus {

class RdmaDevice {
 public:
  // Returns GB-D607 with the reason when the device cannot be used.
  static Result<std::unique_ptr<RdmaDevice>> open(const VerbsLibrary& verbs,
                                                  const SocketAddress& near);

  const VerbsLibrary& verbs() const { return verbs_; }
  const RdmaPlace& place() const { return place_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  ibv_comp_channel* channel() const { return channel_.get(); }

  // Pins `memory` for this device alone. Received frames may be written there; no peer gets a key
  // to it. Returns GB-D606, which names the limit on locked memory when that is the reason.
  Result<Verbs<ibv_mr>> register_memory(std::span<std::byte> memory) const;

  // Returns the cq_context of the next completion queue with new entries, or nullptr.
  void* next_notice() const;

 private:
  RdmaDevice(const VerbsLibrary& verbs, RdmaPlace place);

  const VerbsLibrary& verbs_;
  RdmaPlace place_;
  // The order matters: each member needs the members above it until it is destroyed.
  Verbs<ibv_context> context_;
  Verbs<ibv_pd> domain_;
  Verbs<ibv_comp_channel> channel_;
};

}  // namespace gradbus
