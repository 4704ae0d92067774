#include "trainer/loggers/json_lines.h"

#include <csignal>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "tests/support/small_training.h"
#include "tests/support/temp_dir.h"
#include "tests/support/written.h"

namespace athanor::json_lines_test {

using test::small_config;

TEST(JsonLines, HoldOneObjectPerEpochAndOneAtTheEnd) {
  const test::TempDir dir;
  TrainerConfig config = small_config();
  config.metrics = dir / "metrics.jsonl";
  const test::RecordedRun result = test::run(config);
  test::run(config);  // appends
  const auto lines = test::json_lines(config.metrics);
  ASSERT_EQ(lines.size(), 8u);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& line = lines[i];
    EXPECT_EQ(line.at("event"), "epoch");
    EXPECT_EQ(line.at("epoch"), static_cast<int>(i) + 1);
    for (const char* key : {"train_loss", "val_loss", "val_accuracy", "images_per_s"}) {
      EXPECT_TRUE(line.at(key).is_number()) << key;
    }
    EXPECT_EQ(line.at("weights_hash").get<std::string>().size(), 16u);
  }
  const auto& end = lines[3];
  EXPECT_EQ(end.at("event"), "end");
  EXPECT_EQ(end.at("applied_steps"), 30);
  EXPECT_EQ(end.at("skipped_steps"), 0);
  EXPECT_EQ(end.at("stopped_by"), "epochs");
  EXPECT_EQ(end.at("weights_hash"), fmt::format("{:016x}", result.report.weights_hash));
  EXPECT_EQ(end.at("weights_hash"), lines[2].at("weights_hash"));
  for (const char* key : {"test_accuracy", "wall_s", "images_per_s", "host_syncs", "peak_bytes"}) {
    EXPECT_TRUE(end.at(key).is_number()) << key;
  }
  EXPECT_EQ(lines[7].at("weights_hash"), end.at("weights_hash"));
  EXPECT_FALSE(end.contains("vendor"));  // on a CPU there is none
}

// A disk that is full in the middle of a line: who goes on when there is room must not write behind half of
// one.
TEST(JsonLines, AreWholeAfterAFullDisk) {
  const test::TempDir dir;
  TrainerConfig config = small_config();
  config.metrics = dir / "metrics.jsonl";
  test::run(config);
  const std::string before = test::read_file(config.metrics);
  std::signal(SIGXFSZ, SIG_IGN);  // as run_main() does
  rlimit usual{};
  getrlimit(RLIMIT_FSIZE, &usual);
  const rlimit full{before.size() + 10, usual.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  EXPECT_THROW(test::run(config), IoError);
  setrlimit(RLIMIT_FSIZE, &usual);
  EXPECT_EQ(test::read_file(config.metrics), before);
}

// Of a process that was killed; what is not ours stays, on a line of its own.
TEST(JsonLines, BeginOnALineOfTheirOwn) {
  const test::TempDir dir;
  TrainerConfig config = small_config();
  config.metrics = dir / "metrics.jsonl";
  for (const char* half : {"{", "{\"ev", R"({"event":"st)"}) {
    test::write_file(config.metrics, half);
    test::run(config);
    EXPECT_TRUE(test::read_file(config.metrics).starts_with(R"({"event":"epoch")")) << half;
  }
  test::write_file(config.metrics, "my notes");
  test::run(config);
  EXPECT_TRUE(test::read_file(config.metrics).starts_with("my notes\n{\"event\":\"epoch\""));
}

TEST(JsonLines, RefuseAFileThatCannotBeWritten) {
  TrainerConfig config = small_config();
  config.metrics = "/nowhere/metrics.jsonl";
  EXPECT_THROW(Trainer{config}, IoError);
}

}  // namespace athanor::json_lines_test
