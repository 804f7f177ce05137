#include "server/page/page.h"

#include <algorithm>
#include <cctype>
#include <chrono>

#include "common/errors.h"
#include "common/trust/page_key.h"
#include "server/page/page_files.h"
#include "server/status/status_json.h"

namespace gradbus {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr std::string_view kTimeline = "/timeline/";
constexpr std::string_view kJson = ".json";

// Nothing from elsewhere but Prometheus' alerts, no inline script, and no frame around the page.
std::string policy(const std::string& prometheus) {
  return "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
         "connect-src 'self'" +
         (prometheus.empty() ? "" : " " + prometheus) +
         "; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
         "frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n";
}

const char* type_of(std::string_view path) {
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "text/html; charset=utf-8";
}

HttpAnswer json(std::shared_ptr<const std::string> text) {
  return {"200 OK", "application/json", std::move(text), ""};
}

HttpAnswer refuse() {
  const std::string text = error("C503", "the web page's key is missing or wrong",
                                 "gradbus page, on a node with the token")
                               .message();
  return {"401 Unauthorized", "text/plain; charset=utf-8",
          std::make_shared<const std::string>(text + "\n"), "WWW-Authenticate: Bearer\r\n"};
}

HttpAnswer not_yet() {
  return {"503 Service Unavailable", "text/plain",
          std::make_shared<const std::string>("the coordinator is starting\n"), ""};
}

// Ended jobs keep no ranks, large ones those that others wait for. Returns how many were left out.
uint64_t shorten(v1::StatusReply& reply) {
  uint64_t left_out = 0;
  for (v1::JobStatus& job : *reply.mutable_jobs()) {
    if (!job.outcome().empty()) job.clear_ranks();
    const int most = static_cast<int>(kPageRanksMax);
    if (job.ranks_size() <= most) continue;
    auto& ranks = *job.mutable_ranks();
    std::stable_sort(ranks.begin(), ranks.end(), [](const auto& one, const auto& other) {
      const bool lost = one.state() == "lost";
      if (lost != (other.state() == "lost")) return lost;
      return one.late_ns() > other.late_ns();
    });
    left_out += static_cast<uint64_t>(job.ranks_size() - most);
    ranks.DeleteSubrange(most, ranks.size() - most);
  }
  return left_out;
}

// A browser's numbers do not hold 64 bits, so the ids of jobs are repeated as texts.
std::string job_ids(const v1::StatusReply& reply) {
  std::string text;
  for (const v1::JobStatus& job : reply.jobs())
    text += (text.empty() ? "\"" : ",\"") + std::to_string(job.job_id()) + "\"";
  return "[" + text + "]";
}

// Which jobs have one; a browser asks for it when its version is new.
std::string timelines(const Timelines::ById& all, Nanos now) {
  std::string text;
  for (const auto& [id, timeline] : all)
    text += (text.empty() ? "" : ",") + ("\"" + std::to_string(id)) +
            "\":{\"version\":" + std::to_string(timeline->version) +
            ",\"age_ms\":" + std::to_string((now - timeline->received) / kMillisecond) + "}";
  return "{" + text + "}";
}

int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

bool is_web_origin(std::string_view text) {
  const size_t scheme = text.starts_with("https://") ? 8 : text.starts_with("http://") ? 7 : 0;
  const std::string_view host = text.substr(scheme);
  return scheme != 0 && !host.empty() && host.size() < 256 &&
         std::ranges::all_of(host, [](unsigned char c) {
           return std::isalnum(c) != 0 ||
                  std::string_view(".-:[]").find(static_cast<char>(c)) != std::string_view::npos;
         });
}

void Page::set_token(const std::optional<Secret>& token) {
  const std::lock_guard lock(lock_);
  key_ = token ? page_key(*token) : "";
}

void Page::publish(v1::StatusReply reply, v1::EventsReply events, Timelines::ById timelines,
                   const std::string& coordinator, Nanos now) {
  auto published = std::make_shared<Published>();
  published->reply = std::move(reply);
  published->events = std::move(events);
  published->timelines = std::move(timelines);
  published->now = now;
  published->coordinator = coordinator;
  const std::lock_guard lock(lock_);
  history_.add(published->reply, now);
  published->sample = history_.newest_json();
  published_ = std::move(published);
}

bool Page::knows_key(const std::string& authorization) const {
  const std::lock_guard lock(lock_);
  if (key_.empty()) return true;
  return authorization.starts_with(kBearer) &&
         equal_in_constant_time(std::string_view(authorization).substr(kBearer.size()), key_);
}

std::string Page::json_of(const Published& published) const {
  v1::StatusReply shown = published.reply;
  const uint64_t left_out = shorten(shown);
  return "{\"time_ms\":" + std::to_string(unix_ms()) +
         ",\"ranks_left_out\":" + std::to_string(left_out) + ",\"job_ids\":" + job_ids(shown) +
         ",\"timelines\":" + timelines(published.timelines, published.now) + ",\"prometheus\":\"" +
         prometheus_ + "\",\"cluster\":" + status_json(shown, published.coordinator) +
         ",\"events\":" + events_json(published.events) + ",\"sample\":" + published.sample + "}";
}

HttpAnswer Page::state() const {
  std::shared_ptr<Published> published;
  {
    const std::lock_guard lock(lock_);
    published = published_;
  }
  if (published == nullptr) return not_yet();
  const std::lock_guard making(published->making);
  if (published->json == nullptr)
    published->json = std::make_shared<const std::string>(json_of(*published));
  return json(published->json);
}

HttpAnswer Page::history() const {
  const std::lock_guard lock(lock_);  // joins texts that are there
  return json(std::make_shared<const std::string>(history_.all_json()));
}

// Nothing: that job has none.
std::optional<HttpAnswer> Page::timeline(const std::string& job_id) const {
  std::shared_ptr<Published> published;
  {
    const std::lock_guard lock(lock_);
    published = published_;
  }
  if (published == nullptr) return not_yet();
  for (const auto& [id, timeline] : published->timelines)
    if (std::to_string(id) == job_id)
      return json(std::make_shared<const std::string>(timeline_json(*timeline)));
  return std::nullopt;
}

std::optional<HttpAnswer> Page::answer(const HttpRequest& request) {
  const std::string path = request.path == "/" ? "/index.html" : request.path;
  const bool of_timeline = path.starts_with(kTimeline) && path.ends_with(kJson);
  if (path == "/state.json" || path == "/history.json" || of_timeline) {
    if (!knows_key(request.authorization)) return refuse();
    if (of_timeline)
      return timeline(path.substr(kTimeline.size(), path.size() - kTimeline.size() - kJson.size()));
    return path == "/state.json" ? state() : history();
  }
  for (const PageFile& file : page_files())
    if (file.path == path)
      return HttpAnswer{"200 OK", type_of(path), std::make_shared<const std::string>(file.text),
                        policy(prometheus_)};
  return std::nullopt;
}

}  // namespace gradbus
