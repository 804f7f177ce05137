// The files models/*.csv as they are, compiled in (CMakeLists.txt makes the .cc). Pure.
#pragma once

#include <span>
#include <string_view>

namespace gradbus {

struct ModelTable {
  std::string_view name;
  std::string_view text;
};

std::span<const ModelTable> model_tables();

}  // namespace gradbus
