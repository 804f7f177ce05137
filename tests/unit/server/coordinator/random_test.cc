// Random agents that say anything: the coordinator survives, and keeps its promises.
//   * every JoinJob is answered exactly once, by JobStarted or JoinRefused, unless the rank left;
//   * a started job ends at most once for each of its agents;
//   * every error is one line in the product's form and fits an attach packet.
#include <gmock/gmock.h>

#include <bit>
#include <random>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::error_of;

class RandomAgents {
 public:
  explicit RandomAgents(uint64_t seed) : random_(seed) { cluster_.coordinator.tick(cluster_.now); }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      read_inboxes();
    }
    cluster_.advance(70 * kSecond);  // longer than any start timeout used here
    read_inboxes();
  }

  void expect_all_answered() const {
    for (const auto& [who, count] : open_joins_) {
      const auto& [agent, job, rank] = who;
      if (!cluster_.beating.contains(agent) || left_.contains({agent, rank})) continue;
      EXPECT_EQ(count, 0) << "rank " << rank << " of " << job;
    }
  }
  int started() const { return static_cast<int>(started_.size()); }
  int errors() const { return errors_; }

 private:
  using Join = std::tuple<uint64_t, std::string, uint32_t>;  // agent, job, rank

  uint64_t pick(uint64_t below) { return random_() % below; }
  uint64_t some_agent() { return 1 + pick(5); }
  uint32_t some_rank() { return pick(10) == 0 ? uint32_t(random_()) : uint32_t(pick(4)); }
  uint64_t some_job() {
    return job_ids_.empty() || pick(10) == 0 ? random_() : job_ids_[pick(job_ids_.size())];
  }
  std::string some_tensor() { return std::string(1, char('a' + pick(3))); }

  void step() {
    const uint64_t agent = agents_.contains(slot_ = some_agent()) ? agents_[slot_] : 0;
    if (agent == 0) return attach();
    if (pick(12) == 0) measure(agent);
    switch (pick(12)) {
      case 0: return pick(8) == 0 ? detach(agent) : cluster_.advance(100 * kMillisecond);
      case 1:
      case 2:
      case 3: return join(agent);
      case 4:
      case 5:
      case 6: return register_some(agent);
      case 7: return block(agent);
      case 8:
        return cluster_.report(agent, some_job(), some_tensor(), pick(3), {some_rank()},
                               {some_rank()});
      case 9: return leave(agent);
      case 10: return pick(10) == 0 ? fail(agent) : cluster_.advance(100 * kMillisecond);
      default: return garbage(agent);
    }
  }

  std::string some_name() { return "job" + std::to_string(pick(3)); }

  void attach() {
    agents_[slot_] = ++next_agent_;
    cluster_.hello(next_agent_, "node-" + std::to_string(slot_));
  }

  void detach(uint64_t agent) {
    agents_.erase(slot_);
    cluster_.drop(agent);
  }

  // World sizes 1 to 4, mostly agreeing for one name.
  void join(uint64_t agent) {
    const std::string name = some_name();
    const uint32_t rank = some_rank();
    const uint32_t world = pick(10) == 0 ? uint32_t(pick(6)) : 1 + uint32_t(name.back() - '0');
    ++open_joins_[{agent, name, rank}];
    cluster_.join(agent, name, rank, world, 1 + pick(60'000));
  }

  void register_some(uint64_t agent) {
    std::vector<v1::TensorSpec> specs;
    for (uint64_t i = pick(4); i > 0; --i) {
      auto spec = test::make_spec(some_tensor(), pick(3) * 50'000);
      if (pick(20) == 0) spec.set_dtype(uint32_t(random_()));
      if (pick(20) == 0) spec.set_count(random_());
      specs.push_back(spec);
    }
    cluster_.register_tensors(agent, some_job(), some_rank(), specs);
  }

  void block(uint64_t agent) {
    cluster_.blocked(agent, some_job(), some_rank(), some_tensor(), pick(3), random_() >> pick(64));
  }

  void leave(uint64_t agent) {
    const uint32_t rank = some_rank();
    left_.emplace(agent, rank);
    cluster_.left(agent, pick(2) ? some_job() : 0, rank, pick(4) != 0, "d\n", some_name());
  }

  void fail(uint64_t agent) {
    v1::AgentMessage message;
    message.mutable_job_failure()->set_job_id(some_job());
    message.mutable_job_failure()->mutable_error()->set_code(uint32_t(pick(20)));
    cluster_.send(agent, message);
  }

  // A valid message with bytes changed, when it still parses.
  // True and false answers to the questions of all agents.
  void measure(uint64_t agent) {
    v1::AgentMessage message;
    const auto& probes = cluster_.probes;
    auto* measured = message.mutable_path_measured();
    measured->set_probe_id(probes.empty() ? pick(3) : probes.back().second.probe_id());
    measured->set_alpha_us(std::bit_cast<double>(pick(2) == 0 ? random_() : 0));
    measured->set_beta_ns(pick(2) == 0 ? 0.5 : 0);
    cluster_.send(pick(2) == 0 || probes.empty() ? agent : probes.back().first, message);
  }

  void garbage(uint64_t agent) {
    v1::AgentMessage message;
    auto* left = message.mutable_rank_left();
    left->set_job_id(some_job());
    left->set_rank(some_rank());
    std::string bytes = message.SerializeAsString();
    for (int i = 0; i < 3; ++i) bytes[pick(bytes.size())] = char(random_());
    if (message.ParseFromString(bytes) && !message.has_join_job()) cluster_.send(agent, message);
  }

  void read_inboxes() {
    for (const auto& [agent, messages] : cluster_.inbox) {
      for (const auto& message : messages) read(agent, message);
    }
    cluster_.clear();
    for (const uint64_t agent : cluster_.closed)
      ADD_FAILURE() << "agent " << agent << " was closed";
  }

  void read(uint64_t agent, const v1::CoordinatorMessage& message) {
    check_error(error_of(message));
    if (message.has_join_refused()) {
      const auto& refused = message.join_refused();
      --open_joins_[{agent, refused.job(), refused.rank()}];
    }
    if (message.has_job_failed()) {
      EXPECT_TRUE(failed_.emplace(agent, message.job_failed().job_id()).second);
    }
    if (message.has_job_started()) read_started(agent, message.job_started());
  }

  void read_started(uint64_t agent, const v1::JobStarted& started) {
    if (started_.insert(started.job_id()).second) job_ids_.push_back(started.job_id());
    for (const auto& member : started.members()) {
      if (started.agents(int(member.agent_index())).agent_id() != agent) continue;
      --open_joins_[{agent, started.job(), member.rank()}];
    }
  }

  void check_error(const std::string& text) {
    if (text.empty()) return;
    ++errors_;
    EXPECT_TRUE(text.starts_with("GB-")) << text;
    EXPECT_NE(text.find(" | next: "), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_LT(text.size(), 1024u);
  }

  std::mt19937_64 random_;
  Cluster cluster_;
  uint64_t slot_ = 0;
  uint64_t next_agent_ = 0;
  std::map<uint64_t, uint64_t> agents_;  // slot -> agent id
  std::map<Join, int> open_joins_;
  std::set<std::pair<uint64_t, uint32_t>> left_;  // agent, rank
  std::set<uint64_t> started_;
  std::set<std::pair<uint64_t, uint64_t>> failed_;
  std::vector<uint64_t> job_ids_;
  int errors_ = 0;
};

TEST(RandomAgents, PromisesHoldForEverySeed) {
  int started = 0;
  int errors = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    RandomAgents agents(seed);
    agents.run(3000);
    agents.expect_all_answered();
    started += agents.started();
    errors += agents.errors();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(started, 100);  // the test reaches what it is about
  EXPECT_GT(errors, 1000);
}

}  // namespace
}  // namespace gradbus
