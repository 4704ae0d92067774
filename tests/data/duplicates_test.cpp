// Images that are in the training set and in the validation set.
#include "data/detail/duplicates.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/decoded_dataset.h"
#include "data/formats/join.h"
#include "data/formats/open.h"
#include "data/in_memory.h"
#include "data/relabelled.h"
#include "tests/support/made_up_set.h"
#include "tests/support/stores.h"

namespace athanor::duplicates_test {

using detail::Duplicates;
using detail::find_duplicates;
using test::OwnedSample;
using test::TempDir;
using test::write_file;
using Pairs = std::vector<std::string>;
using Store = std::shared_ptr<const Dataset>;

/// Images of equal size, each other bytes unless its seed is the same; the last is of class 1.
std::vector<OwnedSample> samples(bool raw, const std::vector<std::uint64_t>& seeds) {
  std::vector<OwnedSample> all;
  for (const std::uint64_t seed : seeds) {
    const std::int64_t label = all.size() + 1 == seeds.size() ? 1 : 0;
    all.push_back(test::raw_sample(4, 4, 3, label, seed));
    if (!raw) all.back() = {"\xff\xd8\xff" + all.back().bytes, Codec::jpeg, 0, 0, 0, label};
  }
  return all;
}

Store stored(const std::filesystem::path& at, bool raw, const std::vector<std::uint64_t>& seeds) {
  test::write_all(create_samples(at, {.classes = 2}), samples(raw, seeds));
  return open_samples(at);
}

TEST(Duplicates, AnImageInBothSetsIsFoundInEverySource) {
  struct Source {
    const char* suffix;
    bool raw;
  };
  for (const auto& [suffix, raw] :
       {Source{"", false}, Source{".tar", false}, Source{".athp", false}, Source{".tfrecord", false},
        Source{".athp", true}, Source{".npz", true}, Source{".bin", true}}) {
    SCOPED_TRACE(fmt::format("'{}', {}", suffix, raw ? "raw" : "encoded"));
    const TempDir dir;
    const Store train = stored(dir / (std::string("train") + suffix), raw, {1, 2, 3});
    const Store held_out = stored(dir / (std::string("val") + suffix), raw, {4, 5, 3});
    const Duplicates found = find_duplicates(*train, *held_out, 2);
    EXPECT_EQ(found.count, 1);
    EXPECT_EQ(found.pairs, Pairs{held_out->where(2) + " = " + train->where(2)});
    EXPECT_EQ(find_duplicates(*train, Subset(held_out, {0, 1}), 2).count, 0);
  }
}

TEST(Duplicates, AreFoundInTablesShardsAndAcrossFormats) {
  const TempDir dir;
  const Store folder = stored(dir / "folder", false, {1, 2, 3});
  const Store tar = stored(dir / "val.tar", false, {4, 2, 5});
  EXPECT_EQ(find_duplicates(*folder, *tar, 1).pairs, Pairs{tar->where(1) + " = " + folder->where(1)});

  write_file(dir / "a.png", samples(false, {5})[0].bytes);
  write_file(dir / "table.csv", "image,label\na.png,0\n");
  const Store table = open_samples(dir / "table.csv");
  EXPECT_EQ(find_duplicates(*tar, *table, 1).pairs, Pairs{(dir / "a.png").string() + " = " + tar->where(2)});

  stored(dir / "more.tar", false, {6, 7});
  std::vector<std::unique_ptr<Dataset>> shards;
  for (const char* name : {"more.tar", "val.tar"}) shards.push_back(open_samples(dir / name));
  EXPECT_EQ(find_duplicates(*join(std::move(shards)), *table, 1).count, 1);
}

TEST(Duplicates, OfPartsAndViewsAreTheirSources) {
  const TempDir dir;
  const Store all = stored(dir / "all", false, {1, 2, 3, 2, 4});
  const auto train = std::make_shared<Subset>(all, std::vector<std::int64_t>{0, 1, 2});
  const auto held_out = std::make_shared<Subset>(all, std::vector<std::int64_t>{4, 3});
  const ImageTransform to{.height = 8, .width = 8};
  const DecodedDataset decoded(train, to);
  const DecodedDataset relabelled(
      std::make_shared<Relabelled>(held_out, std::vector<std::string>{"other", "00001", "00000"}), to);
  EXPECT_EQ(find_duplicates(decoded, relabelled, 1).pairs, Pairs{all->where(3) + " = " + all->where(1)});
}

TEST(Duplicates, AllAreCountedAndThreeAreNamed) {
  const TempDir dir;
  const Store train = stored(dir / "train.athp", false, {1, 2, 3, 4, 5, 6});
  const Store held_out = stored(dir / "val.athp", false, {2, 9, 3, 4, 5, 2});
  const Duplicates found = find_duplicates(*train, *held_out, 1);
  EXPECT_EQ(found.count, 5);
  EXPECT_EQ(found.pairs.size(), 3u);
}

TEST(Duplicates, WhatCannotBeReadOrIsMadeWhenReadIsNone) {
  const TempDir dir;
  const Store train = stored(dir / "train", false, {1, 2});
  const Store held_out = stored(dir / "val", false, {1, 2});
  std::filesystem::remove(held_out->where(0));
  EXPECT_EQ(find_duplicates(*train, *held_out, 1).count, 1);
  const test::MadeUpSet made_up(20);
  EXPECT_EQ(find_duplicates(made_up, made_up, 1).count, 0);
  EXPECT_EQ(made_up.reads, 0);
}

}  // namespace athanor::duplicates_test
