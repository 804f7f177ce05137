// A request to a daemon's HTTP port and its answer, for pages that the port shows in addition to
// metrics and health.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace gradbus {

struct HttpRequest {
  std::string path;           // without the query
  std::string authorization;  // of the header; "": there is none
};

struct HttpAnswer {
  std::string status;  // "200 OK"
  std::string type;    // of the contents
  std::shared_ptr<const std::string> body;
  std::string headers;  // more of them, each with its line end
};

// Called by several threads at a time. Nothing: there is no such page.
using HttpPage = std::function<std::optional<HttpAnswer>(const HttpRequest&)>;

}  // namespace gradbus
