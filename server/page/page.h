// The coordinator's web page: files that everybody may read, and the cluster's state as JSON for
// those who have the page's key.
//
// The coordinator publishes its status once a second. The first request in a second makes JSON from
// it, and all requests in that second share it. So the number of watchers does not matter.
// Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/clock.h"
#include "common/metrics/http_page.h"
#include "common/trust/secret.h"
#include "gradbus/v1/coordinator.pb.h"
#include "server/page/page_history.h"
#include "server/status/timelines.h"

namespace gradbus {

inline constexpr size_t kPageEventsMax = 200;
inline constexpr size_t kPageRanksMax = 256;  // of a job: those that others wait for come first

// http://HOST or https://HOST:PORT, and nothing behind it.
bool is_web_origin(std::string_view text);

class Page {
 public:
  // Without a token everybody who reaches the port may read the state. `prometheus`: as
  // is_web_origin() accepts it, or ""; browsers ask it for the alerts.
  explicit Page(const std::optional<Secret>& token, std::string prometheus = "")
      : prometheus_(std::move(prometheus)) {
    set_token(token);
  }

  void set_token(const std::optional<Secret>& token);
  // `reply`: without tensors.
  void publish(v1::StatusReply reply, v1::EventsReply events, Timelines::ById timelines,
               const std::string& coordinator, Nanos now);

  // Nothing for a path that is not of the page.
  std::optional<HttpAnswer> answer(const HttpRequest& request);

 private:
  struct Published {
    v1::StatusReply reply;
    v1::EventsReply events;
    Timelines::ById timelines;
    Nanos now = 0;
    std::string coordinator;
    std::string sample;  // JSON
    std::mutex making;
    std::shared_ptr<const std::string> json;  // null: nobody has asked yet
  };

  bool knows_key(const std::string& authorization) const;
  HttpAnswer state() const;
  HttpAnswer history() const;
  std::optional<HttpAnswer> timeline(const std::string& job_id) const;
  std::string json_of(const Published& published) const;

  const std::string prometheus_;
  mutable std::mutex lock_;  // never held while the state's JSON is made
  std::string key_;          // "": none is needed
  std::shared_ptr<Published> published_;
  PageHistory history_;
};

}  // namespace gradbus
