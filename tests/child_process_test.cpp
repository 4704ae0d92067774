#include "data/formats/detail/child_process.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/error.h"

namespace athanor::detail {
namespace {

using Outcome = ChildProcess::Outcome;
using namespace std::chrono_literals;

// Read each time, so that no compiler knows that the loop does not end.
volatile bool for_ever = true;

/// Does as the request says.
std::string obey(std::string_view request, std::span<std::byte> window) {
  if (request == "die") ::raise(SIGSEGV);
  if (request == "abort") std::abort();
  if (request == "leave") ::_exit(3);
  if (request == "hang") {
    // ThreadSanitizer delivers signals when it is called.
    while (for_ever) std::this_thread::sleep_for(100us);
  }
  if (request == "throw") throw std::runtime_error("two\nlines");
  if (request == "fill") std::memset(window.data(), 7, window.size());
  if (request == "files") {
    return std::to_string(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  }
  if (request == "long") return std::string(ChildProcess::kMostBytes, 'x');
  return "so: " + std::string(request);
}

/// What can be waited for: nobody.
void expect_no_zombies() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

bool exists(pid_t pid) {
  return ::kill(pid, 0) == 0;
}

TEST(ChildProcess, AnswersThroughTextAndWindow) {
  {
    ChildProcess child(10000, obey);
    EXPECT_EQ(child.ask("a", 60).text, "so: a");
    EXPECT_EQ(child.ask(std::string(ChildProcess::kMostBytes - 4, 'b'), 60).text,
              "so: " + std::string(ChildProcess::kMostBytes - 4, 'b'));
    EXPECT_EQ(child.ask("long", 60).text, std::string(ChildProcess::kMostBytes, 'x'));
    EXPECT_EQ(child.window()[9999], std::byte{0});
    EXPECT_EQ(child.ask("fill", 60).outcome, Outcome::answered);
    EXPECT_EQ(child.window()[9999], std::byte{7});
    EXPECT_THROW(child.ask("", 60), ArgumentError);
    EXPECT_THROW(child.ask("a", 0), ArgumentError);
    EXPECT_THROW(child.ask(std::string(ChildProcess::kMostBytes + 1, 'b'), 60), ArgumentError);
  }
  expect_no_zombies();
}

TEST(ChildProcess, AnExceptionIsOneLineAndTheChildGoesOn) {
  ChildProcess child(1, obey);
  const ChildProcess::Answer answer = child.ask("throw", 60);
  EXPECT_EQ(answer.outcome, Outcome::refused);
  EXPECT_EQ(answer.text, "two?lines");
  EXPECT_EQ(child.ask("a", 60).text, "so: a");
}

TEST(ChildProcess, SaysHowItWasLost) {
  const std::vector<std::pair<const char*, const char*>> ways{{"die", "was ended by signal 11"},
                                                              {"abort", "was ended by signal 6"},
                                                              {"leave", "ended with status 3"}};
  for (const auto& [request, how] : ways) {
    ChildProcess child(1, obey);
    const ChildProcess::Answer answer = child.ask(request, 60);
    EXPECT_EQ(answer.outcome, Outcome::lost) << request;
    EXPECT_NE(answer.text.find(how), std::string::npos) << answer.text;
    EXPECT_EQ(child.ask("a", 60).text, answer.text) << "it stays lost";
    expect_no_zombies();
  }
  ChildProcess child(1, obey);
  ASSERT_EQ(::kill(child.pid(), SIGKILL), 0);
  EXPECT_NE(child.ask("a", 60).text.find("was ended by signal 9"), std::string::npos);
  expect_no_zombies();
}

TEST(ChildProcess, WaitsNoLongerThanItsPatience) {
  ChildProcess child(1, obey);
  const auto began = std::chrono::steady_clock::now();
  const ChildProcess::Answer answer = child.ask("hang", 0.25);
  EXPECT_EQ(answer.outcome, Outcome::lost);
  EXPECT_EQ(answer.text, "gave no answer for 0.25 s, and was ended");
  EXPECT_GE(std::chrono::steady_clock::now() - began, 200ms);
  expect_no_zombies();
}

TEST(ChildProcess, RefusesAnswersThatAreNone) {
  // Who finds the socket can write to it what he likes, as damaged memory could.
  const auto babble = [](std::string_view request, std::span<std::byte>) -> std::string {
    const std::string text(request == "long" ? ChildProcess::kMostBytes + 2 : 5,
                           request == "long" ? 'a' : 'z');
    for (int file = 3; file < 1000; ++file) (void)!::write(file, text.data(), text.size());
    for (;;) ::pause();
  };
  for (const char* request : {"long", "strange"}) {
    ChildProcess child(1, babble);
    EXPECT_EQ(child.ask(request, 60).text, "gave an answer that is none, and was ended") << request;
  }
  expect_no_zombies();
}

TEST(ChildProcess, HoldsNoFilesOfItsOwner) {
  const int open_file = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(open_file, 0);
  const ChildProcess elder(1, obey);
  ChildProcess child(1, obey);
  EXPECT_EQ(child.ask("files", 60).text, "5") << "three that lead nowhere, the socket, and the look itself";
  ::close(open_file);
}

TEST(ChildProcess, HasLimitedMemoryAndWritesNoFile) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("athanor-child-" + std::to_string(::getpid()));
  const auto take = [&](std::string_view request, std::span<std::byte>) -> std::string {
    if (request == "file") {
      const int file = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
      return ::write(file, "x", 1) == 1 ? "written" : "refused";
    }
    const bool much = request == "much";
    void* const memory = ::mmap(nullptr, ChildProcess::kMoreMemory / 4 * (much ? 5 : 3),
                                PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? "refused" : "given";
  };
  EXPECT_EQ(ChildProcess(1, take).ask("some", 60).text, "given");
  EXPECT_EQ(ChildProcess(1, take).ask("much", 60).text, "refused");
  EXPECT_NE(ChildProcess(1, take).ask("file", 60).text, "written");
  std::filesystem::remove(path);
}

TEST(ChildProcess, ManyThreadsHaveTheirOwn) {
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 10; ++i) {
          ChildProcess child(4096, obey);
          good += child.ask("fill", 60).outcome == Outcome::answered && child.window()[4095] == std::byte{7};
        }
      });
    }
  }
  EXPECT_EQ(good, 40);
  expect_no_zombies();
}

