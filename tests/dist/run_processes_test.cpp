// Processes that are started and watched: how they end, and what is said of it.
#include "dist/launch/run_processes.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dist/launch/launcher.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor::run_processes_test {

using namespace std::chrono_literals;
using dist::Command;

/// A rank, made of a few lines for a shell. $PPID is this process.
Command shell(const std::string& script) {
  return {.arguments = {"sh", "-c", script}, .environment = {}};
}

struct Outcome {
  int code = -1;
  std::string errors;
  std::chrono::steady_clock::duration took{};
};
Outcome run(const std::vector<Command>& commands, const dist::RunOptions& options = {}) {
  Outcome outcome;
  const auto began = std::chrono::steady_clock::now();
  testing::internal::CaptureStderr();
  outcome.code = dist::run_processes(commands, options);
  outcome.errors = testing::internal::GetCapturedStderr();
  outcome.took = std::chrono::steady_clock::now() - began;
  return outcome;
}

/// For the shell of a rank: it says, by its number in a file, that it has come so far; it waits until others
/// have, or until one of them is stopped.
std::string says(const test::TempDir& dir, int rank) {
  return fmt::format("echo $$ >'{}/{}'; ", dir.path().string(), rank);
}
std::string when(const test::TempDir& dir, std::initializer_list<int> ranks) {
  std::string script;
  for (const int rank : ranks)
    script += fmt::format("until [ -s '{}/{}' ]; do sleep 0.01; done; ", dir.path().string(), rank);
  return script;
}
std::string when_stopped(const test::TempDir& dir, int rank) {
  return fmt::format("until grep -q '^State:.T' \"/proc/$(cat '{}/{}')/status\"; do sleep 0.01; done; ",
                     dir.path().string(), rank);
}

/// The errors are one line, which names the values.
testing::AssertionResult one_line(std::string errors, std::initializer_list<std::string_view> values) {
  if (!errors.ends_with('\n')) return testing::AssertionFailure() << "no line: " << errors;
  errors.pop_back();
  return test::names(errors, values);
}

TEST(RunProcesses, TheFirstSignalStartsADeadline) {
  const Outcome outcome =
      run({shell("trap '' TERM; kill -TERM $PPID; sleep 300 & wait; sleep 300")}, {.end_within = 500ms});
  EXPECT_EQ(outcome.code, 74);
  EXPECT_TRUE(one_line(outcome.errors, {"error", "SIGTERM", "0.5 s"}));
  EXPECT_LT(outcome.took, 200s);
}

TEST(RunProcesses, TheSignalThatCameIsTheOneThatIsPassedOn) {
  const std::pair<const char*, int> signals[] = {{"HUP", 129}, {"INT", 130}, {"TERM", 143}};
  for (const auto& [name, code] : signals) {
    // The second has no handler yet.
    const std::string saves = fmt::format(
        "trap 'exit {}' {}; sleep 0.2; kill -{} $PPID; sleep 300 & wait; exit 9", code, name, name);
    const Outcome outcome = run({shell(saves), shell("exec sleep 300")});
    EXPECT_EQ(outcome.code, code) << outcome.errors;
    EXPECT_EQ(outcome.errors, "");
  }
}

// One rank has saved at once; the other takes longer than ranks get that have lost one.
TEST(RunProcesses, ASavingRankIsNotEndedByAFinishedOne) {
  const test::TempDir dir;
  const std::string quick = "trap 'exit 143' TERM; " + when(dir, {1}) + "kill -TERM $PPID; sleep 300 & wait",
                    slow =
                        "trap 'sleep 7; echo saved >&2; exit 143' TERM; " + says(dir, 1) + "sleep 300 & wait";
  const Outcome outcome = run({shell(quick), shell(slow)});
  EXPECT_EQ(outcome.code, 143);
  EXPECT_EQ(outcome.errors, "rank 1: saved\n");
}

TEST(RunProcesses, AnIgnoredSignalStaysIgnored) {
  for (const int signal : {SIGINT, SIGHUP}) {
    const auto before = std::signal(signal, SIG_IGN);
    const std::string name = signal == SIGINT ? "INT" : "HUP";
    // A shell cannot trap what it ignores from the beginning.
    Command rank = shell(fmt::format("trap 'exit 7' {0}; kill -{0} $PPID; sleep 0.5 & wait; exit 3", name));
    rank.arguments.insert(rank.arguments.begin(), {"env", "--default-signal"});
    const Outcome outcome = run({rank});
    std::signal(signal, before);
    EXPECT_EQ(outcome.code, 3) << name;
    EXPECT_LT(outcome.took, 200s);
  }
}

TEST(RunProcesses, ALostRankIsReportedAndEndsTheOthers) {
  std::vector<std::pair<int, int>> ended;
  const test::TempDir dir;
  const Outcome outcome = run(
      {shell("trap 'echo told >&2; exit 74' TERM; " + says(dir, 0) + "sleep 300 & wait"),
       shell(when(dir, {0, 2}) + when_stopped(dir, 2) + "kill -KILL $$"),
       // It cannot end before it is continued: else it is killed after some seconds, without a word.
       shell("trap 'echo continued >&2; exit 74' TERM; " + says(dir, 2) + "kill -STOP $$; sleep 300 & wait")},
      {.on_end = [&](int rank, int code) { ended.emplace_back(rank, code); }});
  EXPECT_EQ(outcome.code, 137);
  EXPECT_TRUE(test::has_line(outcome.errors, {"rank 1", "error", "signal 9"})) << outcome.errors;
  EXPECT_TRUE(test::has_line(outcome.errors, {"told"})) << outcome.errors;
  EXPECT_TRUE(test::has_line(outcome.errors, {"rank 2", "continued"})) << outcome.errors;
  ASSERT_FALSE(ended.empty());
  EXPECT_EQ(ended[0], std::pair(1, 137));
}

