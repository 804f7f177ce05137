#include "common/status.h"

namespace gradbus {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kBusy: return "busy";
    case Code::kInvalid: return "invalid";
    case Code::kMismatch: return "mismatch";
    case Code::kUnavailable: return "unavailable";
    case Code::kClosed: return "closed";
    case Code::kCorrupt: return "corrupt";
    case Code::kTimeout: return "timeout";
    case Code::kPeerLost: return "peer lost";
    case Code::kExhausted: return "exhausted";
    case Code::kPermission: return "permission";
    case Code::kVersion: return "version";
    case Code::kInternal: return "internal";
  }
  return "?";
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, std::string(context) + ": " + message_);
}

}  // namespace gradbus
