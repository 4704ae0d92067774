// Who is who: what launchers say in the environment.
#include "dist/launch/bootstrap.h"

#include <chrono>
#include <cstring>
#include <map>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "dist/launch/rendezvous.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"

namespace athanor::bootstrap_test {

using namespace std::chrono_literals;
using dist::find_rank_info;
using dist::Launcher;
using dist::RankInfo;

using Variables = std::map<std::string, std::string>;

RankInfo info_of(const Variables& variables) {
  return find_rank_info([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
  });
}

const Variables kMpirun{{"OMPI_COMM_WORLD_RANK", "3"},
                        {"OMPI_COMM_WORLD_SIZE", "8"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kTorchrun{{"RANK", "2"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "0"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.7"},
                          {"MASTER_PORT", "29500"}};
const Variables kSlurm{{"SLURM_PROCID", "5"},
                       {"SLURM_STEP_NUM_TASKS", "7"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_JOB_ID", "4711"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NODELIST", "gpu[03-04,9]"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),3"}};

Variables operator+(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

void expect_info(const RankInfo& info, Launcher launcher, int rank, int size, int local_rank,
                 int local_size) {
  EXPECT_EQ(info.launcher, launcher);
  EXPECT_EQ(info.rank, rank);
  EXPECT_EQ(info.world_size, size);
  EXPECT_EQ(info.local_rank, local_rank);
  EXPECT_EQ(info.local_size, local_size);
}

TEST(Bootstrap, WithoutALauncherThereIsOneRank) {
  expect_info(info_of({}), Launcher::none, 0, 1, 0, 1);
  // An address, an empty variable, a shell in an allocation of Slurm's: none of them says who this is.
  expect_info(
      info_of({{"MASTER_ADDR", "somewhere"}, {"RANK", ""}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}),
      Launcher::none, 0, 1, 0, 1);
}

TEST(Bootstrap, EveryLauncherIsUnderstood) {
  expect_info(info_of(kMpirun), Launcher::mpirun, 3, 8, 1, 2);
  const RankInfo torchrun = info_of(kTorchrun);
  expect_info(torchrun, Launcher::torchrun, 2, 4, 0, 2);
  EXPECT_EQ(torchrun.host, "10.0.0.7");
  EXPECT_EQ(torchrun.port, 29500);
  const RankInfo slurm = info_of(kSlurm);
  expect_info(slurm, Launcher::slurm, 5, 7, 1, 3);  // the third machine has three tasks
  EXPECT_EQ(slurm.host, "gpu03");
  EXPECT_EQ(slurm.job, "slurm 4711.0");
  EXPECT_GT(slurm.port, 1024);
  EXPECT_NE(slurm.port, info_of(kSlurm + Variables{{"SLURM_JOB_ID", "4712"}}).port);  // no fixed one
  const RankInfo nccl = info_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"NCCL_COMM_ID", "10.1.1.1:4000"}});
  expect_info(nccl, Launcher::nccl_comm, 1, 2, 0, 1);
  EXPECT_EQ(nccl.host, "10.1.1.1");
  EXPECT_EQ(nccl.port, 4000);
}

TEST(Bootstrap, TheFirstLauncherCountsIfAllAgree) {
  EXPECT_EQ(info_of(kMpirun +
                    Variables{{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})
                .launcher,
            Launcher::mpirun);
  const RankInfo both = info_of(
      kSlurm + Variables{{"RANK", "5"}, {"WORLD_SIZE", "7"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(both.launcher, Launcher::torchrun);
  // mpirun and torchrun work inside a step of Slurm's, which then speaks of the step that started them.
  EXPECT_EQ(info_of(kMpirun + kSlurm).rank, 3);
  EXPECT_EQ(info_of(kTorchrun + kSlurm + Variables{{"TORCHELASTIC_RUN_ID", "x"}}).rank, 2);
}

TEST(Bootstrap, ContradictionsAreErrorsThatListThem) {
  EXPECT_ERROR(ArgumentError, info_of(kMpirun + kTorchrun), "ranks", "mpirun", "OMPI_COMM_WORLD_RANK",
               "OMPI_COMM_WORLD_SIZE", "3", "8", "torchrun", "RANK", "WORLD_SIZE", "2", "4");
  EXPECT_ERROR(ArgumentError, info_of(kTorchrun + kSlurm), "ranks", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
               "5", "7");
  EXPECT_ERROR(ArgumentError, info_of(kTorchrun + Variables{{"NCCL_COMM_ID", "10.0.0.7:1"}}), "NCCL_COMM_ID",
               "10.0.0.7:1", "MASTER_ADDR", "MASTER_PORT", "10.0.0.7:29500");
  EXPECT_EQ(info_of(kTorchrun + Variables{{"NCCL_COMM_ID", "10.0.0.7:29500"}}).launcher, Launcher::torchrun);
}

TEST(Bootstrap, PartialAndBadVariablesAreErrors) {
  const auto refused = [](const Variables& variables, std::initializer_list<std::string_view> named) {
    EXPECT_TRUE(test::names(test::message_of([&] { (void)info_of(variables); }), named));
  };
  refused({{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_SIZE"});
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {"MASTER_ADDR", "MASTER_PORT"});
  refused({{"RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, {"WORLD_SIZE"});
  refused({{"NCCL_COMM_ID", "a:1"}}, {"NCCL_COMM_ID", "RANK", "WORLD_SIZE"});
  refused(kTorchrun + Variables{{"RANK", "4"}}, {"RANK", "[0, 3]", "4"});
  refused(kTorchrun + Variables{{"RANK", "1x"}}, {"RANK", "1x"});
  refused(kTorchrun + Variables{{"WORLD_SIZE", "0"}}, {"WORLD_SIZE", "'0'"});
  refused(kTorchrun + Variables{{"MASTER_PORT", "70000"}}, {"MASTER_PORT", "70000"});
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"NCCL_COMM_ID", "no port"}},
          {"NCCL_COMM_ID=HOST:PORT", "[1, 65535]"});
}

TEST(Bootstrap, TorchrunsAgentKeepsItsPort) {
  Variables variables{{"RANK", "1"},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "a"},
                      {"MASTER_PORT", "29500"},
                      {"TORCHELASTIC_RUN_ID", "none"}};
  EXPECT_EQ(info_of(variables).port, 29500);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(info_of(variables).port, 29500);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  const int ours = info_of(variables).port;
  EXPECT_NE(ours, 29500);
  EXPECT_GE(ours, 1024);
  variables["RANK"] = "0";
  EXPECT_EQ(info_of(variables).port, ours);
  variables["MASTER_PORT"] = "29501";
  EXPECT_NE(info_of(variables).port, ours);
}

TEST(Bootstrap, TheLaunchersSocketIsRank0s) {
  Variables variables{{"RANK", "0"},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", "1"},
                      {"ATHANOR_LISTENING", "7"}};
  EXPECT_EQ(info_of(variables).listening, 7);
  variables["RANK"] = "1";
  EXPECT_EQ(info_of(variables).listening, -1);
  variables["RANK"] = "0";
  variables["ATHANOR_LISTENING"] = "7x";
  EXPECT_ERROR(ArgumentError, info_of(variables), "ATHANOR_LISTENING", "7x");
}

TEST(Bootstrap, TheSecretIsRead) {
  EXPECT_EQ(info_of(kTorchrun).secret, "");
  EXPECT_EQ(info_of(kTorchrun + Variables{{"ATHANOR_SECRET", "x y"}}).secret, "x y");
  EXPECT_EQ(info_of(kSlurm + Variables{{"ATHANOR_SECRET", "z"}}).secret, "z");
}

TEST(Bootstrap, TheFirstHostOfSlurmsList) {
  EXPECT_EQ(dist::first_host("gpu[03-07,12],login"), "gpu03");
  EXPECT_EQ(dist::first_host("gpu[3]"), "gpu3");
  EXPECT_EQ(dist::first_host("alpha,beta[1-2]"), "alpha");
  EXPECT_EQ(dist::first_host("alpha"), "alpha");
  EXPECT_EQ(dist::first_host(""), "");
}

}  // namespace athanor::bootstrap_test
