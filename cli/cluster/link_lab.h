// A network of agents on one machine: a namespace for each agent and its ranks, one more with a
// bridge and the coordinator, a limited cable between each and the bridge (link_spec.h says what
// the queues are). Main thread only.
//
// Nothing here has a name or a file outside itself: a namespace lives as long as this object or a
// process in it, and its cables and queues vanish with it. So a crash at any moment, of the
// launcher too, leaves nothing. The namespaces know no other network: nothing can collide with the
// machine's addresses (198.18.0.0/15 is set apart for such tests, RFC 2544), nor can traffic take
// another way than the limited one.
#pragma once

#include <string>
#include <vector>

#include "cli/options/link_spec.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/status.h"

namespace gradbus {

inline constexpr int kLinkAgentsMax = 250;
inline constexpr Nanos kLinkStart = 30 * kSecond;  // about 15 ms an agent on an idle machine

class LinkLab {
 public:
  // Needs CAP_SYS_ADMIN and CAP_NET_ADMIN (root, or a user namespace), ip and tc of iproute2, and
  // the kernel's veth, bridge, sch_tbf and, for a delay, sch_netem. GB-H203 says what is missing.
  // `links` by agent: 1..kLinkAgentsMax, GB-H200 otherwise.
  static Result<LinkLab> create(const std::vector<LinkSpec>& links);

  // The namespace of agent 0.. and its ranks: for ChildSpec::netns_fd.
  int netns(int agent) const { return agents_[static_cast<size_t>(agent)].get(); }
  // Where that agent can be reached by the others.
  std::string address(int agent) const;

  int coordinator_netns() const { return bridge_.get(); }
  std::string coordinator_address() const;

 private:
  LinkLab() = default;
  Status open_namespaces(size_t agents);
  Status lay_cables(const std::vector<LinkSpec>& links, Nanos until) const;
  Status limit_cables(const std::vector<LinkSpec>& links, Nanos until) const;
  Status delay_cables(const std::vector<LinkSpec>& links, Nanos until) const;

  Fd bridge_;
  std::vector<Fd> agents_;
};

}  // namespace gradbus
