#include "trainer/detail/terminal.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace athanor::terminal_test {

using terminal::fit;
using terminal::wrapped;

TEST(Terminal, ReportsItsWidth) {
  for (const unsigned short columns : std::array<unsigned short, 3>{60, 80, 120}) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    int ours = -1, theirs = -1;
    if (openpty(&ours, &theirs, nullptr, nullptr, &size) != 0)
      GTEST_SKIP() << "needs a pseudo-terminal, which this system has none of: " << std::strerror(errno);
    std::FILE* out = fdopen(theirs, "w");
    EXPECT_EQ(terminal::columns_of(out), columns);
    const std::string line(50, 'a'), rest(40, 'b');
    EXPECT_EQ(terminal::line_for(out, line + ' ' + rest), line + (columns == 120 ? ' ' : '\n') + rest);
    const std::string lines = rest + std::string(200'000, '\n') + rest;  // too many for a recursion
    EXPECT_EQ(terminal::line_for(out, lines), lines);
    std::fclose(out);
    close(ours);
  }
}

TEST(Terminal, DefaultsToEightyColumns) {
  // In a process of its own, which can leave the terminal that this test may have been started from.
  const auto ask = [] {
    setsid();
    std::FILE* out = std::fopen("/dev/null", "w");
    std::_Exit(terminal::columns_of(out));
  };
  EXPECT_EXIT(ask(), testing::ExitedWithCode(80), "");
}

TEST(Terminal, IsDumbIfTermSaysSo) {
  const char* const before = std::getenv("TERM");
  const std::string kind = before ? before : "";
  setenv("TERM", "dumb", 1);
  EXPECT_TRUE(terminal::is_dumb());
  setenv("TERM", "xterm", 1);
  EXPECT_FALSE(terminal::is_dumb());
  unsetenv("TERM");
  EXPECT_FALSE(terminal::is_dumb());
  if (before) setenv("TERM", kind.c_str(), 1);
}

TEST(Terminal, ALineForAFileIsOne) {
  std::FILE* out = std::fopen("/dev/null", "w");
  const std::string line(100, 'a');
  EXPECT_EQ(terminal::line_for(out, line + ' ' + line), line + ' ' + line);
  std::fclose(out);
  testing::internal::CaptureStderr();
  terminal::say(stderr, line + ' ' + line);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), line + ' ' + line + '\n');
}

TEST(Terminal, TextIsWrappedAtSpaces) {
  EXPECT_EQ(wrapped("one two three", 80, 4), "one two three");
  EXPECT_EQ(wrapped("one two three", 13, 4), "one two three");
  EXPECT_EQ(wrapped("one two three", 12, 4), "one two\n    three");
  EXPECT_EQ(wrapped("    one two three", 12, 4), "    one two\n    three");
  EXPECT_EQ(wrapped("a   b   cccc", 8, 0), "a   b\ncccc");
  EXPECT_EQ(wrapped("a incomprehensibilities b", 10, 2), "a\n  incomprehensibilities\n  b");
  EXPECT_EQ(wrapped("\xc3\xa4\xc3\xa4\xc3\xa4 \xc3\xb6\xc3\xb6\xc3\xb6", 7, 0),
            "\xc3\xa4\xc3\xa4\xc3\xa4 \xc3\xb6\xc3\xb6\xc3\xb6");
  EXPECT_EQ(wrapped("", 10, 2), "");
  EXPECT_EQ(wrapped("steps 12, peak 9 MB", 17, 0), "steps 12, peak 9\nMB");
  // Where something ends, if that is not too early.
  EXPECT_EQ(wrapped("steps 12, peak 9 MB", 17, 0, true), "steps 12,\npeak 9 MB");
  EXPECT_EQ(wrapped("forward 9 %; data 0 %", 20, 0, true), "forward 9 %;\ndata 0 %");
  EXPECT_EQ(wrapped("a, seven words or so follow", 20, 0, true), "a, seven words or so\nfollow");
}

// What gives way, at the widths that there are.
TEST(Terminal, ALineThatMovesFitsIn) {
  const terminal::ProgressParts line{.epoch = "    1",
                                     .done = 0.28,
                                     .step = "step 261/937",
                                     .loss = "loss 0.9852",
                                     .speed = "9,881 images/s",
                                     .left = "4.4 s left"};
  EXPECT_EQ(fit(line, 120),
            "    1  ━━━━━━──────────────────   28 %  step 261/937  loss 0.9852  9,881 images/s  4.4 s left");
  EXPECT_EQ(fit(line, 80), "    1  ━━────────   28 %  step 261/937  loss 0.9852  9,881 images/s  4.4 s left");
  EXPECT_EQ(fit(line, 70), "    1   28 %  step 261/937  loss 0.9852  9,881 images/s  4.4 s left");
  EXPECT_EQ(fit(line, 60), "    1  ━─────   28 %  step 261/937  loss 0.9852  4.4 s left");
  EXPECT_EQ(fit(line, 40), "    1   28 %  step 261/937  loss 0.9852");
  EXPECT_EQ(fit(line, 20), "    1  ━────   28 %");
  for (int columns = 1; columns <= 130; ++columns) {
    EXPECT_LT(terminal::width_of(fit(line, columns)), columns) << fit(line, columns);
  }
}

}  // namespace athanor::terminal_test
