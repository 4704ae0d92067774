#include "tensor/base/free_memory.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace athanor::free_memory_test {

constexpr std::int64_t kMiB = 1 << 20;

class FreeMemoryTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { test::write_file(root_ / name, text); }
  std::optional<std::int64_t> found() const { return free_memory(root_.path()); }
  void SetUp() override {
    write("proc/meminfo", "MemTotal:  9000 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n");
  }

  test::TempDir root_;
};

TEST_F(FreeMemoryTest, IsWhatTheSystemHasAvailable) {
  EXPECT_EQ(found(), 8 * kMiB);
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(found(), 8 * kMiB);
  write("proc/meminfo", "MemTotal:  9000 kB\n");
  EXPECT_EQ(found(), std::nullopt);
}

TEST_F(FreeMemoryTest, IsLimitedByTheTightestGroup) {
  write("proc/self/cgroup", "0::/pod/job\n");
  write("sys/fs/cgroup/pod/job/memory.max", "max\n");
  write("sys/fs/cgroup/pod/job/memory.current", "1048576\n");
  EXPECT_EQ(found(), 8 * kMiB) << "it has no limit";
  write("sys/fs/cgroup/pod/memory.max", "6291456\n");
  write("sys/fs/cgroup/pod/memory.current", "4194304\n");
  EXPECT_EQ(found(), 2 * kMiB) << "the one above has";
  write("sys/fs/cgroup/pod/memory.stat", "anon 3145728\ninactive_file 1048576\nactive_file 7\n");
  EXPECT_EQ(found(), 3 * kMiB) << "files give way";
  write("sys/fs/cgroup/pod/memory.current", "99999999\n");
  EXPECT_EQ(found(), 0);
}

TEST_F(FreeMemoryTest, IsLimitedByGroupsOfTheFirstVersionToo) {
  write("proc/self/cgroup", "5:cpuset:/job\n4:cpu,memory:/job\n1:name=systemd:/job\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5242880\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1048576\n");
  EXPECT_EQ(found(), 4 * kMiB);
}

TEST(FreeMemory, OfThisMachineIsPositive) {
  const auto here = free_memory();
  ASSERT_TRUE(here.has_value());
  EXPECT_GT(*here, 0);
}

}  // namespace athanor::free_memory_test
