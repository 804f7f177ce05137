// The files of the web page, compiled into the program.
#pragma once

#include <span>
#include <string_view>

namespace gradbus {

struct PageFile {
  std::string_view path;  // "/page.css"
  std::string_view text;
};

std::span<const PageFile> page_files();

}  // namespace gradbus
