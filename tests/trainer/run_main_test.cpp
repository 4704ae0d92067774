#include "trainer/run_main.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <new>
#include <system_error>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tensor/base/error.h"
#include "tests/support/errors.h"

namespace athanor::run_main_test {

TEST(RunMain, MapsErrorsToExitCodes) {
  setenv("ATHANOR_OMP_SET", "1", 1);  // this process is not to start itself again
  const auto code = [](auto&& body) {
    return run_main(0, nullptr, [&](int, char**) -> int {
      body();
      return 0;
    });
  };
  EXPECT_EQ(code([] {}), 0);
  EXPECT_EQ(code([] { throw ArgumentError("x"); }), 2);
  EXPECT_EQ(code([] { throw IoError("x"); }), 2);
  EXPECT_EQ(code([] { throw BackendError("x"); }), 3);
  EXPECT_EQ(code([] { throw OutOfMemoryError("x"); }), 3);
  EXPECT_EQ(code([] { throw std::bad_alloc(); }), 3);
  EXPECT_EQ(code([] { throw PeerLostError("x"); }), 74);
  EXPECT_EQ(code([] { throw HelpRequested(""); }), 0);
  EXPECT_EQ(code([] { throw 42; }), 2);  // a user's own code may
}

TEST(RunMain, NamesTheLimitThatIsReached) {
  const auto line = [](auto&& error) {
    try {
      throw error;
    } catch (...) {
      return describe_failure().line;
    }
  };
  const std::system_error no_thread(std::make_error_code(std::errc::resource_unavailable_try_again));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  if (before.rlim_cur == RLIM_INFINITY) {
    EXPECT_TRUE(test::names(line(no_thread), {"ulimit -u", "--threads"}));
  }
  const rlimit huge{std::min(before.rlim_cur, rlim_t{1} << 60), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &huge), 0);
  EXPECT_TRUE(test::names(line(no_thread), {"ulimit -v", "--threads"}));
  EXPECT_TRUE(test::names(line(std::bad_alloc()), {"ulimit -v"}));
  ::setrlimit(RLIMIT_AS, &before);
}

TEST(RunMain, AllowsAsManyOpenFilesAsTheUserMayHave) {
  rlimit before{}, within{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{std::min<rlim_t>(before.rlim_max, 32), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(with_standard_files([&] { return ::getrlimit(RLIMIT_NOFILE, &within); }), 0);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(within.rlim_cur, std::min<rlim_t>(before.rlim_max, 65'536));
}

TEST(RunMain, ASaveRequestBeforeTrainingEndsNoProgram) {
  auto* const before = std::signal(SIGUSR1, SIG_DFL);
  setenv("ATHANOR_OMP_SET", "1", 1);
  const int code = run_main(0, nullptr, [](int, char**) { return std::raise(SIGUSR1); });
  std::signal(SIGUSR1, before);
  EXPECT_EQ(code, 0);
}

// Names of files and folders come from anywhere, and a terminal obeys them.
TEST(RunMain, AnErrorIsOneLineOfText) {
  setenv("ATHANOR_OMP_SET", "1", 1);
  testing::internal::CaptureStderr();
  run_main(0, nullptr, [](int, char**) -> int { throw IoError("\x1b[2J: no\nfile"); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: \\x1b[2J: no file\n");
}

}  // namespace athanor::run_main_test
