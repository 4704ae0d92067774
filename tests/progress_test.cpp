#include "trainer/progress.h"

#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "support/small_training.h"

namespace athanor {
namespace {

TEST(Progress, OverwritesNothingWithoutATerminal) {
  for (const bool live : {false, true}) {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* out = open_memstream(&text, &size);
    {
      const auto train = synthetic(test::kSmallSpec, 160), held_out = synthetic(test::kSmallSpec, 20);
      test::Perceptron model;
      Trainer trainer(test::small_config());
      trainer.add(std::make_unique<Progress>(out, live));
      trainer.fit(model, *train, *held_out);
    }
    std::fclose(out);
    const std::string said(text, size);
    std::free(text);  // NOLINT: open_memstream's contract
    if (!live) {
      EXPECT_EQ(said.find('\r'), std::string::npos);
    }
    EXPECT_TRUE(said.starts_with("athanor: device cpu, ")) << said;
    EXPECT_NE(said.find("\n    3   "), std::string::npos) << said;
    EXPECT_NE(said.find("test accuracy "), std::string::npos) << said;
  }
}

TEST(Progress, WritesNumbersForPeople) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(duration(0.04), "0.0 s");
  EXPECT_EQ(duration(59.4), "59 s");
  EXPECT_EQ(duration(200), "3 min 20 s");
  EXPECT_EQ(duration(7500), "2 h 5 min");
}

}  // namespace
}  // namespace athanor
