// RDMA where something is missing or refused: each is one line that says what to do. The device is
// a test double; what a real one does is tried by the contract suite in a virtual machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "contract/transport_node.h"
#include "transport/rdma/rdma.h"
#include "unit/transport/verbs_double.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

Status status_of_start(const VerbsDouble& verbs, const TransportOptions& options = {}) {
  return RdmaTransport::create(verbs.library(), options).status();
}

std::vector<std::byte> some_memory() { return std::vector<std::byte>(3 << 20); }

SocketAddress address(const std::string& text) { return resolve_bind_address(text).take(); }

RdmaPort port(const std::string& device, bool active, std::vector<ibv_gid_entry> gids) {
  return {device, 1, active, true, 0, IBV_MTU_4096, std::move(gids)};
}

// The soft limit on locked memory, put back at the end.
class LockedMemoryLimit {
 public:
  explicit LockedMemoryLimit(rlim_t bytes) {
    getrlimit(RLIMIT_MEMLOCK, &before_);
    const rlimit limit{std::min(bytes, before_.rlim_max), before_.rlim_max};
    setrlimit(RLIMIT_MEMLOCK, &limit);
  }
  ~LockedMemoryLimit() { setrlimit(RLIMIT_MEMLOCK, &before_); }

 private:
  rlimit before_{};
};

TEST(RdmaStart, AMissingLibraryIsNamed) {
  const auto library = open_verbs("libno-such-verbs.so.1");
  EXPECT_EQ(library.status().code(), Code::kUnavailable);
  EXPECT_THAT(library.status().message(), HasSubstr("GB-D607"));
  EXPECT_THAT(library.status().message(), HasSubstr("libno-such-verbs.so.1"));
  EXPECT_THAT(library.status().message(), HasSubstr("next: apt install libibverbs1"));
}

TEST(RdmaStart, ALibraryOfAnotherVersionIsNamedWithWhatItLacks) {
  const auto library = open_verbs("libm.so.6");
  EXPECT_THAT(library.status().message(), HasSubstr("libm.so.6 lacks ibv_get_device_list"));
  EXPECT_THAT(library.status().message(), HasSubstr("_ibv_query_gid_table"));
}

TEST(RdmaStart, NoDeviceIsUnavailable) {
  VerbsDouble verbs;
  verbs.device_there = false;
  EXPECT_EQ(status_of_start(verbs).code(), Code::kUnavailable);
  EXPECT_THAT(status_of_start(verbs).message(), HasSubstr("GB-D607 NO_RDMA: this machine has no"));
}

TEST(RdmaStart, ADeviceThatMayNotBeOpenedIsNamed) {
  VerbsDouble verbs;
  verbs.open_refused = EACCES;
  EXPECT_THAT(status_of_start(verbs).message(), HasSubstr("double0 (Permission denied)"));
}

TEST(RdmaStart, APortThatIsDownIsNamed) {
  VerbsDouble verbs;
  verbs.port_state = IBV_PORT_DOWN;
  EXPECT_THAT(status_of_start(verbs).message(), HasSubstr("double0/1 (down)"));
}

TEST(RdmaStart, APortWithoutAddressIsNamed) {
  VerbsDouble verbs;
  verbs.gids.clear();
  EXPECT_THAT(status_of_start(verbs).message(), HasSubstr("double0/1 (no GID)"));
}

TEST(RdmaStart, ARefusedProtectionDomainSaysWhy) {
  VerbsDouble verbs;
  verbs.domain_refused = ENOMEM;
  EXPECT_THAT(status_of_start(verbs).message(), HasSubstr("Cannot allocate memory"));
}

TEST(RdmaStart, OptionsOutOfRangeAreRefused) {
  VerbsDouble verbs;
  TransportOptions options;
  options.posts_max = 0;
  EXPECT_THAT(status_of_start(verbs, options).message(), HasSubstr("GB-F100"));
}

TEST(RdmaStart, MemoryBeyondTheLimitNamesTheLimit) {
  VerbsDouble verbs;
  auto transport = RdmaTransport::create(verbs.library(), {}).take();
  const LockedMemoryLimit limit(2 << 20);
  verbs.memory_refused = ENOMEM;
  auto memory = some_memory();
  const auto region = transport->register_memory(memory);
  EXPECT_EQ(region.status().code(), Code::kExhausted);
  EXPECT_THAT(region.status().message(),
              HasSubstr("GB-D606 CANNOT_REGISTER: 3 MiB cannot be registered with double0"));
  EXPECT_THAT(region.status().message(), HasSubstr("locked memory is limited to 2 MiB"));
  EXPECT_THAT(region.status().message(), HasSubstr("ulimit -l unlimited"));
}

TEST(RdmaStart, MemoryRefusedForAnotherReasonDoesNotBlameTheLimit) {
  VerbsDouble verbs;
  auto transport = RdmaTransport::create(verbs.library(), {}).take();
  verbs.memory_refused = EFAULT;
  auto memory = some_memory();
  const auto region = transport->register_memory(memory);
  EXPECT_THAT(region.status().message(), HasSubstr("Bad address"));
  EXPECT_THAT(region.status().message(), testing::Not(HasSubstr("limited to")));
}

TEST(RdmaStart, TheGidOfTheListeningAddressIsChosen) {
  const RdmaPort ports[] = {
      port("first", true, {gid_entry(3, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2)}),
      port("second", true,
           {gid_entry(0, "fe80::1", IBV_GID_TYPE_ROCE_V2),
            gid_entry(1, "::ffff:10.0.0.2", IBV_GID_TYPE_ROCE_V1),
            gid_entry(2, "::ffff:10.0.0.2", IBV_GID_TYPE_ROCE_V2)})};
  const auto place = choose_place(ports, address("10.0.0.2:7000"));
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place.value().device, "second");
  EXPECT_EQ(place.value().gid.gid_index, 2u);
  EXPECT_EQ(describe(place.value()), "second port 1, RoCE v2 GID 2 ::ffff:10.0.0.2, MTU 4096");
}

TEST(RdmaStart, WithoutSuchAGidTheFirstActivePortIsChosen) {
  const RdmaPort ports[] = {
      port("down", false, {gid_entry(0, "::ffff:10.0.0.9", IBV_GID_TYPE_ROCE_V2)}),
      port("up", true,
           {gid_entry(0, "fe80::1", IBV_GID_TYPE_ROCE_V1),
            gid_entry(1, "fe80::1", IBV_GID_TYPE_ROCE_V2),
            gid_entry(5, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2)}),
      port("later", true, {gid_entry(0, "::ffff:10.0.0.3", IBV_GID_TYPE_ROCE_V2)})};
  const auto place = choose_place(ports, address("127.0.0.1"));
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place.value().device, "up");
  EXPECT_EQ(place.value().gid.gid_index, 5u);
}

}  // namespace
}  // namespace gradbus
