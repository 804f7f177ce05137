#include "common/text/error_text.h"

namespace gradbus {

std::string what_of(std::string_view message) {
  std::string text(message.substr(0, message.find(" | next: ")));
  const size_t number = text.find("GB-");
  const size_t colon = number == std::string::npos ? number : text.find(": ", number);
  return colon == std::string::npos ? text : text.erase(number, colon + 2 - number);
}

}  // namespace gradbus
