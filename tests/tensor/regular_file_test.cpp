// Files that cannot be opened, and reads that fail for a moment: RegularFile tries them again.
#include "tensor/io/regular_file.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor::regular_file_test {

using std::chrono::milliseconds;

/// The pauses before the repetitions of a call that always fails with `error`.
std::vector<milliseconds> pauses_after(int error) {
  std::vector<milliseconds> pauses;
  int tries = 0;
  const auto pause = [&](milliseconds time) {
    pauses.push_back(time);
    errno = 0;
  };
  do errno = error;
  while (try_again(tries, pause));
  EXPECT_EQ(errno, error) << "what the caller reports";
  return pauses;
}

TEST(TryAgain, AnErrorThatMayPassGetsThreeMoreTriesWithinASecond) {
  for (const int error : {EIO, ESTALE, EAGAIN, ETIMEDOUT}) {
    (void)take_repeated_reads();
    const std::vector<milliseconds> pauses = pauses_after(error);
    ASSERT_EQ(pauses.size(), 3u) << std::strerror(error);
    EXPECT_LT(pauses[0], pauses[1]);
    EXPECT_LT(pauses[1], pauses[2]);
    EXPECT_LT(pauses[0] + pauses[1] + pauses[2], milliseconds(1000));
    const RepeatedReads repeated = take_repeated_reads();
    EXPECT_EQ(repeated.count, 3);
    EXPECT_EQ(repeated.error, error);
  }
}

TEST(TryAgain, AnErrorThatLastsGetsNone) {
  for (const int error : {ENOENT, EACCES, EISDIR, EBADF}) EXPECT_TRUE(pauses_after(error).empty());
}

TEST(TryAgain, ASignalIsNoError) {
  int tries = 0;
  for (int i = 0; i < 10; ++i) {
    errno = EINTR;
    EXPECT_TRUE(try_again(tries, [](milliseconds) { FAIL(); }));
  }
}

// Its descriptor leads to memory that cannot be read, EIO, until the first repetition.
TEST(RegularFile, ReadsOnAfterAnErrorThatPasses) {
  const test::TempDir dir;
  test::write_file(dir / "a", "text");
  const RegularFile file(dir / "a");
  const int good = ::dup(file.descriptor()), bad = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  std::array<std::byte, 4> bytes{};
  if (::pread(bad, bytes.data(), bytes.size(), 0) >= 0 || errno != EIO) GTEST_SKIP() << "no file that fails";
  (void)take_repeated_reads();
  ::dup2(bad, file.descriptor());
  std::thread mends([&] {
    while (take_repeated_reads().count == 0) std::this_thread::yield();
    ::dup2(good, file.descriptor());
  });
  EXPECT_EQ(file.read_at(0, bytes), 4u);
  mends.join();
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), 4), "text");
  ::close(good);
  ::close(bad);
}

TEST(RegularFile, NamesTheLimitOfOpenFiles) {
  const test::TempDir dir;
  test::write_file(dir / "a", "text");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const RegularFile file(dir / "a");
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(test::names(file.problem(), {"ulimit -n"}));
}

}  // namespace athanor::regular_file_test
