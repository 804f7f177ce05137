// What the doctor says of Ethernet below RDMA, from a /sys of the test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/doctor/doctor_findings.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

class DoctorRoce : public testing::Test {
 protected:
  DoctorRoce() {
    write("ib/mlx5_0/ports/1/link_layer", "Ethernet");
    write("ib/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth7");
    write("net/eth7/mtu", "9000");
  }
  ~DoctorRoce() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& line) {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << line << "\n";
  }
  Finding find(const std::string& name) {
    for (const Finding& one : check_roce((root_ / "ib").string(), (root_ / "net").string()))
      if (one.name == name) return one;
    return {Level::kMissing, "", "no such finding", ""};
  }

  std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("doctor_roce_" + std::to_string(::getpid()));
};

TEST_F(DoctorRoce, TheInterfacesMtuBoundsThePackets) {
  const std::pair<const char*, const char*> cases[] = {
      {"9000", "4096"}, {"4192", "4096"}, {"4191", "2048"}, {"1500", "1024"}, {"576", "256"}};
  for (const auto& [mtu, packets] : cases) {
    write("net/eth7/mtu", mtu);
    const Finding finding = find("roce mtu eth7");
    EXPECT_EQ(finding.value, std::string("interface ") + mtu + ", so RDMA packets of " + packets);
    const bool large = std::string(packets) == "4096";
    EXPECT_EQ(finding.level, large ? Level::kOk : Level::kWarn) << mtu;
    EXPECT_EQ(finding.next.empty(), large) << mtu;
  }
  EXPECT_THAT(find("roce mtu eth7").next, HasSubstr("ip link set eth7 mtu 4200"));
}

TEST_F(DoctorRoce, EcnIsReadWhereTheDriverShowsIt) {
  EXPECT_EQ(find("roce ecn eth7").level, Level::kMissing);
  write("net/eth7/ecn/roce_np/enable/3", "1");
  write("net/eth7/ecn/roce_rp/enable/3", "0");
  EXPECT_EQ(find("roce ecn eth7").level, Level::kWarn);
  EXPECT_THAT(find("roce ecn eth7").next, HasSubstr("eth7/ecn/roce_rp/enable/3"));
  EXPECT_THAT(find("roce ecn eth7").next, testing::Not(HasSubstr("roce_np")));
  write("net/eth7/ecn/roce_rp/enable/3", "1");
  EXPECT_EQ(find("roce ecn eth7").level, Level::kOk);
}

TEST_F(DoctorRoce, PfcIsNamedWithTheCommandThatShowsIt) {
  EXPECT_THAT(find("roce pfc eth7").next, HasSubstr("dcb pfc show dev eth7"));
}

TEST_F(DoctorRoce, InfiniBandHasNoneOfIt) {
  write("ib/mlx5_0/ports/1/link_layer", "InfiniBand");
  EXPECT_TRUE(check_roce((root_ / "ib").string(), (root_ / "net").string()).empty());
  EXPECT_TRUE(check_roce("/nowhere", "/nowhere").empty());
}

}  // namespace
}  // namespace gradbus
