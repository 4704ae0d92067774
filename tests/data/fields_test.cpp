// Samples of several fields: from a data set of one's own through loader and preprocessing.
#include <cmath>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "data/in_memory.h"
#include "data/loader.h"
#include "data/preprocess.h"
#include "tests/support/count_new.h"
#include "tests/support/errors.h"
#include "tests/support/places.h"

namespace athanor::fields_test {

using test::kHeight;
using test::kMoves;
using test::kWidth;
using test::Places;

Preprocess places_preprocess(const Augment& augment, std::int64_t views = 1) {
  return {{kHeight, kWidth, 3, 0}, {{0, 0, 0}, {1, 1, 1}}, DType::f32, kCpu, augment, 3, views};
}

TEST(Fields, BatchesHoldThemAllForAnyThreads) {
  const Places data;
  for (const int workers : {0, 1, 3}) {
    for (const bool training : {false, true}) {
      Loader loader(data, {.batch_size = 7, .shuffle = true, .training = training, .workers = workers});
      for (const std::int64_t epoch : {0, 1}) {
        loader.start_epoch(epoch);
        Batch batch;
        std::int64_t seen = 0;
        while (loader.next(batch)) {
          seen += batch.size();
          ASSERT_EQ(batch["mask"].shape(), (Shape{batch.size(), kHeight, kWidth}));
          ASSERT_EQ(batch["weight"].shape(), (Shape{batch.size()}));
          ASSERT_EQ(batch["box"].dtype(), DType::f32);
          EXPECT_FALSE(batch.labels.defined());
          for (std::int64_t n = 0; n < batch.size(); ++n) {
            const std::int64_t sample = batch.samples.data<std::int64_t>()[n];
            const auto* const id = batch["id"].data<std::int64_t>() + 2 * n;
            ASSERT_EQ(id[0], sample);
            ASSERT_EQ(id[1], training ? epoch : kEvaluation);
            ASSERT_EQ(batch["weight"].data<double>()[n], 0.5 * static_cast<double>(sample));
            const std::int64_t pixels = kHeight * kWidth;
            ASSERT_EQ(batch["noisy"].data<std::uint8_t>()[3 * pixels * n + 5], sample);
            ASSERT_EQ(batch["mask"].data<std::uint8_t>()[pixels * n + 17], 17);
            ASSERT_EQ(batch["image"].data<std::uint8_t>()[3 * pixels * n + 3 * 17 + 2], 19);
            ASSERT_EQ(batch["point"].data<float>()[4 * n + 2], 7.5f);
          }
        }
        EXPECT_EQ(seen, data.size());
      }
    }
  }
}

TEST(Fields, RanksShareABatch) {
  const Places data(20, 5);
  std::vector<double> labels, ids;
  for (int rank = 0; rank < 3; ++rank) {
    Loader loader(data, {.batch_size = 20, .workers = 0, .rank = rank, .world_size = 3});
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    for (const double label : batch["label"].to_vector()) labels.push_back(label);
    const std::vector<double> pairs = batch["id"].to_vector();
    for (std::size_t i = 0; i < pairs.size(); i += 2) ids.push_back(pairs[i]);
  }
  ASSERT_EQ(ids.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(ids[i], static_cast<double>(i));
    EXPECT_EQ(labels[i], static_cast<double>(i % 5));
  }
}

TEST(Fields, MatchTheirKindAndHaveUniqueNames) {
  const ImageSpec image{4, 5, 3, 2};
  const auto refused = [&](const FieldSpec& field) {
    struct Set : FieldDataset {
      using FieldDataset::FieldDataset;
      std::int64_t size() const override { return 1; }
      void read_fields(std::int64_t, std::int64_t, SampleRow&) const override {}
    };
    return test::message_of([&] { Set(image, {field}); });
  };
  EXPECT_TRUE(test::names(refused({"mask", DType::u8, {5, 4}, FieldKind::mask}),
                          {"fields", "'mask'", "u8 [4, 5]", "u8 [5, 4]"}));
  EXPECT_TRUE(test::names(refused({"mask", DType::i64, {4, 5}, FieldKind::mask}),
                          {"fields", "'mask'", "u8 [4, 5]", "i64 [4, 5]"}));
  EXPECT_TRUE(test::names(refused({"clean", DType::u8, {4, 5, 9}, FieldKind::target}),
                          {"fields", "target", "'clean'", "4", "u8 [4, 5, 9]"}));
  EXPECT_TRUE(test::names(refused({"noisy", DType::u8, {4, 5, 1}, FieldKind::picture}),
                          {"fields", "picture", "'noisy'", "u8 [4, 5, 3]", "u8 [4, 5, 1]"}));
  EXPECT_TRUE(test::names(refused({"box", DType::f32, {4}, FieldKind::boxes}),
                          {"fields", "boxes", "'box'", "f32 [K, 4]", "f32 [4]"}));
  EXPECT_TRUE(test::names(refused({"eyes", DType::f32, {2, 4}, FieldKind::points}),
                          {"fields", "points", "'eyes'", "f32 [K, 2]", "f32 [2, 4]"}));
  EXPECT_TRUE(test::names(refused({"x", DType::f32, {0}}), {"fields", "'x'", "[0]", "DecodedDataset"}));
  EXPECT_TRUE(test::names(refused({"image", DType::f32}), {"fields", "'image'"}));
  EXPECT_TRUE(test::names(refused({"", DType::f32}), {"fields", "''"}));
  EXPECT_EQ(refused({"x", DType::boolean, {1, 2, 3, 4}}), "");
}

TEST(Fields, UnknownNamesListTheKnownOnes) {
  const Places data;
  Loader loader(data, {.workers = 0});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_ERROR(ArgumentError, batch["masks"], "batch", "'image'", "'id'", "'clean'", "'mask'", "'noisy'",
               "'box'", "'point'", "'weight'", "'masks'");
  EXPECT_ERROR(ArgumentError, batch.view("mask", 1), "batch", "'mask'", "[0, 1)", "1");
  struct Wrong : Places {
    void read_fields(std::int64_t, std::int64_t, SampleRow& row) const override { row.get<float>("mask"); }
  } wrong;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(wrong.spec().bytes()));
  EXPECT_ERROR(ArgumentError, wrong.read(0, pixels), "fields", "'mask'", "u8", "f32");
}

