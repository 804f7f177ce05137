#include "data_plane/pending_links.h"

#include <utility>

#include "common/log.h"

namespace gradbus {
namespace {

constexpr Nanos kLogEvery = kSecond;

}  // namespace

void PendingLinks::add(LinkId link, const FrameHeader& hello) {
  if (links_.size() == kPendingLinksMax)
    refuse_oldest("; " + std::to_string(kPendingLinksMax) + " such links wait");
  links_.push_back({link, hello, transport_.now() + kPendingLinkDeadline});
}

void PendingLinks::forget(LinkId link) {
  std::erase_if(links_, [&](const Link& known) { return known.id == link; });
}

void PendingLinks::expire() {
  if (links_.empty()) return;
  const Nanos now = transport_.now();
  while (!links_.empty() && now >= links_.front().deadline) refuse_oldest("");
}

void PendingLinks::refuse_oldest(const std::string& more) {
  const Link oldest = links_.front();
  links_.pop_front();
  refuse(oldest.id, "a link for the unknown job " + std::to_string(oldest.hello.job) +
                        ", or of its unknown peer " + std::to_string(oldest.hello.source) +
                        ", was refused" + more);
}

void PendingLinks::refuse(LinkId link, const std::string& why) {
  transport_.disconnect(link);
  const Nanos now = transport_.now();
  if (now < next_log_) {
    ++unlogged_;
    return;
  }
  next_log_ = now + kLogEvery;
  const uint64_t others = std::exchange(unlogged_, 0);
  const std::string more =
      others == 0 ? "" : " (and " + std::to_string(others) + " links since the last such line)";
  spdlog::warn("{}{}", why, more);
}

}  // namespace gradbus
