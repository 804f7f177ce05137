// The status page: 80 columns at most, whatever the values; health; JSON that parses.
#include "cli/status/status_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/status/top_view.h"
#include "cli/terminal/text_table.h"
#include "common/dtype.h"
#include "common/units.h"
#include "proto/numbers.h"

namespace gradbus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::StatusReply reply_of(const std::string& name, uint64_t number) {
  v1::StatusReply reply;
  reply.set_version("0.1.0");
  v1::AgentStatus* agent = reply.add_agents();
  agent->set_name(name);
  agent->set_address("192.168.100.100:65535");
  agent->set_cores(static_cast<uint32_t>(number));
  agent->set_pid(number);
  agent->add_jobs(name);
  for (const char* path : {"tcp ", "rdma "}) {
    v1::LinkPath* on = agent->mutable_transport()->add_paths();
    on->set_name(path + name);
    on->set_links(number);
  }
  agent->mutable_transport()->set_switches(number);
  v1::JobStatus* job = reply.add_jobs();
  job->set_job(name);
  job->set_state("running");
  job->set_world_size(1);
  job->set_sent_bytes(number);
  v1::RankStatus* rank = job->add_ranks();
  rank->set_agent(name);
  rank->set_state("joined");
  rank->set_pid(number);
  rank->mutable_counters()->set_operations(number);
  rank->mutable_counters()->set_bytes(number);
  rank->set_late_ns(number);
  rank->set_operations_per_s(static_cast<double>(number));
  v1::ShardStatus* shard = job->add_shards();
  shard->set_name(name);
  shard->set_beside(name);
  shard->set_share(1);
  shard->set_received_bytes(number);
  return reply;
}

