// The web page without a socket: its key, what it shows, and its history.
#include "server/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/trust/page_key.h"

namespace gradbus {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Secret token_of(uint8_t first) {
  Secret token{};
  token[0] = first;
  return token;
}

v1::StatusReply reply_with(uint64_t uncompressed, uint64_t compressed, uint64_t sent) {
  v1::StatusReply reply;
  v1::AgentStatus& agent = *reply.add_agents();
  agent.set_name("node-a");
  agent.set_pid(7);
  agent.mutable_transport()->set_sent_bytes(sent);
  v1::JobStatus& job = *reply.add_jobs();
  job.set_job("digits");
  job.set_job_id(~uint64_t{0});
  job.set_state("running");
  job.set_uncompressed_bytes(uncompressed);
  job.set_compressed_bytes(compressed);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    v1::RankStatus& status = *job.add_ranks();
    status.set_rank(rank);
    status.set_waiting(rank);
    status.set_late_ns(rank * 2'000'000'000ull);
  }
  for (const double cosine : {0.75, 0.5}) job.add_fidelity()->set_cosine(cosine);
  return reply;
}

json body(const std::optional<HttpAnswer>& answer) { return json::parse(*answer.value().body); }

TEST(Page, NeedsTheKeyForTheStateAndNotForItsFiles) {
  Page page(token_of(1));
  page.publish(reply_with(0, 0, 0), {}, {}, "h:1", kSecond);
  const std::string key = page_key(token_of(1));
  EXPECT_EQ(page.answer({"/state.json", "Bearer " + key})->status, "200 OK");
  for (const std::string& wrong : std::vector<std::string>{"", key, "Bearer", "Bearer " + key + "0",
                                                           "Bearer " + page_key(token_of(2))}) {
    EXPECT_EQ(page.answer({"/state.json", wrong})->status, "401 Unauthorized") << wrong;
    EXPECT_EQ(page.answer({"/history.json", wrong})->status, "401 Unauthorized") << wrong;
  }
  EXPECT_THAT(*page.answer({"/", ""})->body, HasSubstr("<main"));
  EXPECT_FALSE(page.answer({"/metrics", ""}).has_value());
  EXPECT_FALSE(page.answer({"/../secret", ""}).has_value());
}

TEST(Page, WithoutATokenEverybodyMayReadIt) {
  Page page(std::nullopt);
  EXPECT_EQ(page.answer({"/state.json", ""})->status, "503 Service Unavailable");
  page.publish(reply_with(0, 0, 0), {}, {}, "h:1", kSecond);
  EXPECT_EQ(page.answer({"/state.json", ""})->status, "200 OK");
}

TEST(Page, HasJobIdsAsTextsAndNoRanksOfEndedJobs) {
  v1::StatusReply reply = reply_with(0, 0, 0);
  reply.mutable_jobs(0)->set_outcome("finished");
  Page page(std::nullopt);
  page.publish(reply, {}, {}, "h:1", kSecond);
  const json state = body(page.answer({"/state.json", ""}));
  EXPECT_EQ(state["job_ids"], json::array({"18446744073709551615"}));
  EXPECT_TRUE(state["cluster"]["jobs"][0]["ranks"].empty());
  EXPECT_EQ(state["cluster"]["coordinator"], "h:1");
}

TEST(Page, ShowsTheRanksThatOthersWaitForWhenThereAreTooMany) {
  v1::StatusReply reply = reply_with(0, 0, 0);
  for (uint32_t rank = 2; rank < 1000; ++rank) {
    v1::RankStatus& status = *reply.mutable_jobs(0)->add_ranks();
    status.set_rank(rank);
    status.set_late_ns(rank == 900 ? 9'000'000'000ull : 0);
  }
  Page page(std::nullopt);
  page.publish(reply, {}, {}, "h:1", kSecond);
  const json state = body(page.answer({"/state.json", ""}));
  EXPECT_EQ(state["ranks_left_out"], 1000 - kPageRanksMax);
  EXPECT_EQ(state["cluster"]["jobs"][0]["ranks"].size(), kPageRanksMax);
  EXPECT_EQ(state["cluster"]["jobs"][0]["ranks"][0]["rank"], 900);
}

TEST(Page, HasTimelinesOfTracedJobsForTheKeyOnly) {
  v1::TraceRecords records;
  records.set_job_id(~uint64_t{0});
  v1::TraceSpan& span = *records.add_tracks()->add_spans();
  span.set_kind(2);
  span.set_end_ns(1'000'000);
  Timelines timelines;
  timelines.add(records, 0, "node-a", 0, 3 * kSecond);
  Page page(token_of(1));
  page.publish(reply_with(0, 0, 0), {}, timelines.copies(), "h:1", 5 * kSecond);
  const std::string key = "Bearer " + page_key(token_of(1));
  const json known = body(page.answer({"/state.json", key}))["timelines"]["18446744073709551615"];
  EXPECT_EQ(known["age_ms"], 2000);
  const std::string path = "/timeline/18446744073709551615.json";
  EXPECT_EQ(page.answer({path, ""})->status, "401 Unauthorized");
  EXPECT_EQ(body(page.answer({path, key}))["length_us"], 100);
  for (const char* other : {"/timeline/7.json", "/timeline/.json", "/timeline/x.json"})
    EXPECT_FALSE(page.answer({other, key}).has_value()) << other;
}

TEST(Page, LetsABrowserAskPrometheusAndNobodyElse) {
  const auto headers = [](const std::string& prometheus) {
    return Page(std::nullopt, prometheus).answer({"/", ""})->headers;
  };
  EXPECT_THAT(headers(""), HasSubstr("connect-src 'self'; "));
  EXPECT_THAT(headers("http://head:9090"), HasSubstr("connect-src 'self' http://head:9090; "));
  for (const char* good :
       {"http://head:9090", "https://prometheus.example.org", "http://[::1]:9090"})
    EXPECT_TRUE(is_web_origin(good)) << good;
  for (const char* bad :
       {"", "http://", "head:9090", "ftp://head", "http://head/path", "http://a b",
        "http://a; script-src *", "http://a\r\nX: y", "http://user@host"})
    EXPECT_FALSE(is_web_origin(bad)) << bad;
}

TEST(PageHistory, HasRatesBetweenSamples) {
  PageHistory history;
  EXPECT_TRUE(history.add(reply_with(1000, 100, 500), 10 * kSecond));
  EXPECT_FALSE(history.add(reply_with(1500, 150, 700), 11 * kSecond)) << "too early";
  EXPECT_TRUE(history.add(reply_with(5000, 1100, 2500), 12 * kSecond));
  const json sample = json::parse(history.newest_json());
  const json& job = sample["jobs"]["18446744073709551615"];
  EXPECT_EQ(sample["number"], 2);
  EXPECT_EQ(job["ratio"], 4);      // (5000 - 1000) / (1100 - 100)
  EXPECT_EQ(job["cosine"], 0.5);   // of the worst tensor
  EXPECT_EQ(job["waiting"], 0.5);  // the mean of 0 and 1
  EXPECT_EQ(job["late_s"], 2);
  EXPECT_EQ(sample["nodes"]["node-a"], json::array({1000, 0}));  // (2500 - 500) / 2 s
}

TEST(PageHistory, AJobThatIsNotCompressedHasNoRatio) {
  PageHistory history;
  history.add(reply_with(0, 0, 0), 10 * kSecond);
  const json sample = json::parse(history.newest_json());
  EXPECT_TRUE(sample["jobs"]["18446744073709551615"]["ratio"].is_null());
}

TEST(PageHistory, AnAgentThatWasRestartedHasNoRateInItsFirstSample) {
  PageHistory history;
  history.add(reply_with(0, 0, 500), 10 * kSecond);
  v1::StatusReply restarted = reply_with(0, 0, 900);
  restarted.mutable_agents(0)->set_pid(8);
  history.add(restarted, 12 * kSecond);
  EXPECT_EQ(json::parse(history.newest_json())["nodes"]["node-a"], json::array({0, 0}));
}

TEST(PageHistory, IsBounded) {
  PageHistory history;
  v1::StatusReply reply = reply_with(0, 0, 0);
  for (int i = 0; i < 200; ++i) {
    *reply.add_jobs() = reply.jobs(0);
    reply.mutable_jobs()->rbegin()->set_job_id(static_cast<uint64_t>(i));
    reply.add_agents()->set_name("node-" + std::to_string(i));
  }
  for (Nanos i = 1; i <= static_cast<Nanos>(kSamplesKept) + 5; ++i)
    history.add(reply, i * kSampleEvery);
  const json all = json::parse(history.all_json());
  EXPECT_EQ(all["samples"].size(), kSamplesKept);
  EXPECT_EQ(all["samples"][0]["number"], 6);
  EXPECT_EQ(all["samples"][0]["jobs"].size(), kJobsCharted);
  EXPECT_EQ(all["samples"][0]["nodes"].size(), kNodesCharted);
}

}  // namespace
}  // namespace gradbus
