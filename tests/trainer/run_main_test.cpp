#include "trainer/run_main.h"

#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "tensor/error.h"

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

// Names of files and folders come from anywhere, and a terminal obeys them.
TEST(RunMain, AnErrorIsOneLineOfText) {
  setenv("ATHANOR_OMP_SET", "1", 1);
  testing::internal::CaptureStderr();
  run_main(0, nullptr, [](int, char**) -> int { throw IoError("\x1b[2J: no\nfile"); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: \\x1b[2J: no file\n");
}

}  // namespace athanor::run_main_test
