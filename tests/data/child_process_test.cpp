#include "data/formats/import/detail/child_process.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/error.h"
#include "tests/support/errors.h"

namespace athanor::detail::child_process_test {

using namespace std::chrono_literals;
using namespace std::string_literals;
using Owner = ChildProcess::Owner;

// Read each time, so that no compiler knows that the loop does not end.
volatile bool for_ever = true;

void hang() {
  // ThreadSanitizer delivers signals when it is called.
  while (for_ever) std::this_thread::sleep_for(100us);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Does as each byte it reads says, until there are no more.
void obey(Owner& owner) {
  char request{};
  while (owner.read(std::as_writable_bytes(std::span(&request, 1)))) {
    if (request == 's') ::raise(SIGSEGV);
    if (request == 'a') std::abort();
    if (request == 'l') ::_exit(3);
    if (request == 'h') hang();
    if (request == 't') throw std::runtime_error("two\nlines");
    if (request == 'f') {  // the files that are open
      const auto files = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
      request = static_cast<char>(files);
    }
    owner.write(std::as_bytes(std::span(&request, 1)));
  }
}

char ask(ChildProcess& child, char request) {
  child.write(std::as_bytes(std::span(&request, 1)));
  child.read(std::as_writable_bytes(std::span(&request, 1)));
  return request;
}

/// How `step` failed; and whether the child was lost.
std::pair<std::string, bool> failure(const std::function<void()>& step) {
  try {
    step();
  } catch (const ChildFailure& caught) {
    return {caught.what(), caught.lost};
  }
  return {"no failure", false};
}

/// What can be waited for: nobody.
void expect_no_zombies() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

bool exists(pid_t pid) {
  return ::kill(pid, 0) == 0;
}

TEST(ChildProcess, BytesGoBothWaysInOrder) {
  const std::string text(3'000'000, 'x');  // far more than a socket holds
  const auto echo = [&](Owner& owner) {
    std::string all(text.size(), ' ');
    ASSERT_TRUE(owner.read(std::as_writable_bytes(std::span(all))));
    owner.write(bytes_of(all));
    EXPECT_FALSE(owner.read(std::as_writable_bytes(std::span(all))));
  };
  ChildProcess child(echo, 60);
  child.write(bytes_of(text));
  std::string back(text.size(), ' ');
  child.read(std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, text);
  child.finish();
  expect_no_zombies();
  EXPECT_THROW(ChildProcess(obey, 0), ArgumentError);
}

TEST(ChildProcess, AnExceptionIsOneLine) {
  const std::pair<std::string, bool> refused{"two\\nlines", false};
  ChildProcess reading(obey, 60);
  EXPECT_EQ(failure([&] { ask(reading, 't'); }), refused);
  ChildProcess finishing(obey, 60);
  finishing.write(bytes_of("t"));
  EXPECT_EQ(failure([&] { finishing.finish(); }), refused);
  ChildProcess writing(obey, 60);
  writing.write(bytes_of("t"));
  EXPECT_EQ(failure([&] {
              for (;;) writing.write(bytes_of(std::string(1 << 20, ' ')));
            }),
            refused);
  expect_no_zombies();
}

TEST(ChildProcess, ReportsHowItEnded) {
  const std::vector<std::pair<char, std::string>> ways{{'s', "11"}, {'a', "6"}, {'l', "3"}};
  for (const auto& [request, how] : ways) {
    ChildProcess child(obey, 60);
    const auto [what, lost] = failure([&, request = request] { ask(child, request); });
    EXPECT_TRUE(lost);
    EXPECT_TRUE(test::names(what, {how}));
    EXPECT_NE(failure([&] { ask(child, 'x'); }).first, "no failure") << "it stays lost";
    expect_no_zombies();
    ChildProcess other(obey, 60);
    other.write(std::as_bytes(std::span(&request, 1)));
    EXPECT_TRUE(test::names(failure([&] { other.finish(); }).first, {how}));
  }
  ChildProcess child(obey, 60);
  ASSERT_EQ(::kill(child.pid(), SIGKILL), 0);
  EXPECT_TRUE(test::names(failure([&] { ask(child, 'x'); }).first, {"9"}));
  expect_no_zombies();
}

TEST(ChildProcess, WaitsNoLongerThanItsPatience) {
  ChildProcess child(obey, 0.25);
  const auto began = std::chrono::steady_clock::now();
  const auto [what, lost] = failure([&] { ask(child, 'h'); });
  EXPECT_TRUE(test::names(what, {"0.25 s"}));
  EXPECT_TRUE(lost);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 200ms);
  expect_no_zombies();
}

TEST(ChildProcess, InheritsNoFilesOfItsOwner) {
  const int open_file = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(open_file, 0);
  const ChildProcess elder(obey, 60);
  ChildProcess child(obey, 60);
  EXPECT_EQ(int(ask(child, 'f')), 5) << "three that lead nowhere, the socket, and the look itself";
  ::close(open_file);
}

TEST(ChildProcess, HasLimitedMemoryAndWritesAFileOnlyWhereItMay) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("athanor-child-" + std::to_string(::getpid()));
  const auto take = [](double share) {
    return [share](Owner&) {
      void* const memory =
          ::mmap(nullptr, static_cast<std::size_t>(share * static_cast<double>(ChildProcess::kMoreMemory)),
                 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) throw std::runtime_error("refused");
    };
  };
  EXPECT_EQ(failure([&] { ChildProcess(take(0.75), 60).finish(); }).first, "no failure");
  EXPECT_EQ(failure([&] { ChildProcess(take(1.25), 60).finish(); }).first, "refused");
  const auto write = [&](Owner&) {
    const int file = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
    if (::write(file, "x", 1) != 1) throw std::runtime_error("not written");
  };
  EXPECT_EQ(failure([&] { ChildProcess(write, 60).finish(); }).first, "not written");
  EXPECT_EQ(failure([&] { ChildProcess(write, 60, ChildProcess::Files::may_write).finish(); }).first,
            "no failure");
  std::filesystem::remove(path);
}

TEST(ChildProcess, ManyThreadsHaveTheirOwn) {
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 10; ++i) {
          ChildProcess child(obey, 60);
          good += ask(child, 'x') == 'x';
        }
      });
    }
  }
  EXPECT_EQ(good, 40);
  expect_no_zombies();
}

TEST(ChildProcess, OutlivesTheThreadThatForkedIt) {
  std::unique_ptr<ChildProcess> child;
  std::thread([&] { child = std::make_unique<ChildProcess>(obey, 60); }).join();
  EXPECT_EQ(ask(*child, 'x'), 'x');
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(ask(*child, 'y'), 'y');
}

TEST(ChildProcess, IgnoresTerminalSignals) {
  ChildProcess child(obey, 60);
  EXPECT_EQ(ask(child, 'x'), 'x');  // it has come to where it says so
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ASSERT_EQ(::kill(child.pid(), signal), 0);
  EXPECT_EQ(ask(child, 'y'), 'y');
}

// Killed, it has no time to clean up: the child sees that by itself, be it idle or lost in a loop.
TEST(ChildProcess, EndsWithItsOwner) {
  for (const bool hangs : {false, true}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const pid_t owner = ::fork();
    if (owner == 0) {
      ChildProcess child(obey, 600);
      ask(child, 'x');
      const pid_t pid = child.pid();
      (void)!::write(ends[1], &pid, sizeof pid);
      if (hangs) ask(child, 'h');
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

}  // namespace athanor::detail::child_process_test
