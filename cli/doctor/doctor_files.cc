// Folders and small files such as those of /sys.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/doctor/doctor_findings.h"

namespace gradbus {

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(directory, problem))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace gradbus