// What goes wrong ------------------------------------------------------------------------------------------

std::string error_of(const Dataset& data, int workers = 0) {
  Loader loader(data, {.batch_size = 4, .workers = workers});
  Batch batch;
  return test::message_of<IoError>([&] {
    while (loader.next(batch)) {
    }
  });
}

TEST(FieldErrors, AFieldThatOneSampleLacksIsNamedWithIt) {
  Places data;
  data.leaves_out = 9;
  for (const int workers : {0, 2}) {
    EXPECT_TRUE(test::names(error_of(data, workers), {"loader", "sample 9", "'noisy'"}));
  }
  Loader loader(data, {.batch_size = 40, .workers = 0, .bad_samples = {.skip = true, .limit = 1}});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  const std::int64_t other = batch.samples.data<std::int64_t>()[9];
  EXPECT_NE(other, 9);
  EXPECT_EQ(batch["id"].data<std::int64_t>()[18], other) << "all of the other sample's fields";
  EXPECT_EQ(batch["noisy"].data<std::uint8_t>()[9 * 3 * kHeight * kWidth], other);
}

/// A set whose samples are stored: images and what else a test wants.
struct Stored : Dataset {
  std::int64_t size() const override { return 6; }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override {
    std::vector<FieldSpec> all = Dataset::fields();
    all.push_back({"mask", DType::u8, {2, 3}, FieldKind::mask});
    return all;
  }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>&) const override {
    const auto i = static_cast<std::size_t>(index);
    return {bytes_, Codec::raw, 2, 3, 1, labels[i], {&masks[i], masks[i].bytes.empty() ? 0u : 1u}};
  }
  std::string where(std::int64_t index) const override { return fmt::format("stored/{}.png", index); }
  ImageSpec spec_{2, 3, 1, 4};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(6, std::byte{7}),
                         longer_ = std::vector<std::byte>(8);
  std::vector<StoredField> masks = std::vector<StoredField>(6, {bytes_});
  std::vector<std::int64_t> labels = std::vector<std::int64_t>(6, 3);
};

TEST(FieldErrors, OfStoredSamplesNameFieldAndSample) {
  Stored data;
  EXPECT_EQ(error_of(data), "");
  const auto said = [&](std::initializer_list<std::string_view> named) {
    const std::string line = error_of(data);
    EXPECT_TRUE(test::names(line, {"loader", "sample 5", "stored/5.png"}));
    EXPECT_TRUE(test::names(line, named));
  };
  data.masks[5] = {};
  said({"read", "'mask'"});
  data.masks[5] = {data.longer_};
  said({"read", "'mask'", "6", "u8 [2, 3]", "8"});
  data.masks[5] = {data.bytes_, Codec::png};
  said({"read", "'mask'", "raw", "png", "DecodedDataset"});
  data.masks[5] = {data.bytes_};
  data.labels[5] = 4;
  said({"label", "[0, 4)", "4"});
}

