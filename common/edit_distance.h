// "Did you mean": which known name is closest to what a person wrote. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gradbus {

// Insertions, deletions and replacements of one character, and swaps of two neighbours, that turn
// `a` into `b` (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `known`, or "" when none is near enough to be a slip of the hand: more than a
// third of the letters differ.
std::string closest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace gradbus
