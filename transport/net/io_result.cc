#include "transport/net/io_result.h"

#include <cerrno>
#include <cstring>

#include "common/errors.h"

namespace gradbus {

IoResult io_failed(Status status) { return {Io::kFailed, std::move(status)}; }

IoResult io_errno(int failure) {
  if (failure == EAGAIN) return {Io::kBlocked, {}};
  if (failure == EBADMSG)
    return io_failed(error("D601", "the peer broke the rules of the shared memory"));
  return io_failed(Status(Code::kPeerLost, std::strerror(failure)));
}

}  // namespace gradbus
