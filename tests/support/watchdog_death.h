#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace athanor::test {

/// How a rank ends: each of its deaths has a folder for the record.
class WatchdogDeathTest : public testing::Test {
 protected:
  // A fork has no threads: the binary is started anew, and goes up to here. It is told of this one's folder.
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (const char* given = std::getenv(kFolder)) {
      folder = given;
    } else {
      own_ = std::make_unique<TempDir>();
      folder = own_->path();
      setenv(kFolder, folder.c_str(), 1);
    }
  }
  void TearDown() override {
    if (own_) unsetenv(kFolder);
  }
  std::filesystem::path record() const { return folder / "flight.0.json"; }

  std::filesystem::path folder;

 private:
  static constexpr char kFolder[] = "ATHANOR_FLIGHT_TEST_FOLDER";
  std::unique_ptr<TempDir> own_;
};

}  // namespace athanor::test
