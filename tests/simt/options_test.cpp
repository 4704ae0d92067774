#include "simt/emulator/options.h"

#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/simt/support.h"

namespace simt::test {
namespace {

struct Variables {
  Variables(std::initializer_list<std::pair<const char*, const char*>> values) {
    unset();
    for (const auto& [name, value] : values) setenv(name, value, 1);
  }
  ~Variables() { unset(); }

 private:
  static void unset() {
    for (const char* name : {"SIMT_ORDER", "SIMT_STREAM_ORDER", "SIMT_SUMS", "SIMT_ASYNC", "SIMT_DEVICES",
                             "SIMT_MEMORY", "SIMT_PINNED"})
      unsetenv(name);
  }
};

TEST(Options, HaveDefaults) {
  const Variables none({});
  const Options read = options_from_environment();
  EXPECT_EQ(read.threads.kind, Order::Kind::forward);
  EXPECT_EQ(read.devices, 1);
  EXPECT_EQ(read.error, "");
}

TEST(Options, ComeFromTheEnvironment) {
  const Variables some({{"SIMT_ORDER", "random:7"},
                        {"SIMT_STREAM_ORDER", "reverse"},
                        {"SIMT_SUMS", "random:9"},
                        {"SIMT_ASYNC", "early"},
                        {"SIMT_DEVICES", "3"},
                        {"SIMT_MEMORY", "1000"},
                        {"SIMT_PINNED", "2000"}});
  const Options read = options_from_environment();
  EXPECT_EQ(read.threads.kind, Order::Kind::random);
  EXPECT_EQ(read.threads.seed, 7u);
  EXPECT_EQ(read.streams.kind, Order::Kind::reverse);
  EXPECT_EQ(read.sums.kind, Order::Kind::random);
  EXPECT_EQ(read.sums.seed, 9u);
  EXPECT_EQ(read.async, Async::at_issue);
  EXPECT_EQ(read.devices, 3);
  EXPECT_EQ(read.memory_bytes, 1000u);
  EXPECT_EQ(read.pinned_bytes, 2000u);
  EXPECT_EQ(read.error, "");
}

TEST(Options, RejectInvalidArguments) {
  for (const char* wrong : {"backward", "random7", "random:", "random:x", "forward:1"}) {
    const Variables one({{"SIMT_ORDER", wrong}});
    const std::string error = options_from_environment().error;
    for (const char* value : {"SIMT_ORDER", "forward", "reverse", "random[:seed]"}) EXPECT_TEXT(error, value);
    EXPECT_TEXT(error, fmt::format("'{}'", wrong));
  }
  {
    const Variables async({{"SIMT_ASYNC", "soon"}});
    const std::string error = options_from_environment().error;
    for (const char* value : {"SIMT_ASYNC", "late", "early", "'soon'"}) EXPECT_TEXT(error, value);
  }
  const Variables devices({{"SIMT_DEVICES", "65"}});
  const std::string error = options_from_environment().error;
  for (const char* value : {"SIMT_DEVICES", "0", "64", "'65'"}) EXPECT_TEXT(error, value);
}

}  // namespace
}  // namespace simt::test
