#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>

#include <gtest/gtest.h>

#include "crop.h"

namespace {

bool same(const Crop& a, const Crop& b) {
  return a.down == b.down && a.right == b.right && a.mirrored == b.mirrored;
}

TEST(Crop, DependsOnSampleAndEpochAlone) {
  int by_sample = 0, by_epoch = 0, by_seed = 0;
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    const Crop once = draw(7, 3, sample, 4);
    (void)draw(7, 3, 99 - sample, 4);
    ASSERT_TRUE(same(draw(7, 3, sample, 4), once))
        << "the same sample of the same epoch got another crop when others were drawn in between: "
           "with several workers, a run could not be repeated";
    by_sample += !same(draw(7, 3, sample + 1, 4), once);
    by_epoch += !same(draw(7, 4, sample, 4), once);
    by_seed += !same(draw(8, 3, sample, 4), once);
  }
  EXPECT_GT(by_sample, 50) << "all samples get the same crop: the sample is not used";
  EXPECT_GT(by_epoch, 50) << "a sample gets the same crop in each epoch: the epoch is not used";
  EXPECT_GT(by_seed, 50) << "the seed is not used";
}

TEST(Crop, ReachesBothEnds) {
  std::map<int, int> down, right;
  for (std::uint64_t sample = 0; sample < 50'000; ++sample) {
    const Crop crop = draw(1, 0, sample, 2);
    ++down[crop.down], ++right[crop.right];
  }
  for (const auto& counts : {down, right}) {
    EXPECT_TRUE(counts.contains(2)) << "the shift by +pad never occurs: -pad ... pad are 2 pad + 1 numbers";
    EXPECT_TRUE(counts.contains(-2)) << "the shift by -pad never occurs";
    EXPECT_EQ(counts.size(), 5u) << "pad 2 allows -2 ... 2";
    for (const auto& [shift, count] : counts)
      EXPECT_NEAR(count, 10'000, 600) << "a shift of " << shift << " must be as frequent as others";
  }
}

TEST(Crop, MirrorsIndependently) {
  int mirrored = 0, up_and_mirrored = 0, up = 0, equal = 0;
  for (std::uint64_t sample = 0; sample < 40'000; ++sample) {
    const Crop crop = draw(1, 0, sample, 4);
    mirrored += crop.mirrored, up += crop.down % 2 == 0,
        up_and_mirrored += crop.down % 2 == 0 && crop.mirrored, equal += crop.down == crop.right;
  }
  EXPECT_NEAR(mirrored, 20'000, 1000) << "half of all samples are mirrored";
  EXPECT_NEAR(up_and_mirrored, up / 2.0, 800)
      << "whether a sample is mirrored follows from its shift: both come from the same word";
  EXPECT_NEAR(equal, 40'000 / 9.0, 500) << "the two shifts are not independent";
}

const Image kImage{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};

TEST(Crop, PadsWithZeros) {
  EXPECT_EQ(transformed(kImage, {0, 0, false}), kImage) << "no shift";
  EXPECT_EQ(transformed(kImage, {1, 0, false}), (Image{{4, 5, 6}, {7, 8, 9}, {0, 0, 0}}))
      << "one row down: below the image there are zeros";
  EXPECT_EQ(transformed(kImage, {0, -1, false}), (Image{{0, 1, 2}, {0, 4, 5}, {0, 7, 8}}))
      << "one column to the left";
  EXPECT_EQ(transformed(kImage, {0, -1, true}), (Image{{2, 1, 0}, {5, 4, 0}, {8, 7, 0}}))
      << "first shifted, then mirrored";
  EXPECT_EQ(transformed(kImage, {5, 5, false}), (Image{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}))
      << "shifted out of the image altogether";
}

TEST(Crop, MovesTheMaskWithTheImage) {
  int changed = 0;
  for (std::uint64_t sample = 0; sample < 200; ++sample) {
    Image image = kImage, mask = kImage;
    augment(image, mask, 5, 1, sample, 1);
    ASSERT_EQ(image, mask) << "sample " << sample << ": the mask was "
                           << (mask == kImage ? "left where it was"
                                              : "changed in another way than its image");
    changed += image != kImage;
  }
  EXPECT_GT(changed, 150) << "images were not augmented";
}

}  // namespace
