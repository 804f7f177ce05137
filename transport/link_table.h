// The links of one transport by LinkId. One thread owns it.
//
// Indexes are dense, so a caller may keep its own state in an array. An index is reused only after
// kLinksAtRest others were released. Until then a late post to a dead link finds nothing, and the
// reason of its end can still be read.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace gradbus {

inline constexpr size_t kLinksMax = 4096;  // of one transport, alive at once
inline constexpr size_t kLinksAtRest = 64;

template <typename Link>
class LinkTable {
 public:
  bool full() const { return alive_ >= kLinksMax; }

  // Sets link->id.
  Link& add(std::unique_ptr<Link> link) {
    const uint32_t index = next_index();
    link->id = LinkId{index};
    errors_[index].clear();
    links_[index] = std::move(link);
    ++alive_;
    return *links_[index];
  }

  void remove(LinkId id) {
    links_[id.index].reset();
    resting_.push_back(id.index);
    --alive_;
  }

  // Returns nullptr for a link that does not exist any more, or never existed.
  Link* find(LinkId id) const {
    return id.index < links_.size() ? links_[id.index].get() : nullptr;
  }

  void set_error(LinkId id, std::string text) { errors_[id.index] = std::move(text); }
  std::string error(LinkId id) const {
    return id.index < errors_.size() ? errors_[id.index] : std::string();
  }

  template <typename Visitor>
  void for_each(Visitor visit) {
    for (size_t i = 0; i < links_.size(); ++i) {
      if (links_[i]) visit(*links_[i]);
    }
  }

 private:
  uint32_t next_index() {
    if (resting_.size() <= kLinksAtRest) {
      links_.emplace_back();
      errors_.emplace_back();
      return static_cast<uint32_t>(links_.size() - 1);
    }
    const uint32_t index = resting_.front();
    resting_.pop_front();
    return index;
  }

  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::string> errors_;
  std::deque<uint32_t> resting_;
  size_t alive_ = 0;
};

}  // namespace gradbus
