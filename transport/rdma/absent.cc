#include "common/errors.h"
#include "transport/rdma/row.h"

namespace gradbus {
namespace {

Status left_out() {
  return error("D607", "this build has no RDMA: libibverbs' headers were missing",
               "use --transport tcp, or install libibverbs-dev and build again");
}

}  // namespace

Status rdma_available() { return left_out(); }

Result<std::unique_ptr<Transport>> create_rdma(const TransportOptions&) { return left_out(); }

std::vector<RdmaFinding> examine_rdma(const std::string&) {
  return {{false, "rdma", "left out of this build", "apt install libibverbs-dev, build again"}};
}

}  // namespace gradbus
