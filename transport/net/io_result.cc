#include "transport/net/io_result.h"

#include <cerrno>
#include <cstring>

namespace gradbus {

IoResult io_failed(Status status) { return {Io::kFailed, std::move(status)}; }

IoResult io_errno(int failure) {
  if (failure == EAGAIN) return {Io::kBlocked, {}};
  return io_failed(Status(Code::kPeerLost, std::strerror(failure)));
}

}  // namespace gradbus
