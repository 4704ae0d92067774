// Samples of several fields in files: in tables, decoded, and behind other data sets.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "data/convert.h"
#include "data/decoded_dataset.h"
#include "data/formats/open.h"
#include "data/formats/packed.h"
#include "data/image/reader.h"
#include "data/loader.h"
#include "tests/support/errors.h"
#include "tests/support/field_table.h"
#include "tests/support/image_files.h"
#include "tests/support/temp_dir.h"

namespace athanor::field_files_test {

using test::kCount, test::mask_of, test::Pixels, test::png_of, test::write_file, test::write_table;

TEST(Tables, OfCsvAreFilesNumbersAndClasses) {
  const test::TempDir folder;
  const auto table = open_samples(write_table(folder));
  EXPECT_EQ(format_of(folder / "train.csv"), "table of samples");
  EXPECT_EQ(table->fields(), (std::vector<FieldSpec>{{"image", DType::u8, {0, 0, 0}, FieldKind::picture},
                                                     {"clean", DType::u8, {0, 0, 0}, FieldKind::target},
                                                     {"mask", DType::u8, {0, 0}, FieldKind::mask},
                                                     {"box", DType::f32, {1, 4}, FieldKind::boxes},
                                                     {"weight", DType::f32},
                                                     {"label", DType::i64}}));
  EXPECT_EQ(table->class_names(), (std::vector<std::string>{"a \"dog\"", "cat"}));
  ASSERT_EQ(table->size(), kCount);
  std::vector<std::byte> scratch;
  const StoredSample sample = table->fetch(3, scratch);
  EXPECT_EQ(sample.label, 1);
  EXPECT_EQ(sample.codec, Codec::png);
  ASSERT_EQ(sample.more.size(), 4u);
  EXPECT_TRUE(std::ranges::equal(sample.more[0].bytes, sample.bytes));
  float numbers[4];
  std::memcpy(numbers, sample.more[2].bytes.data(), sizeof(numbers));
  EXPECT_EQ(numbers[2], 44);
  std::memcpy(numbers, sample.more[3].bytes.data(), 4);
  EXPECT_EQ(numbers[0], 3.5f);
}

// Decoded --------------------------------------------------------------------------------------------------

TEST(DecodedFields, AreThePartOfTheirImage) {
  const test::TempDir folder;
  const std::shared_ptr<Dataset> table = open_samples(write_table(folder));
  const DecodedDataset data(table, {.height = 16, .width = 24, .random_crop = RandomResizedCrop{}},
                            {.height = 16, .width = 24}, 5);
  EXPECT_EQ(data.fields()[1].shape, (Shape{16, 24, 3}));
  Loader loader(data, {.batch_size = kCount, .training = true, .workers = 2});
  for (const std::int64_t epoch : {0, 1}) {
    loader.start_epoch(epoch);
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch["image"].to_vector(), batch["clean"].to_vector()) << "the same file, cut alike";
    for (std::int64_t i = 0; i < kCount; ++i) {
      const std::int64_t height = 40 + 3 * i, width = 50 - 2 * i;
      const Pixels mask = mask_of(i, height, width);
      const Placement at = place({.height = 16, .width = 24, .random_crop = RandomResizedCrop{}},
                                 {height, width}, {5, epoch, i});
      const auto* const got = batch["mask"].data<std::uint8_t>() + i * 16 * 24;
      for (std::int64_t y = 0; y < 16; ++y) {
        for (std::int64_t x = 0; x < 24; ++x) {
          const auto row =
              static_cast<std::int64_t>(std::floor((double(y) + 0.5) * at.rows.scale + at.rows.offset));
          const auto column =
              static_cast<std::int64_t>(std::floor((double(x) + 0.5) * at.columns.scale + at.columns.offset));
          ASSERT_EQ(got[y * 24 + x], *mask.at(row, column)) << i << " " << y << " " << x;
        }
      }
      const auto* const box = batch["box"].data<float>() + 4 * i;
      const auto clipped = [](double value, double most) { return std::clamp(value, 0.0, most); };
      EXPECT_NEAR(box[0], clipped((1 - at.columns.offset) / at.columns.scale, 24), 1e-4);
      EXPECT_NEAR(box[1], clipped((2 - at.rows.offset) / at.rows.scale, 16), 1e-4);
      EXPECT_EQ(box[2], 24) << "its right side is the image's";
    }
  }
  Loader plain(data, {.batch_size = 1, .workers = 0});
  Batch first;
  ASSERT_TRUE(plain.next(first));
  EXPECT_EQ(first["weight"].item(), 0.5);
}

