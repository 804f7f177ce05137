// A set of bytes of one segment, as extents that neither overlap nor touch. It describes which part
// of an arena is free, or which part has no pages.
//
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace gradbus {

class Extents {
 public:
  struct Extent {
    uint64_t begin = 0;
    uint64_t end = 0;  // behind the last byte
    uint64_t bytes() const { return end - begin; }
    bool operator==(const Extent&) const = default;
  };

  bool empty() const { return extents_.empty(); }
  size_t count() const { return extents_.size(); }
  uint64_t bytes() const { return bytes_; }

  // Adds bytes; some of them may already be in the set. Returns the extent that contains them now.
  Extent insert(Extent added);
  // Removes bytes; some of them may not be in the set.
  void erase(Extent removed);
  // Returns the smallest extent of at least `bytes`; the first one of that size.
  std::optional<Extent> best_fit(uint64_t bytes) const;
  // Visits the part of the set in `range`, from front to back.
  void each_in(Extent range, const std::function<void(Extent)>& visit) const;

 private:
  using Place = std::map<uint64_t, uint64_t>::iterator;
  void put(Extent extent);
  Place take_out(Place place);

  std::map<uint64_t, uint64_t> extents_;              // begin -> end
  std::set<std::pair<uint64_t, uint64_t>> by_bytes_;  // bytes and begin
  uint64_t bytes_ = 0;
};

}  // namespace gradbus
