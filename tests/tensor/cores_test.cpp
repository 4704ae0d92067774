// How many CPUs and cores a process may use, in file systems that are made up.
#include "tensor/base/cores.h"

#include <algorithm>
#include <array>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace athanor::cores_test {

class CoresTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { test::write_file(root_ / name, text); }
  int cpus() const { return usable_cpus(root_.path()); }

  test::TempDir root_;
  const int all_ = usable_cpus(root_.path());  // of the affinity mask: there is no quota
};

TEST_F(CoresTest, AQuotaOfAFractionIsRoundedUp) {
  write("proc/self/cgroup", "0::/pod/job\n");
  write("sys/fs/cgroup/pod/job/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus(), all_);
  write("sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpus(), 1) << "the group above has one";
  write("sys/fs/cgroup/pod/cpu.max", "110000 100000\n");
  EXPECT_EQ(cpus(), std::min(all_, 2));
  EXPECT_LE(usable_cores(root_.path()), 2);
  write("sys/fs/cgroup/pod/cpu.max", "nonsense\n");
  EXPECT_EQ(cpus(), all_);
}

TEST_F(CoresTest, TheFirstVersionHasQuotas) {
  write("proc/self/cgroup", "5:cpuset:/job\n4:cpu,cpuacct:/job\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus(), all_) << "-1 is none";
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(cpus(), 1);
}

TEST_F(CoresTest, CpusOfACoreCountOnce) {
  const std::array cpus{0, 1, 2, 5};
  EXPECT_EQ(cores_of(cpus, root_.path()), 4) << "nothing is known of them";
  const auto siblings = [&](int cpu, const char* list) {
    write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", list);
  };
  siblings(0, "0,4\n");
  siblings(1, "1,5\n");
  siblings(2, "2,6\n");
  siblings(5, "1,5\n");
  EXPECT_EQ(cores_of(cpus, root_.path()), 3);
}

TEST(Cores, OfThisMachine) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), usable_cpus());
}

}  // namespace athanor::cores_test