TEST(DecodedFields, OfAnotherSizeAreNamedWithTheirSample) {
  const test::TempDir folder;
  const auto path = write_table(folder);
  const auto said = [&] {
    const DecodedDataset data(open_samples(path), {.height = 16, .width = 24});
    Loader loader(data, {.batch_size = kCount, .workers = 0});
    Batch batch;
    return test::message_of<IoError>([&] { loader.next(batch); });
  };
  EXPECT_EQ(said(), "");
  const auto expect_named = [&](std::initializer_list<std::string_view> values) {
    const std::string line = said();
    EXPECT_TRUE(test::names(line, {"sample 2", "photos/2.png", "'mask'"}));
    EXPECT_TRUE(test::names(line, values));
  };
  write_file(folder / "masks/2.png", png_of(mask_of(2, 46, 45)));
  expect_named({"46x46", "46x45"});
  write_file(folder / "masks/2.png", png_of(test::photo(46, 46, 3)));
  expect_named({"png", "3", "8"});
  write_file(folder / "masks/2.png", test::jpeg_file(test::photo(46, 46, 3), {}));
  expect_named({"jpeg", "PNG"});
  write_file(folder / "masks/2.png", "rubbish");
  expect_named({});
}

TEST(DecodedFields, NeedNoLabel) {
  const test::TempDir folder;
  for (const char* name : {"a", "b"}) {
    const Pixels photo = test::photo(30, 40, 3);
    write_file(folder / fmt::format("set/images/{}.png", name), png_of(photo));
    write_file(folder / fmt::format("set/masks/{}.png", name), png_of(mask_of(1, 30, 40)));
  }
  const DecodedDataset data(open_samples(folder / "set"), {.height = 30, .width = 40});
  Loader loader(data, {.batch_size = 2, .workers = 0});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_FALSE(batch.labels.defined());
  const std::vector<std::uint8_t> mask = mask_of(1, 30, 40).bytes;
  EXPECT_TRUE(std::equal(mask.begin(), mask.end(), batch["mask"].data<std::uint8_t>()));
}

void expect_same_rows(const Dataset& a, const Dataset& b) {
  ASSERT_EQ(a.fields(), b.fields());
  Loader of_a(a, {.batch_size = a.size(), .training = true, .workers = 0}),
      of_b(b, {.batch_size = b.size(), .training = true, .workers = 0});
  for (const std::int64_t epoch : {0, 3}) {
    of_a.start_epoch(epoch);
    of_b.start_epoch(epoch);
    Batch x, y;
    ASSERT_TRUE(of_a.next(x) && of_b.next(y));
    for (const FieldSpec& field : a.fields())
      EXPECT_EQ(x[field.name].to_vector(), y[field.name].to_vector()) << field.name << ", epoch " << epoch;
  }
}

TEST(DecodedFields, OfASubsetAreThoseOfTraining) {
  const test::TempDir folder;
  const auto data = std::make_shared<DecodedDataset>(
      open_samples(write_table(folder)),
      ImageTransform{.height = 16, .width = 24, .random_crop = RandomResizedCrop{}},
      ImageTransform{.height = 16, .width = 24}, 5);
  expect_same_rows(*data, Subset(data, {0, 1, 2, 3, 4, 5, 6}));
}

// Each of them reads through memory of its own.
TEST(DecodedFields, OfDecodedSamplesAreTheirs) {
  const test::TempDir folder;
  const std::shared_ptr<const Dataset> table = open_samples(write_table(folder));
  const ImageTransform as_is{.height = 16, .width = 24};
  const auto once = std::make_shared<DecodedDataset>(table, as_is);
  expect_same_rows(*once, DecodedDataset(once, as_is));
  const auto packed = create_samples(folder / "a.athp", {.fields = once->fields()});
  EXPECT_TRUE(convert(*once, *packed, {.threads = 1}));
  packed->finish();
  expect_same_rows(*once, PackedStore(folder / "a.athp", {.access = PackedAccess::read}));
}

}  // namespace athanor::field_files_test