TEST(ChildProcess, OutlivesTheThreadThatForkedIt) {
  std::unique_ptr<ChildProcess> child;
  std::thread([&] { child = std::make_unique<ChildProcess>(1, obey); }).join();
  EXPECT_EQ(child->ask("a", 60).text, "so: a");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(child->ask("b", 60).text, "so: b");
}

TEST(ChildProcess, IgnoresWhatTheTerminalSendsToAll) {
  ChildProcess child(1, obey);
  EXPECT_EQ(child.ask("a", 60).text, "so: a");  // it has come to where it says so
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ASSERT_EQ(::kill(child.pid(), signal), 0);
  EXPECT_EQ(child.ask("b", 60).text, "so: b");
}

// Killed, it has no time to clean up: the child sees that by itself, be it idle or lost in a loop.
TEST(ChildProcess, EndsWithItsOwner) {
  for (const bool hangs : {false, true}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const pid_t owner = ::fork();
    if (owner == 0) {
      ChildProcess child(1, obey);
      (void)child.ask("a", 60);
      const pid_t pid = child.pid();
      (void)!::write(ends[1], &pid, sizeof pid);
      if (hangs) (void)child.ask("hang", 600);
      for (;;) ::pause();
    }
    pid_t pid = 0;
    ASSERT_EQ(::read(ends[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    std::this_thread::sleep_for(50ms);
    ASSERT_TRUE(exists(pid));
    ::kill(owner, SIGKILL);
    ::waitpid(owner, nullptr, 0);
    int looks = 0;
    // Whose parent is gone is waited for by the system's first process, which may not do so.
    const auto gone = [&] {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      std::string number, name, state;
      return !(stat >> number >> name >> state) || state == "Z" || state == "X";
    };
    while (!gone() && ++looks < 2000) std::this_thread::sleep_for(5ms);
    EXPECT_LT(looks, 2000) << (hangs ? "in a loop" : "idle");
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

}  // namespace
}  // namespace athanor::detail
