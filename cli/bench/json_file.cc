#include "cli/bench/json_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/errors.h"

namespace gradbus {
namespace {

bool to_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  return file.good();
}

bool to_standard_output(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
}

}  // namespace

std::FILE* table_stream(const std::string& json) {
  return json == kStandardOutput ? stderr : stdout;
}

Status write_json(const std::string& json, const std::string& text) {
  if (json.empty()) return {};
  const bool written = json == kStandardOutput ? to_standard_output(text) : to_file(json, text);
  if (written) return {};
  return error("F100",
               "gradbus bench: --json " + json + " cannot be written: " + std::strerror(errno),
               "choose another file");
}

}  // namespace gradbus
