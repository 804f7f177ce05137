// What a person may do to a running job or a node, `gradbus stop`, `mode` and `drain`, and the way
// there.
//
// With the cluster token the command asks the coordinator itself. Without one it asks through this
// node's agent, which reads the user from its socket and passes that on.
#pragma once

#include <string>

#include "common/status.h"
#include "proto/attach.h"

namespace gradbus {

struct AdminRequest {
  AdminWish wish = AdminWish::kStop;
  std::string job;    // kDrain, kUndoDrain: the node
  std::string group;  // kMode
  std::string mode;   // kMode
  std::string reason;
};

// `coordinator`, `token_file`: as given on the command line. GB-J406, GB-J408 (another user's job),
// GB-C501, GB-C503.
Status administer(const AdminRequest& request, const std::string& coordinator,
                  const std::string& token_file);

}  // namespace gradbus
