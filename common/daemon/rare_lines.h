// Log lines that anybody can cause. A limited number is written per second, with the number of
// lines that were left out. One thread, or under a lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/clock.h"

namespace gradbus {

class RareLines {
 public:
  explicit RareLines(uint64_t per_second = 1) : per_second_(per_second) {}

  // True: the line may be written now, followed by more().
  bool may_write(Nanos now) {
    if (!begun_ || now - *begun_ >= kSecond) {
      begun_ = now;
      written_ = 0;
    }
    const bool may = written_ < per_second_;
    ++(may ? written_ : left_out_);
    return may;
  }
  // "" or " (and 7 others since the last such line)"; the count begins anew.
  std::string more() {
    const uint64_t others = std::exchange(left_out_, 0);
    return others == 0 ? ""
                       : " (and " + std::to_string(others) + " others since the last such line)";
  }

 private:
  const uint64_t per_second_;
  std::optional<Nanos> begun_;  // the second that counts
  uint64_t written_ = 0;        // in it
  uint64_t left_out_ = 0;
};

}  // namespace gradbus
