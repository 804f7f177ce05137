// Links that peers have opened before their job was started here. Until a job accepts a link,
// nothing is proven: a peer can open as many as it likes. So they wait for a short time, there are
// at most kPendingLinksMax, and refusals are logged once a second at most.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "common/clock.h"
#include "transport/link_table.h"
#include "transport/transport.h"

namespace gradbus {

// Half of what a transport has: jobs can still open and accept links.
inline constexpr size_t kPendingLinksMax = kLinksMax / 2;
inline constexpr Nanos kPendingLinkDeadline = 5 * kSecond;

class PendingLinks {
 public:
  struct Link {
    LinkId id;
    FrameHeader hello;
    Nanos deadline = 0;
  };

  explicit PendingLinks(Transport& transport) : transport_(transport) {}

  bool empty() const { return links_.empty(); }
  // The oldest one goes when there are too many.
  void add(LinkId link, const FrameHeader& hello);
  // It was closed.
  void forget(LinkId link);
  // Those that are for a job, by the order in which they came. `is_for(hello)`.
  template <typename IsFor>
  std::vector<Link> take(const IsFor& is_for) {
    std::vector<Link> taken;
    std::erase_if(links_, [&](const Link& link) {
      const bool wanted = is_for(link.hello);
      if (wanted) taken.push_back(link);
      return wanted;
    });
    return taken;
  }
  // Refuses those whose time is over.
  void expire();
  // Closes a link that no job wants.
  void refuse(LinkId link, const std::string& why);

 private:
  void refuse_oldest(const std::string& more);

  Transport& transport_;
  std::deque<Link> links_;  // the oldest first
  uint64_t unlogged_ = 0;
  Nanos next_log_ = 0;
};

}  // namespace gradbus