TEST(FieldErrors, StoresOfImageAndLabelRejectFields) {
  EXPECT_ERROR(ArgumentError, InMemoryDataset{Places()}, "dataset", "'id'");
}

// Data sets around ------------------------------------------------------------------------------------------

TEST(Fields, StoredSamplesHaveThem) {
  const Places data;
  std::vector<std::byte> scratch;
  const StoredSample sample = data.fetch(7, scratch);
  ASSERT_EQ(sample.more.size(), 7u);
  EXPECT_EQ(sample.bytes.size(), 3u * kHeight * kWidth);
  EXPECT_EQ(sample.more[2].bytes.size(), 1u * kHeight * kWidth);
  EXPECT_EQ(sample.more[2].height, kHeight);
  EXPECT_EQ(sample.more[2].bytes[11], std::byte{11});
  double weight = 0;
  std::memcpy(&weight, sample.more[6].bytes.data(), sizeof(weight));
  EXPECT_EQ(weight, 3.5);
  EXPECT_ERROR(ArgumentError, data.fetch(40, scratch), "[0, 40)", "40");
}

TEST(Fields, SubsetsAndSetsOnTheDeviceCarryThem) {
  struct InMemory : Places {
    using Places::Places;
    bool resident() const override { return true; }
  };
  const auto all = std::make_shared<InMemory>(30, 5);
  const Subset part(all, {4, 8, 15, 16, 23});
  EXPECT_EQ(part.fields(), all->fields());
  for (const bool on_device : {false, true}) {
    Loader loader(part, {.batch_size = 5, .data_on_device = on_device});
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch["id"].to_vector(), (std::vector<double>{4, -1, 8, -1, 15, -1, 16, -1, 23, -1}));
    EXPECT_EQ(batch["weight"].to_vector(), (std::vector<double>{2, 4, 7.5, 8, 11.5}));
    EXPECT_EQ(batch["label"].to_vector(), (std::vector<double>{4, 3, 0, 1, 3}));
    const Batch ready = places_preprocess({}).prepare(batch, 0, false);
    EXPECT_EQ(ready["image"].to_vector()[7], double(3 / 255.0f));
  }
}

// Preprocessing --------------------------------------------------------------------------------------------

/// One batch of all places, prepared.
Batch prepared(const Augment& augment, std::int64_t views = 1, bool training = true) {
  static const Places data(40);
  static Loader loader(data, {.batch_size = 40, .training = true, .workers = 0});
  loader.start_epoch(0);
  Batch batch;
  loader.next(batch);
  return places_preprocess(augment, views).prepare(batch, 0, training);
}

TEST(FieldGeometry, IsDrawnOnceForAllOfASample) {
  for (const Padding padding : {Padding::zero, Padding::reflect}) {
    Augment augment = kMoves;
    augment.padding = padding;
    augment.cutout = 3;  // of pictures alone
    const Batch batch = prepared(augment);
    const std::vector<double> image = batch["image"].to_vector(), mask = batch["mask"].to_vector(),
                              clean = batch["clean"].to_vector(), noisy = batch["noisy"].to_vector();
    const std::vector<double> point = batch["point"].to_vector(), id = batch["id"].to_vector();
    std::int64_t outside = 0, moved = 0, found = 0, blanked = 0;
    const auto pixels = static_cast<std::size_t>(kHeight * kWidth);
    for (std::size_t n = 0; n < 40; ++n) {
      for (std::size_t i = 0; i < pixels; ++i) {
        const double place = mask[n * pixels + i];
        const bool unknown = place == 255;
        outside += unknown;
        moved += !unknown && place != static_cast<double>(i);
        ASSERT_EQ(clean[n * pixels + i], unknown ? 0 : double(float(place / 255)));
        const double value = image[(n * pixels + i) * 3 + 2];
        const bool blank = value == 0 && !unknown;
        blanked += blank;
        if (!blank) {
          ASSERT_EQ(value, unknown ? 0 : double(float((place + 2) / 255)));
        }
        ASSERT_EQ(noisy[(n * pixels + i) * 3], unknown || blank ? 0 : double(float(id[2 * n] / 255)));
      }
      for (std::size_t p = 0; p < 2; ++p) {  // a point still lies on the pixel that it was on
        const double x = point[4 * n + 2 * p], y = point[4 * n + 2 * p + 1];
        if (x < 0 || y < 0 || x >= kWidth || y >= kHeight) continue;
        ++found;
        const auto at = static_cast<std::size_t>(y) * kWidth + static_cast<std::size_t>(x);
        ASSERT_EQ(mask[n * pixels + at], p == 0 ? 2 * kWidth + 1 : 7);
      }
    }
    EXPECT_EQ(outside > 0, padding == Padding::zero);
    EXPECT_GT(moved, 1000);
    EXPECT_GT(blanked, 100);
    EXPECT_GT(found, 40);
  }
}