TEST(RunProcesses, ARankThatGivesNoReasonIsAnError) {
  EXPECT_TRUE(one_line(run({shell("exit 5")}).errors, {"error", "5"}));
  EXPECT_EQ(run({shell("echo error: it is so >&2; exit 5")}).errors, "error: it is so\n");
}

TEST(RunProcesses, SeesTheEndOfRanksWhereEndsOfProcessesAreIgnored) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);  // as the parent of this program may have
  EXPECT_EQ(run({shell("exit 5")}).code, 5);
  std::signal(SIGCHLD, before);
}

TEST(RunProcesses, RanksDieWithTheirLauncherWhateverTheyIgnore) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  ::alarm(300);
  const pid_t launcher = ::fork();
  if (launcher == 0) ::_exit(dist::run_processes({shell("trap '' TERM; kill -KILL $PPID; exec sleep 300")}));
  for (int ended = 0; ended < 2; ++ended) {  // in any order
    int status = 0;
    ASSERT_GT(::waitpid(-1, &status, 0), 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  ::alarm(0);
}

TEST(RunProcesses, WhatARankHasStartedEndsWithTheJob) {
  const Outcome outcome = run({shell("sleep 300 & echo $! >&2")});
  const pid_t left = std::stoi(outcome.errors);
  const auto lives = [&] {
    std::ifstream file(fmt::format("/proc/{}/stat", left));
    std::string stat;
    std::getline(file, stat);
    return !stat.empty() && stat.find(") Z") == stat.npos;
  };
  for (int i = 0; i < 12'000 && lives(); ++i) ::usleep(10'000);
  EXPECT_FALSE(lives());
}

TEST(RunProcesses, ASaveRequestEndsNoRankThatDoesNotKnowItYet) {
  // The launcher reads the first signal first.
  const Outcome outcome =
      run({shell("trap 'exit 7' TERM; kill -USR1 $PPID; kill -TERM $PPID; sleep 100 & wait")});
  EXPECT_EQ(outcome.code, 7);
}

TEST(Restarts, OnlyALostRankCausesOne) {
  for (const int code : {74, 135, 137, 139}) EXPECT_TRUE(dist::has_lost_rank(code)) << code;
  for (const int code : {0, 1, 2, 3, 4, 129, 130, 143}) EXPECT_FALSE(dist::has_lost_rank(code)) << code;
}

// A rank that is killed in its first two starts, by a count in a file.
TEST(Restarts, AJobStartsAgainUntilItSucceedsOrTheyAreUsedUp) {
  const std::string count = testing::TempDir() + fmt::format("restarts.{}", ::getpid());
  const auto start = [&] {
    return dist::run_processes(
        {shell(fmt::format("echo >>'{0}'; [ $(wc -l <'{0}') -ge 3 ] || kill -KILL $$", count))});
  };
  const auto starts = [&](int restarts, int code) {
    std::remove(count.c_str());
    testing::internal::CaptureStderr();
    EXPECT_EQ(dist::run_with_restarts(restarts, false, start), code);
    const std::string errors = testing::internal::GetCapturedStderr();
    std::ifstream file(count);
    const auto made = std::count(std::istreambuf_iterator<char>(file), {}, '\n');
    return std::pair(made, errors);
  };
  EXPECT_EQ(starts(0, 137).first, 1);
  EXPECT_EQ(starts(1, 137).first, 2);
  const auto [made, errors] = starts(5, 0);
  EXPECT_EQ(made, 3);
  EXPECT_TRUE(test::has_line(errors, {"warning", "137", "2", "5"}));
  std::remove(count.c_str());
  int calls = 0;
  EXPECT_EQ(dist::run_with_restarts(5, false, [&] { return ++calls, 143; }), 143);
  EXPECT_EQ(calls, 1);
  bool told_to_end = false;
  const auto without_agreement = [&] { return ++calls, told_to_end = true, 74; };
  EXPECT_EQ(dist::run_with_restarts(5, told_to_end, without_agreement), 74);
  EXPECT_EQ(calls, 2);
}

TEST(CheckRanks, ManyAreSlowAndAbsurdlyManyRefused) {
  constexpr std::uintmax_t kPlenty = 1ull << 40;
  EXPECT_EQ(dist::check_ranks(8, 2, kPlenty), "");
  EXPECT_TRUE(test::names(dist::check_ranks(16, 2, kPlenty), {"--devices 16", "8"}));
  EXPECT_NE(dist::check_ranks(64, 2, 0), "");
  EXPECT_THROW(dist::check_ranks(65, 2, kPlenty), ArgumentError);
  EXPECT_THROW(dist::check_ranks(1024, 2, kPlenty), ArgumentError);
  EXPECT_THROW(dist::check_ranks(8, 2, 100 << 20), ArgumentError);
}

}  // namespace athanor::run_processes_test
