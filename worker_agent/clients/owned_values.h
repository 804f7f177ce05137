// The objects that a map owns, for a loop over them: `for (Job& job : OwnedValues(jobs_))`. The map
// must not change meanwhile. (clang 14 cannot compile std::views.)
#pragma once

namespace gradbus {

template <typename Map>
class OwnedValues {
 public:
  explicit OwnedValues(const Map& map) : map_(map) {}

  class Iterator {
   public:
    explicit Iterator(typename Map::const_iterator at) : at_(at) {}
    auto& operator*() const { return *at_->second; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    typename Map::const_iterator at_;
  };
  Iterator begin() const { return Iterator(map_.begin()); }
  Iterator end() const { return Iterator(map_.end()); }

 private:
  const Map& map_;
};

}  // namespace gradbus