size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST(StatusText, FitsEightyColumns) {
  for (const uint64_t number : {uint64_t{0}, uint64_t{12'345}, UINT64_MAX}) {
    v1::StatusReply reply = reply_of(std::string(120, 'n'), number);
    reply.mutable_jobs(0)->set_stall("rank 3 waits for " + std::string(100, 't') +
                                     " and more words");
    EXPECT_LE(widest_line(status_text(reply, {"127.0.0.1:7400"})), 80u) << number;
  }
}

// Expect: names take the columns that figures leave, and figures are whole beside the longest
// names.
TEST(TopText, NamesGetTheColumnsThatAreFree) {
  v1::StatusReply reply = reply_of("training-of-monday", 3);
  for (const bool nodes : {false, true}) {
    TopView view{.address = "127.0.0.1:7400", .nodes = nodes};
    EXPECT_THAT(top_text(reply, view), HasSubstr("  training-of-monday  ")) << nodes;
    view.columns = 200;
    EXPECT_THAT(top_text(reply_of(std::string(60, 'n'), 3), view), HasSubstr(std::string(60, 'n')));
  }
  EXPECT_THAT(jobs_text(reply), HasSubstr("  training-of-monday  "));
  for (const uint64_t number : {uint64_t{0}, uint64_t{12'345}}) {
    reply = reply_of(std::string(120, 'n'), number);
    EXPECT_LE(widest_line(top_text(reply, {"127.0.0.1:7400"})), 80u) << number;
    EXPECT_THAT(top_text(reply, {"127.0.0.1:7400"}), HasSubstr("WAITS\n"));
    EXPECT_LE(widest_line(jobs_text(reply)), 80u) << number;
  }
}

TEST(StatusText, ShowsWhichPathLinksAreOn) {
  v1::StatusReply reply = reply_of("node-a", 3);
  reply.mutable_agents(0)->mutable_transport()->mutable_paths(0)->set_links(5);
  const std::string text = status_text(reply, {"x"});
  EXPECT_THAT(text, testing::ContainsRegex("node-a +tcp node-a +5 +3\n +rdma node-a +3 *\n"));
  const auto json = nlohmann::json::parse(status_json(reply, "x"))["agents"][0]["transport"];
  EXPECT_EQ(json["switches"], 3);
  EXPECT_EQ(json["paths"][0]["path"], "tcp node-a");
  EXPECT_EQ(json["paths"][0]["links"], 5);
  EXPECT_EQ(json["paths"][1]["links"], 3);
  reply.mutable_agents(0)->clear_transport();
  EXPECT_EQ(status_text(reply, {"x"}).find("SWITCHES"), std::string::npos) << "it has one path";
}

TEST(StatusText, ShowsWhatShardsHoldAndWhere) {
  v1::StatusReply reply = reply_of("agent-7", 4096);
  reply.mutable_jobs(0)->mutable_shards(0)->set_name("shard-0");
  reply.mutable_jobs(0)->mutable_shards(0)->set_share(2.0 / 7);
  const std::string text = status_text(reply, {"x"});
  EXPECT_THAT(text, testing::ContainsRegex("shard-0 +28.6 % .*agent-7"));
  const auto json = nlohmann::json::parse(status_json(reply, "x"))["jobs"][0]["shards"][0];
  EXPECT_EQ(json["share"], 2.0 / 7);
  EXPECT_EQ(json["beside"], "agent-7");
}

TEST(StatusText, ShowsModesAndWhatWasAskedFor) {
  v1::StatusReply reply = reply_of("node-a", 1);
  v1::JobStatus& job = *reply.mutable_jobs(0);
  job.add_tensors()->set_name("a");
  EXPECT_EQ(status_text(reply, {"x"}).find("tensors by mode"), std::string::npos) << "all are sync";
  job.add_tensors()->set_mode("delayed");
  job.add_tensors()->set_mode("delayed");
  v1::ModeChangeStatus& change = *job.add_mode_changes();
  change.set_group("embedding.*");
  change.set_mode("ps:async");
  change.set_reason("gradbus mode by alice");
  change.set_age_ms(2000);
  const std::string text = status_text(reply, {"x"});
  EXPECT_THAT(text, HasSubstr("tensors by mode: delayed (2), sync (1)"));
  EXPECT_THAT(text, HasSubstr("asked 2.0 s ago: \"embedding.*\" in mode ps:async"));
  const auto json = nlohmann::json::parse(status_json(reply, "x"));
  EXPECT_EQ(json["jobs"][0]["mode_changes"][0]["reason"], "gradbus mode by alice");
}

TEST(StatusText, ShowsHowEachTensorIsExchangedAndWhy) {
  v1::StatusReply reply = reply_of("node-a", 1);
  v1::JobStatus& job = *reply.mutable_jobs(0);
  job.clear_tensors();
  for (const char* name : {"grad/10:head", "grad/9:a.name.that.is.longer.than.any.column"}) {
    v1::TensorSpec& tensor = *job.add_tensors();
    tensor.set_name(name);
    tensor.set_dtype(static_cast<uint32_t>(DType::kF32));
    tensor.set_count(1'000'000);
    tensor.set_priority(3);
    v1::TensorPlan& plan = *job.add_plans();
    plan.set_algorithm(static_cast<uint32_t>(Algorithm::kRing));
    plan.set_chunk_elements(250'000);
    plan.set_why("1.5 ms predicted, chain 2 ms");
  }
  job.mutable_tensors(0)->set_compression("topk:ratio=0.01");
  job.mutable_plans(0)->set_communicator("owners");
  EXPECT_THAT(status_text(reply, {"x"}), Not(HasSubstr("PRIORITY")));
  StatusView view{"x"};
  view.tensors = true;
  const std::string text = status_text(reply, view);
  EXPECT_THAT(text, HasSubstr("TENSOR"));
  EXPECT_LT(text.find("grad/9"), text.find("grad/10")) << "numbers count as such";
  EXPECT_THAT(text, HasSubstr("4.00 MB  1.00 MB"));
  EXPECT_THAT(text, HasSubstr("3/0"));
  EXPECT_THAT(text, HasSubstr("topk:ratio=0.01"));
  EXPECT_THAT(text, HasSubstr("grad/10:head: ring by owners: 1.5 ms predicted, chain 2 ms"));
  EXPECT_LE(widest_line(text), 80u);
  const auto json = nlohmann::json::parse(status_json(reply, "x"))["jobs"][0]["tensors"][0];
  EXPECT_EQ(json["algorithm"], "ring");
  EXPECT_EQ(json["why"], "1.5 ms predicted, chain 2 ms");
}

TEST(StatusText, ShowsStalenessByModeAndAgent) {
  v1::StatusReply reply = reply_of("node-a", 1);
  EXPECT_EQ(status_text(reply, {"x"}).find("STALE"), std::string::npos) << "nothing is old";
  v1::StalenessStatus& of = *reply.mutable_jobs(0)->add_staleness();
  of.set_mode("ps:async");
  of.set_agent("node-a");
  of.set_mean(1.25);
  of.set_most(7);
  *reply.mutable_jobs(0)->add_staleness() = of;
  reply.mutable_jobs(0)->mutable_staleness(1)->clear_agent();
  const std::string text = status_text(reply, {"x"});
  EXPECT_THAT(
      text, testing::ContainsRegex("MODE +AGENT +STALE +MOST\n *ps:async +node-a +1\\.[23] +7\n"));
  EXPECT_THAT(text, testing::ContainsRegex("ps:async +all +1\\.[23] +7"));
  const auto json = nlohmann::json::parse(status_json(reply, "x"))["jobs"][0]["staleness"];
  EXPECT_EQ(json[0]["agent"], "node-a");
  EXPECT_EQ(json[0]["mean"], 1.25);
  EXPECT_EQ(json[1]["most"], 7);
}

TEST(StatusText, ShowsAgentsJobsRanksAndErrors) {
  v1::StatusReply reply = reply_of("node-a", 1'500'000);
  reply.mutable_jobs(0)->mutable_error()->set_message("GB-P101 PEER_LOST: rank 2 died");
  const std::string text = status_text(reply, {"h:1"});
  for (const char* part : {"coordinator h:1", "node-a", "192.168.100.100:65535", "running",
                           "1.50 MB", "1500000", "GB-P101 PEER_LOST: rank 2 died"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(status_text(v1::StatusReply(), {"h:1"}), HasSubstr("agents: none"));
}

TEST(StatusJson, ShowsWhatAgentsHaveMeasured) {
  v1::StatusReply reply = reply_of("node-b", 1);
  reply.mutable_agents(0)->set_reduce_ns(0.125);
  v1::PathStatus* path = reply.add_paths();
  path->set_agent("node-b");
  path->set_peer("node-a");
  path->set_alpha_us(31.5);
  path->set_beta_ns(0.75);
  const auto json = nlohmann::json::parse(status_json(reply, "h:1"));
  EXPECT_EQ(json["agents"][0]["reduce_ns"], 0.125);
  EXPECT_EQ(json["paths"][0]["agent"], "node-b");
  EXPECT_EQ(json["paths"][0]["peer"], "node-a");
  EXPECT_EQ(json["paths"][0]["alpha_us"], 31.5);
  EXPECT_EQ(json["paths"][0]["beta_ns"], 0.75);
}

TEST(Health, EachThingThatIsWrong) {
  const v1::StatusReply good = reply_of("a", 1);
  EXPECT_THAT(problems(good), IsEmpty());
  v1::StatusReply silent = good;
  silent.mutable_agents(0)->set_silent_ms(kSilentMsMax + 1);
  EXPECT_THAT(problems(silent), ElementsAre(HasSubstr("node a is silent for")));
  v1::StatusReply node = good;
  node.add_lost_nodes()->set_name("node-b");
  EXPECT_THAT(problems(node), ElementsAre(HasSubstr("gradbus status --forget node-b")));
  v1::StatusReply shard = good;
  shard.mutable_jobs(0)->mutable_shards(0)->set_lost(true);
  EXPECT_THAT(problems(shard), ElementsAre(HasSubstr("has lost its shard a")));
  v1::StatusReply stalled = good;
  stalled.mutable_jobs(0)->set_stall("rank 1 is late");
  EXPECT_THAT(problems(stalled), ElementsAre("job a: rank 1 is late"));
  EXPECT_THAT(status_text(stalled, {"h"}), HasSubstr("! job a: rank 1 is late"));
}

TEST(Health, TheEndOfAJobIsNoProblemOfTheCluster) {
  for (const char* outcome : {"finished", "stopped", "failed"}) {
    v1::StatusReply reply = reply_of("a", 1);
    v1::JobStatus& job = *reply.mutable_jobs(0);
    job.set_state("failed");
    job.set_outcome(outcome);
    job.set_ended_ms(12'000);
    job.mutable_error()->set_message("GB-J405 JOB_STOPPED: by root");
    job.mutable_ranks(0)->set_state("lost");
    job.mutable_shards(0)->set_lost(true);
    EXPECT_THAT(problems(reply), IsEmpty()) << outcome;
    const std::string text = status_text(reply, {"h"});
    EXPECT_THAT(text, HasSubstr("healthy"));
    EXPECT_THAT(text, HasSubstr("  a: " + std::string(outcome) + " 12.0 s ago, 1 rank\n"));
    EXPECT_THAT(text, Not(HasSubstr("ranks' rate"))) << text;
    EXPECT_THAT(status_text(reply, {"h", 0, true}), HasSubstr("RANK")) << "--job shows all of it";
  }
}

TEST(StatusText, MarksTheSlowRankAndShowsNoRateOfOneThatEnded) {
  v1::StatusReply reply = reply_of("node-a", 7);
  v1::RankStatus& fast = *reply.mutable_jobs(0)->mutable_ranks(0);
  fast.set_waiting(0.45);
  v1::RankStatus& slow = *reply.mutable_jobs(0)->add_ranks();
  slow = fast;
  slow.set_rank(3);
  slow.set_slow(true);
  slow.set_waiting(0.01);
  v1::RankStatus& left = *reply.mutable_jobs(0)->add_ranks();
  left.set_rank(4);
  left.set_state("left");
  const std::string text = status_text(reply, {"h"});
  EXPECT_THAT(text, HasSubstr("slow: rank 3 (node-a, pid 7); others wait up to 45 % of the time"));
  EXPECT_THAT(text, testing::ContainsRegex(" 3 +node-a +7 +slow .* 1 %"));
  EXPECT_THAT(text, testing::ContainsRegex(" 4 +0 +left +0 +- +0 B +-\n"));
}

TEST(StatusText, FitsASmallScreenAndKeepsWhatMatters) {
  v1::StatusReply reply = reply_of("node-a", 1);
  for (uint32_t i = 1; i < 64; ++i) {
    *reply.add_agents() = reply.agents(0);
    *reply.mutable_jobs(0)->add_ranks() = reply.jobs(0).ranks(0);
    reply.mutable_jobs(0)->mutable_ranks()->rbegin()->set_rank(i);
  }
  reply.mutable_jobs(0)->mutable_ranks(40)->set_slow(true);
  reply.add_lost_nodes()->set_name("node-b");
  for (const size_t rows : {size_t{10}, size_t{23}, size_t{50}}) {
    const std::string text = status_text(reply, {"h", rows});
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), static_cast<long>(rows)) << text;
    EXPECT_THAT(text, HasSubstr("node node-b is lost")) << rows;
  }
  const std::string page = status_text(reply, {"h", 23});
  EXPECT_EQ(std::count(page.begin(), page.end(), '\n'), 23);
  EXPECT_THAT(page, testing::ContainsRegex("  40 +node-a +1 +slow"));
  EXPECT_THAT(page, testing::ContainsRegex("more lines of ranks"));
  EXPECT_THAT(page, testing::ContainsRegex("more lines of agents"));
}

TEST(StatusJson, ParsesAndHoldsTheNumbers) {
  const auto object = nlohmann::json::parse(status_json(reply_of("node-a", 1'500'000), "h:1"));
  EXPECT_EQ(object["coordinator"], "h:1");
  EXPECT_EQ(object["healthy"], true);
  EXPECT_EQ(object["agents"][0]["name"], "node-a");
  EXPECT_EQ(object["jobs"][0]["ranks"][0]["operations"], 1'500'000);
}

TEST(Units, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1'000), "1.00 kB");
  EXPECT_EQ(bytes_text(12'345), "12.3 kB");
  EXPECT_EQ(bytes_text(999'499), "999 kB");
  EXPECT_EQ(bytes_text(999'500), "1.00 MB");
  EXPECT_EQ(bytes_text(UINT64_MAX), "18.4 EB");
}

TEST(Units, Times) {
  EXPECT_EQ(milliseconds_text(999), "999 ms");
  EXPECT_EQ(milliseconds_text(59'999), "59.9 s");
  EXPECT_EQ(milliseconds_text(185'000), "3 min 5 s");
  EXPECT_EQ(milliseconds_text(7'440'000), "2 h 4 min");
  EXPECT_EQ(milliseconds_text(25ull * 3'600'000), "1 d 1 h");
  EXPECT_EQ(nanoseconds_text(12'345), "12 us");
  EXPECT_EQ(nanoseconds_text(3'400'000), "3.40 ms");
  EXPECT_EQ(nanoseconds_text(4'200'000'000), "4.2 s");
}

TEST(TextTable, AlignsAndCuts) {
  TextTable table({{"NAME", 5}, {"N", 3, true}});
  table.add({"abcdefgh", "7"});
  table.add({"x", "123"});
  EXPECT_EQ(table.text(), "  NAME     N\n  abcd~    7\n  x      123\n");
}

}  // namespace
}  // namespace gradbus
