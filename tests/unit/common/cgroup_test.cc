// Limits of control groups, on files as they were read in real containers.

#include "common/cgroup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace gradbus {
namespace {

using Files = std::map<std::string, std::string>;

FileReader reader(const Files& files) {
  return [files](const std::string& path) -> std::optional<std::string> {
    const auto at = files.find(path);
    return at == files.end() ? std::nullopt : std::optional(at->second);
  };
}

// podman run --memory 64m --cpus 0.5, runc, version 1 with an empty version 2 beside it: the
// container's group is the root of each mount.
const Files kVersion1 = {
    {"/proc/self/cgroup",
     "9:name=systemd:/libpod_parent/libpod-83\n4:memory:/libpod_parent/libpod-83\n"
     "3:cpuset:/libpod_parent/libpod-83\n2:cpuacct:/libpod_parent/libpod-83\n"
     "1:cpu:/libpod_parent/libpod-83\n0::/libpod_parent/libpod-83\n"},
    {"/proc/self/mountinfo",
     "86 78 0:46 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755\n"
     "87 86 0:29 /libpod_parent/libpod-83 /sys/fs/cgroup/cpu ro,relatime - cgroup cgroup rw,cpu\n"
     "88 86 0:30 /libpod_parent/libpod-83 /sys/fs/cgroup/cpuacct ro - cgroup cgroup rw,cpuacct\n"
     "90 86 0:32 /libpod_parent/libpod-83 /sys/fs/cgroup/memory ro,nosuid master:9 - cgroup cgroup "
     "rw,memory\n"
     "96 86 0:38 /libpod_parent/libpod-83 /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n"},
    {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "20971520\n"},
    {"/sys/fs/cgroup/memory/memory.stat",
     "cache 9437184\ninactive_file 1\ntotal_cache 9437184\ntotal_inactive_file 4194304\n"},
    {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"},
    {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
};

// A pod of Kubernetes with version 2 and a namespace: the group looks like the root.
const Files kPod = {
    {"/proc/self/cgroup", "0::/\n"},
    {"/proc/self/mountinfo",
     "1203 1187 0:30 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup "
     "rw,nsdelegate,memory_recursiveprot\n"},
    {"/sys/fs/cgroup/memory.max", "1073741824\n"},
    {"/sys/fs/cgroup/memory.current", "209715200\n"},
    {"/sys/fs/cgroup/memory.stat", "anon 100\nfile 200\ninactive_file 104857600\n"},
    {"/sys/fs/cgroup/cpu.max", "150000 100000\n"},
};

// A service of systemd: the slice above it has the lower limits.
const Files kNested = {
    {"/proc/self/cgroup", "0::/work.slice/gradbus-agent.service\n"},
    {"/proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"},
    {"/sys/fs/cgroup/work.slice/gradbus-agent.service/memory.max", "max\n"},
    {"/sys/fs/cgroup/work.slice/gradbus-agent.service/cpu.max", "max 100000\n"},
    {"/sys/fs/cgroup/work.slice/memory.max", "4294967296\n"},
    {"/sys/fs/cgroup/work.slice/memory.current", "4194304000\n"},
    {"/sys/fs/cgroup/work.slice/cpu.max", "400000 100000\n"},
};

TEST(Cgroup, ReadsVersion1) {
  const CgroupLimits limits = read_cgroup_limits(reader(kVersion1));
  EXPECT_DOUBLE_EQ(limits.cpus, 0.5);
  ASSERT_TRUE(limits.memory);
  EXPECT_EQ(limits.memory->bytes_max, 64u << 20);
  EXPECT_EQ(limits.memory->bytes_used, 16u << 20);
  EXPECT_EQ(limits.memory->left(), 48u << 20);
  EXPECT_EQ(limits.memory->file, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
}

TEST(Cgroup, ReadsVersion2InANamespace) {
  const CgroupLimits limits = read_cgroup_limits(reader(kPod));
  EXPECT_DOUBLE_EQ(limits.cpus, 1.5);
  ASSERT_TRUE(limits.memory);
  EXPECT_EQ(limits.memory_bytes_max, 1u << 30);
  EXPECT_EQ(limits.memory->bytes_used, 100u << 20);
  EXPECT_EQ(limits.memory->file, "/sys/fs/cgroup/memory.max");
}

TEST(Cgroup, AGroupAboveCounts) {
  const CgroupLimits limits = read_cgroup_limits(reader(kNested));
  EXPECT_DOUBLE_EQ(limits.cpus, 4);
  ASSERT_TRUE(limits.memory);
  EXPECT_EQ(limits.memory->file, "/sys/fs/cgroup/work.slice/memory.max");
  EXPECT_EQ(limits.memory->left(), 4294967296u - 4194304000u);
}

TEST(Cgroup, TheGroupWithTheLeastLeftDecides) {
  Files files = kNested;
  const std::string service = "/sys/fs/cgroup/work.slice/gradbus-agent.service/memory.";
  files[service + "max"] = "2147483648\n";
  files[service + "current"] = "1048576\n";
  CgroupLimits limits = read_cgroup_limits(reader(files));
  EXPECT_EQ(limits.memory_bytes_max, 2147483648u);
  EXPECT_EQ(limits.memory->file, "/sys/fs/cgroup/work.slice/memory.max");
  files[service + "current"] = "2147483648\n";
  limits = read_cgroup_limits(reader(files));
  EXPECT_EQ(limits.memory->file, service + "max");
  EXPECT_EQ(limits.memory->left(), 0u);
}

TEST(Cgroup, NoLimitIsNoLimit) {
  Files huge = kVersion1;
  huge["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n";
  huge["/sys/fs/cgroup/cpu/cpu.cfs_quota_us"] = "-1\n";
  Files broken = kPod;
  broken["/sys/fs/cgroup/memory.max"] = "much";
  broken["/sys/fs/cgroup/cpu.max"] = "0 0";
  Files outside = kPod;  // of a namespace
  outside["/proc/self/cgroup"] = "0::/../../other\n";
  outside.erase("/sys/fs/cgroup/memory.max");
  outside.erase("/sys/fs/cgroup/cpu.max");
  for (const Files& files :
       {Files{}, huge, broken, outside,
        Files{{"/proc/self/cgroup", "::\n4\n"}, {"/proc/self/mountinfo", "- - -\n1 2 3\n\n"}}}) {
    const CgroupLimits limits = read_cgroup_limits(reader(files));
    EXPECT_TRUE(std::isinf(limits.cpus));
    EXPECT_FALSE(limits.memory);
    EXPECT_EQ(limits.memory_bytes_max, UINT64_MAX);
  }
}

TEST(Cgroup, CoresAreWhatThreadsCanUseAtOnce) {
  CgroupLimits limits;
  EXPECT_EQ(usable_cores(limits, 8), 8u);
  limits.cpus = 3.9;
  EXPECT_EQ(usable_cores(limits, 8), 3u);
  EXPECT_EQ(usable_cores(limits, 2), 2u);
  limits.cpus = 0.5;
  EXPECT_EQ(usable_cores(limits, 8), 1u);
}

}  // namespace
}  // namespace gradbus
