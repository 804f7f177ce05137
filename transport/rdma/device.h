// The open device of one transport: protection domain, completion channel, limits. The transport's
// thread owns it.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/rdma/ports.h"

namespace gradbus {

class RdmaDevice {
 public:
  // GB-D607 with the reason.
  static Result<std::unique_ptr<RdmaDevice>> open(const VerbsLibrary& verbs,
                                                  const SocketAddress& near);

  const VerbsLibrary& verbs() const { return verbs_; }
  const RdmaPlace& place() const { return place_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  ibv_comp_channel* channel() const { return channel_.get(); }

  // Pins `memory` for this device alone: it may be written here by what arrives, and no peer can
  // name it. GB-D606, with the limit on locked memory when that is the reason.
  Result<Verbs<ibv_mr>> register_memory(std::span<std::byte> memory) const;

  // The cq_context of the next completion queue that has something new; nullptr when none has.
  void* next_notice() const;

 private:
  RdmaDevice(const VerbsLibrary& verbs, RdmaPlace place);

  const VerbsLibrary& verbs_;
  RdmaPlace place_;
  // In this order: each needs those before it until it is gone.
  Verbs<ibv_context> context_;
  Verbs<ibv_pd> domain_;
  Verbs<ibv_comp_channel> channel_;
};

}  // namespace gradbus
