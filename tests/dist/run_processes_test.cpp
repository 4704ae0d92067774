// Processes that are started and watched: how they end, and what is said of it.
#include "dist/launch/run_processes.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <utility>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dist/launch/launcher.h"
#include "dist/launch/restart.h"
#include "tensor/error.h"
#include "tests/support/errors.h"

namespace athanor::run_processes_test {

using namespace std::chrono_literals;
using dist::Command;

/// A rank, or, for rank -1, mpirun, made of a few lines for a shell. $PPID is this process.
Command shell(int rank, const std::string& script) {
  return {.arguments = {"sh", "-c", script}, .environment = {}, .rank = rank};
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
  outcome.code = dist::run_processes([&] { return commands; }, options);
  outcome.errors = testing::internal::GetCapturedStderr();
  outcome.took = std::chrono::steady_clock::now() - began;
  return outcome;
}

/// The errors are one line, which names the values.
testing::AssertionResult one_line(std::string errors, std::initializer_list<std::string_view> values) {
  if (!errors.ends_with('\n')) return testing::AssertionFailure() << "no line: " << errors;
  errors.pop_back();
  return test::names(errors, values);
}

TEST(RunProcesses, TheFirstSignalStartsADeadline) {
  const std::string deaf = "trap '' TERM; kill -TERM $PPID; sleep 300 & wait; sleep 300";
  for (const int rank : {0, -1}) {
    const Outcome outcome = run({shell(rank, deaf)}, {.end_within = 500ms});
    EXPECT_EQ(outcome.code, 74);
    EXPECT_TRUE(one_line(outcome.errors, {"error", "SIGTERM", "0.5 s"}));
    EXPECT_LT(outcome.took, 30s);
  }
}

TEST(RunProcesses, TheSignalThatCameIsTheOneThatIsPassedOn) {
  const std::pair<const char*, int> signals[] = {{"HUP", 129}, {"INT", 130}, {"TERM", 143}};
  for (const auto& [name, code] : signals) {
    const std::string saves =
        fmt::format("trap 'exit {}' {}; kill -{} $PPID; sleep 1 & wait; exit 9", code, name, name);
    const Outcome outcome = run({shell(0, saves)});
    EXPECT_EQ(outcome.code, code) << outcome.errors;
    EXPECT_EQ(outcome.errors, "");
  }
}

// One rank has saved at once; the other takes longer than ranks get that have lost one.
TEST(RunProcesses, ASavingRankIsNotEndedByAFinishedOne) {
  const std::string quick = "trap 'exit 143' TERM; sleep 0.2; kill -TERM $PPID; sleep 30 & wait",
                    slow = "trap 'sleep 7; echo saved >&2; exit 143' TERM; sleep 30 & wait";
  const Outcome outcome = run({shell(0, slow), shell(1, quick)});
  EXPECT_EQ(outcome.code, 143);
  EXPECT_EQ(outcome.errors, "rank 0: saved\n");
}

// Ranks under mpirun: the first is there when the signal comes, the second starts later.
TEST(RunProcesses, ALateRankGetsTheSignalToo) {
  const Outcome outcome =
      run({shell(-1, "sleep 100 & kill -TERM $PPID; sleep 0.5; sleep 100; echo told >&2; exit 5")});
  EXPECT_TRUE(outcome.errors.ends_with("told\n")) << outcome.errors;  // after the shell's own words
  EXPECT_EQ(outcome.code, 5);
  EXPECT_LT(outcome.took, 30s);
}

TEST(RunProcesses, AnIgnoredSignalStaysIgnored) {
  for (const int signal : {SIGINT, SIGHUP}) {
    const auto before = std::signal(signal, SIG_IGN);
    const std::string name = signal == SIGINT ? "INT" : "HUP";
    // A shell cannot trap what it ignores from the beginning.
    Command rank =
        shell(0, fmt::format("trap 'exit 7' {0}; kill -{0} $PPID; sleep 0.5 & wait; exit 3", name));
    rank.arguments.insert(rank.arguments.begin(), {"env", "--default-signal"});
    const Outcome outcome = run({rank});
    std::signal(signal, before);
    EXPECT_EQ(outcome.code, 3) << name;
    EXPECT_LT(outcome.took, 30s);
  }
}

/// For a shell: to have no children and never end. What continues it is a signal.
constexpr char kHangs[] = "while :; do kill -STOP $$; done";

TEST(RunProcesses, AnMpirunThatOutlivesItsRanksIsKilled) {
  // As a shell: its rank ends on SIGTERM, and it does not.
  const std::string hangs = fmt::format("trap : TERM; sleep 100 & kill -TERM $PPID; wait; {}", kHangs);
  const Outcome outcome = run({shell(-1, hangs)}, {.end_within = 20s, .alone_within = 200ms});
  EXPECT_EQ(outcome.code, 143) << outcome.errors;
}

TEST(RunProcesses, AnMpirunThatStartsNoRankIsKilled) {
  const Outcome outcome = run({shell(-1, kHangs)}, {.end_within = 300ms});
  EXPECT_EQ(outcome.code, 74);
  EXPECT_TRUE(one_line(outcome.errors, {"error", "mpirun", "0.3 s", "--dist-timeout"}));
}

TEST(RunProcesses, AnMpirunThatIsToldToEndBeforeItsRanksMayUseAnyCode) {
  for (const char* end : {"exit 1", "kill -SEGV $$"}) {
    const Outcome outcome =
        run({shell(-1, fmt::format("trap '{}' TERM; kill -TERM $PPID; {}", end, kHangs))});
    EXPECT_EQ(outcome.code, 143) << end;
    EXPECT_EQ(outcome.errors, "") << end;
  }
}

TEST(RunProcesses, ARankThatCrashesAfterTheSignalIsNotAnEndThatWasAskedFor) {
  const auto code = [](const char* signal) {
    const std::string says = fmt::format("mpirun noticed that process rank 0 exited on signal {}.", signal);
    return run({shell(-1, fmt::format("trap 'echo \"[vm:1] {}\" >&2; exit 139' TERM; kill -TERM $PPID; {}",
                                      says, kHangs))})
        .code;
  };
  EXPECT_EQ(code("11 (Segmentation fault)"), 139);
  EXPECT_EQ(code("15 (Terminated)"), 143) << "before it had a handler";
}

TEST(RunProcesses, MpirunsOwnCodeWithoutAReasonIsAnError) {
  const Outcome outcome = run({shell(-1, "exit 1")});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(one_line(outcome.errors, {"error", "mpirun", "1"}));
}

TEST(RunProcesses, MpirunDiesWithItsLauncherWhateverItIgnores) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  ::alarm(20);
  const pid_t launcher = ::fork();
  if (launcher == 0)
    ::_exit(dist::run_processes(
        [] { return std::vector{shell(-1, fmt::format("trap '' TERM; kill -KILL $PPID; {}", kHangs))}; }));
  for (int ended = 0; ended < 2; ++ended) {  // in any order
    int status = 0;
    ASSERT_GT(::waitpid(-1, &status, 0), 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  ::alarm(0);
}

TEST(RunProcesses, ASaveRequestEndsNoRankThatDoesNotKnowItYet) {
  auto* const before = std::signal(SIGUSR1, SIG_DFL);  // the shell inherits it
  // The launcher reads the first signal first.
  const Outcome outcome =
      run({shell(0, "trap 'exit 7' TERM; kill -USR1 $PPID; kill -TERM $PPID; sleep 100 & wait")});
  std::signal(SIGUSR1, before);
  EXPECT_EQ(outcome.code, 7);
}

TEST(RunProcesses, ASignalWhileCommandsAreMadeReachesTheProcesses) {
  const auto commands = [] {
    std::raise(SIGTERM);
    return std::vector{shell(0, "sleep 100")};
  };
  EXPECT_EQ(dist::run_processes(commands), 143);
}

TEST(WithMpirun, RefusesToStartWithTooFewOpenFilesOrTooSmallOnes) {
  const auto refused = [](decltype(RLIMIT_NOFILE) resource, rlim_t few, const char* flag) {
    const pid_t other = ::fork();  // no process may raise its limit again
    if (other == 0) {
      const rlimit limit{few, few};
      ::setrlimit(resource, &limit);
      try {
        (void)dist::with_mpirun(2, {});
      } catch (const BackendError& error) {
        ::_exit(test::names(error.what(), {"--devices 2", std::to_string(few), flag}) ? 0 : 1);
      }
      ::_exit(2);
    }
    int status = 0;
    return ::waitpid(other, &status, 0) == other && status == 0;
  };
  EXPECT_TRUE(refused(RLIMIT_NOFILE, 28, "ulimit -n"));
  EXPECT_TRUE(refused(RLIMIT_FSIZE, 4096, "ulimit -f"));
}

// What Open MPI 4.1 says, as it says it.
constexpr char kRule[] = "--------------------------------------------------------------------------";
std::string words(const std::string& text, int code) {
  return "cat >&2 <<'END'\n" + text + "\nEND\nexit " + std::to_string(code);
}

TEST(RunProcesses, WhatMpiSaysOfItselfIsOneLine) {
  const std::string memory = fmt::format(
      "{0}\nIt appears as if there is not enough space for /dev/shm/vader_segment.vm.0.1 (the shared-memory "
      "backing\n"
      "file). It is likely that your MPI job will now either abort or experience\nperformance "
      "degradation.\n\n"
      "  Local host:  vm\n  Space Requested: 4194312 B\n{0}\n{0}\nPrimary job  terminated normally, but 1 "
      "process "
      "returned\na non-zero exit code. Per user-direction, the job has been aborted.\n{0}",
      kRule);
  Outcome outcome = run({shell(-1, words(memory, 1))});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(one_line(
      outcome.errors,
      {"Open MPI",
       "It appears as if there is not enough space for /dev/shm/vader_segment.vm.0.1 (the shared-memory "
       "backing "
       "file). It is likely that your MPI job will now either abort or experience performance degradation",
       "ATHANOR_DIST_DEBUG=1"}));
  const std::string threads =
      "[vm:04074] [[25364,0],0] ORTE_ERROR_LOG: Error in file oob_tcp_listener.c at line 151\n"
      "*** An error occurred in MPI_Init_thread\n*** on a NULL communicator";
  outcome = run({shell(-1, words(threads, 1))});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(
      one_line(outcome.errors,
               {"Open MPI", "[[25364,0],0] ORTE_ERROR_LOG: Error in file oob_tcp_listener.c at line 151",
                "ATHANOR_DIST_DEBUG=1"}));
  EXPECT_NE(run({shell(-1, words(threads, 1))}, {.show_all = true}).errors.find("on a NULL communicator"),
            std::string::npos);
}

TEST(RunProcesses, MpiIsSilentIfARankReports) {
  const std::string both = fmt::format("{0}\nPrimary job  terminated\nrank 1: error: it is so\n{0}", kRule);
  const Outcome outcome = run({shell(-1, words(both, 2))});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors, "rank 1: error: it is so\n");
  const std::string nothing = fmt::format("{0}\nPrimary job  terminated\n{0}", kRule);
  EXPECT_TRUE(one_line(run({shell(-1, words(nothing, 9))}).errors, {"error", "9"}));
}

TEST(Restarts, OnlyALostRankCausesOne) {
  for (const int code : {74, 135, 137, 139}) EXPECT_TRUE(dist::has_lost_rank(code)) << code;
  for (const int code : {0, 1, 2, 3, 4, 129, 130, 143}) EXPECT_FALSE(dist::has_lost_rank(code)) << code;
}

// A rank that is killed in its first two starts, by a count in a file.
TEST(Restarts, AJobStartsAgainUntilItSucceedsOrTheyAreUsedUp) {
  const std::string count = testing::TempDir() + fmt::format("restarts.{}", ::getpid());
  const auto start = [&] {
    return dist::run_processes([&] {
      return std::vector{
          shell(0, "echo >>" + count + "; [ $(wc -l <" + count + ") -ge 3 ] || kill -KILL $$")};
    });
  };
  const auto starts = [&](int restarts, int code) {
    std::remove(count.c_str());
    testing::internal::CaptureStderr();
    EXPECT_EQ(dist::run_with_restarts(restarts, start), code);
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
  EXPECT_EQ(dist::run_with_restarts(5, [&] { return ++calls, 143; }), 143);  // was told to end
  EXPECT_EQ(calls, 1);
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
