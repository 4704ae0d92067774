#include "data/repeated.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "data/loader.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/made_up_set.h"

namespace athanor::repeated_test {

using Pixels = std::vector<std::uint8_t>;

std::shared_ptr<test::MadeUpSet> source(std::int64_t size) {
  return std::make_shared<test::MadeUpSet>(size);
}

Pixels read(const Dataset& data, std::int64_t index, std::int64_t epoch) {
  Pixels pixels(static_cast<std::size_t>(data.spec().bytes()));
  (void)data.read_in_epoch(index, epoch, pixels);
  return pixels;
}

TEST(Repeated, CopiesAreDrawnAsInEpochsOfTheirOwn) {
  const auto original = source(5);
  const Repeated three(original, 3);
  ASSERT_EQ(three.size(), 15);
  std::map<Pixels, int> seen;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    for (std::int64_t i = 0; i < 15; ++i) {
      EXPECT_EQ(read(three, i, epoch), read(*original, i / 3, epoch * 3 + i % 3));
      EXPECT_EQ(++seen[read(three, i, epoch)], 1) << "no copy comes again";
      EXPECT_EQ(three.label(i), static_cast<const Dataset&>(*original).label(i / 3));
    }
  }
  Pixels copy(static_cast<std::size_t>(three.spec().bytes())), first = copy;
  (void)three.read(4, copy);
  (void)original->read(1, first);
  EXPECT_EQ(copy, first) << "evaluation draws nothing";
  EXPECT_EQ(three.where(4), original->where(1));
  EXPECT_ERROR(ArgumentError, three.label(15), "[0, 15)", "15");
  EXPECT_ERROR(ArgumentError, Repeated(original, 0), "0");
}

}  // namespace athanor::repeated_test