TEST(FieldGeometry, OfValidationIsNone) {
  const Batch batch = prepared(kMoves, 2, false);
  const std::vector<double> mask = batch["mask"].to_vector();
  for (std::size_t i = 0; i < mask.size(); ++i)
    ASSERT_EQ(mask[i], static_cast<double>(i % static_cast<std::size_t>(kHeight * kWidth)));
  EXPECT_EQ(batch["point"].to_vector()[1], 2.5);
  EXPECT_EQ(batch.view("image", 1).to_vector(), batch["image"].to_vector());
  EXPECT_EQ(batch["box"].to_vector()[2], 4);
}

TEST(FieldGeometry, BoxesMoveFlipAndAreClipped) {
  const auto moved = [](const kernels::AugmentPlan& plan, std::array<float, 4> box) {
    std::array<float, 4> to{};
    kernels::move_box(plan, 10, 20, box.data(), to.data());
    return to;
  };
  using Box = std::array<float, 4>;
  EXPECT_EQ(moved({}, {1, 2, 3, 4}), (Box{1, 2, 3, 4}));
  EXPECT_EQ(moved({.flip = true}, {1, 2, 3, 4}), (Box{17, 2, 19, 4}));
  EXPECT_EQ(moved({.dy = 3, .dx = -1}, {1, 2, 3, 4}), (Box{2, 0, 4, 1}));
  EXPECT_EQ(moved({.dy = 4}, {1, 2, 3, 4}), (Box{0, 0, 0, 0})) << "nothing is left";
  EXPECT_EQ(moved({.dx = -18}, {1, 2, 3, 4}), (Box{19, 2, 20, 4}));
  EXPECT_EQ(moved({}, {0, 0, 0, 0}), (Box{0, 0, 0, 0}));
  kernels::AugmentPlan half{.dy = 5, .dx = 10, .flip = true};
  half.scales = true;
  half.box_height = 5;
  half.box_width = 10;
  EXPECT_EQ(moved(half, {11, 6, 12, 7}), (Box{16, 2, 18, 4}));
}

TEST(Views, TheFirstEqualsASingleViewAndTheOthersDiffer) {
  const Augment crop{.flip = true, .colour = {0.4f, 0.4f, 0.4f, 0.1f}, .resized_crop = RandomResizedCrop{}};
  for (const Augment& augment : {kMoves, crop}) {
    const Batch one = prepared(augment), three = prepared(augment, 3);
    EXPECT_EQ(three.size(), 40);
    EXPECT_EQ(three.all_views("image").shape(), (Shape{120, kHeight, kWidth, 3}));
    EXPECT_EQ(three.all_views("mask").shape(), (Shape{120, kHeight, kWidth}));
    EXPECT_EQ(three.all_views("id").shape(), (Shape{40, 2})) << "no view changes it";
    EXPECT_EQ(three.view("id", 2).to_vector(), one["id"].to_vector());
    for (const char* name : {"image", "mask", "clean", "noisy", "point", "box"}) {
      EXPECT_EQ(three[name].to_vector(), one[name].to_vector()) << name;
      EXPECT_NE(three.view(name, 1).to_vector(), one[name].to_vector()) << name;
      EXPECT_NE(three.view(name, 2).to_vector(), three.view(name, 1).to_vector()) << name;
    }
    EXPECT_ERROR(ArgumentError, three.view("image", 3), "'image'", "[0, 3)", "3");
  }
  EXPECT_ERROR(ArgumentError, prepared(kMoves, 0), "views", "[1, 256]", "0");
}

TEST(Fields, OfWarmBatchesAllocateNothing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  const Places data(64, 5);
  Loader loader(data, {.batch_size = 8, .shuffle = true, .training = true, .workers = 0});
  const Preprocess preprocess = places_preprocess(kMoves, 2);
  std::int64_t before = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    for (int step = 0; step < 8; ++step) {
      if (step == 1) before = test::operator_news();
      Batch batch;
      ASSERT_TRUE(loader.next(batch));
      const Batch ready = preprocess.prepare(batch, epoch, true);
      ASSERT_EQ(ready.view("mask", 1).shape()[0], 8);
    }
    if (epoch > 0) {
      EXPECT_EQ(test::operator_news() - before, 0);
    }
  }
}

}  // namespace athanor::fields_test
