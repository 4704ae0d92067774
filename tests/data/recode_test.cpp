#include "data/recode.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <gtest/gtest.h>

#include "data/convert.h"
#include "data/formats/image_folder.h"
#include "data/formats/open.h"
#include "data/formats/packed.h"
#include "data/image/decoder.h"
#include "data/image/jpeg.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/image_files.h"
#include "tests/support/samples.h"
#include "tests/support/temp_dir.h"

namespace athanor::recode_test {

using test::jpeg_file, test::JpegKind, test::photo, test::Pixels, test::read_file, test::TempDir,
    test::write_file;

StoredSample jpeg_sample(const std::string& file, std::int64_t label = 0) {
  return {std::as_bytes(std::span(file)), Codec::jpeg, 0, 0, 0, label};
}

StoredSample raw_sample(const Pixels& image) {
  return {std::as_bytes(std::span(image.bytes)), Codec::raw, image.height, image.width, image.channels, 3};
}

Pixels decoded(std::span<const std::byte> bytes) {
  ImageDecoder decoder;
  const ImageSize size = decoder.open(bytes);
  const ImageView view = decoder.decode({0, 0, size.height, size.width});
  Pixels image{size.height, size.width, 3, {}};
  for (std::int64_t y = 0; y < size.height; ++y) {
    image.bytes.insert(image.bytes.end(), view.row(y), view.row(y) + size.width * 3);
  }
  return image;
}

/// Root of the mean squared difference.
double difference(const Pixels& a, const Pixels& b) {
  EXPECT_EQ(a.bytes.size(), b.bytes.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.bytes.size(); ++i)
    sum += std::pow(double(a.bytes[i]) - double(b.bytes[i]), 2);
  return std::sqrt(sum / static_cast<double>(a.bytes.size()));
}

/// Without noise, so that JPEG keeps what there is.
Pixels smooth(std::int64_t height, std::int64_t width, std::int64_t channels) {
  Pixels image{height, width, channels, {}};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (std::int64_t c = 0; c < channels; ++c) {
        image.bytes.push_back(static_cast<std::uint8_t>(150 * y / height + 50 * x / width + 20 * c));
      }
    }
  }
  return image;
}

TEST(EncodeJpeg, ADecoderGivesTheImageBack) {
  std::vector<std::byte> bytes;
  for (const auto& [height, width] :
       std::vector<std::pair<int, int>>{{1, 1}, {16, 16}, {33, 57}, {200, 301}}) {
    const Pixels image = smooth(height, width, 3);
    encode_jpeg({image.bytes.data(), height, width, 3, width * 3}, 95, bytes);
    EXPECT_LT(difference(decoded(bytes), image), 3) << height << "x" << width;
    const Pixels grey = smooth(height, width, 1);
    encode_jpeg({grey.bytes.data(), height, width, 1, width}, 95, bytes);
    Pixels three{height, width, 3, {}};
    for (const std::uint8_t value : grey.bytes) three.bytes.insert(three.bytes.end(), 3, value);
    EXPECT_LT(difference(decoded(bytes), three), 3);
  }
  const Pixels image = smooth(40, 40, 3);
  std::size_t before = 0;
  for (const int quality : {5, 50, 90, 100}) {
    encode_jpeg({image.bytes.data(), 40, 40, 3, 120}, quality, bytes);
    EXPECT_GT(bytes.size(), before);
    before = bytes.size();
  }
  EXPECT_THROW(encode_jpeg({image.bytes.data(), 40, 40, 3, 120}, 0, bytes), ArgumentError);
  EXPECT_THROW(encode_jpeg({image.bytes.data(), 40, 30, 4, 120}, 90, bytes), ArgumentError);
  EXPECT_THROW(encode_jpeg({image.bytes.data(), 1, 70'000, 1, 70'000}, 90, bytes), ArgumentError);
}

TEST(Recode, TheShorterSideIsTheRequestedOne) {
  const SampleChange shrink = make_recoder({.shorter_side = 50, .quality = 95});
  std::vector<std::byte> bytes;
  for (const auto& [height, width, to_height, to_width] : std::vector<std::array<int, 4>>{
           {100, 160, 50, 80}, {161, 100, 81, 50}, {51, 51, 50, 50}, {64, 1000, 50, 781}}) {
    const Pixels image = smooth(height, width, 3);
    const StoredSample small = shrink(jpeg_sample(jpeg_file(image, {.quality = 98}), 7), bytes);
    EXPECT_EQ(small.codec, Codec::jpeg);
    EXPECT_EQ(small.label, 7);
    const Pixels got = decoded(small.bytes);
    EXPECT_EQ(got.height, to_height);
    EXPECT_EQ(got.width, to_width);
    EXPECT_LT(difference(got, smooth(to_height, to_width, 3)), 4) << "the whole image must still be there";
    const StoredSample from_raw = shrink(raw_sample(image), bytes);
    EXPECT_EQ(from_raw.codec, Codec::jpeg);
    EXPECT_LT(difference(decoded(from_raw.bytes), smooth(to_height, to_width, 3)), 4);
  }
}

TEST(Recode, AnImageThatNoJpegCanHoldIsASampleError) {
  std::vector<std::byte> bytes;
  const Pixels strip = smooth(2, 140'000, 1), many = photo(8, 8, 5);
  const SampleChange shrink = make_recoder({.shorter_side = 1}), flatten = make_recoder({.raw = {4, 4}});
  EXPECT_THROW(shrink(raw_sample(strip), bytes), IoError);
  EXPECT_THROW(flatten(raw_sample(many), bytes), IoError) << "five channels";
}

TEST(Recode, SmallImagesAreUnchanged) {
  const SampleChange shrink = make_recoder({.shorter_side = 50});
  std::vector<std::byte> bytes;
  const std::string file = jpeg_file(photo(50, 90, 3), {});
  const StoredSample same = shrink(jpeg_sample(file), bytes);
  EXPECT_EQ(static_cast<const void*>(same.bytes.data()), file.data());
  EXPECT_EQ(same.bytes.size(), file.size());
  const Pixels grey = photo(30, 200, 1);
  EXPECT_EQ(shrink(raw_sample(grey), bytes).codec, Codec::raw);
  EXPECT_EQ(make_recoder({})(jpeg_sample(file), bytes).bytes.data(), same.bytes.data());
}

TEST(Recode, RawImagesHaveOneSize) {
  const SampleChange flatten = make_recoder({.raw = {20, 30}});
  std::vector<std::byte> bytes;
  const StoredSample from_jpeg =
      flatten(jpeg_sample(jpeg_file(smooth(40, 60, 3), {.quality = 98}), 5), bytes);
  EXPECT_EQ(from_jpeg.codec, Codec::raw);
  EXPECT_EQ(from_jpeg.label, 5);
  EXPECT_EQ(std::vector({from_jpeg.height, from_jpeg.width, from_jpeg.channels}),
            (std::vector<std::int64_t>{20, 30, 3}));
  Pixels got{20, 30, 3, {}};
  for (const std::byte byte : from_jpeg.bytes) got.bytes.push_back(std::to_integer<std::uint8_t>(byte));
  EXPECT_LT(difference(got, smooth(20, 30, 3)), 4);
  EXPECT_EQ(flatten(raw_sample(photo(100, 50, 1)), bytes).channels, 1);
  EXPECT_EQ(flatten(raw_sample(photo(10, 10, 3)), bytes).bytes.size(), 1800u);
}

TEST(Recode, RejectsInvalidOptions) {
  EXPECT_THROW(make_recoder({.shorter_side = -1}), ArgumentError);
  EXPECT_THROW(make_recoder({.shorter_side = 8, .quality = 101}), ArgumentError);
  EXPECT_THROW(make_recoder({.raw = {20, 0}}), ArgumentError);
  EXPECT_THROW(make_recoder({.raw = {20, 1 << 20}}), ArgumentError);
  EXPECT_THROW(make_recoder({.shorter_side = 8, .raw = {20, 20}}), ArgumentError);
}

/// A folder of photos packed with the bytes of any number of threads, and back.
TEST(Recode, FoldersPackToTheSameBytesForAnyThreadCount) {
  const TempDir dir;
  for (int i = 0; i < 24; ++i) {
    write_file(dir / "photos" / ("class" + std::to_string(i % 3)) / (std::to_string(100 + i) + ".jpg"),
               jpeg_file(photo(60 + i, 90 - i, 3, static_cast<std::uint64_t>(i)), {}));
  }
  const auto photos = open_samples(dir / "photos");
  EXPECT_EQ(format_of(dir / "photos"), "image folder");
  std::string expected;
  for (const int threads : {1, 2, 7}) {
    const auto writer =
        create_samples(dir / "a.athp", {.threads = threads - 1, .class_names = photos->class_names()});
    EXPECT_TRUE(convert(*photos, *writer, {.threads = threads, .make_change = [] {
                                             return make_recoder({.shorter_side = 40});
                                           }}));
    writer->finish();
    if (threads == 1) expected = read_file(dir / "a.athp");
    EXPECT_EQ(read_file(dir / "a.athp"), expected) << threads << " threads";
  }
  const PackedStore small(dir / "a.athp");
  EXPECT_EQ(small.class_names(), (std::vector<std::string>{"class0", "class1", "class2"}));
  std::vector<std::byte> scratch, other;
  const Pixels first = decoded(small.fetch(0, scratch).bytes);
  EXPECT_EQ(std::min(first.height, first.width), 40);

  const auto writer = create_samples(dir / "unpacked", {.class_names = small.class_names()});
  EXPECT_TRUE(convert(small, *writer, {}));
  writer->finish();
  const auto back = open_samples(dir / "unpacked");
  ASSERT_EQ(back->size(), small.size());
  for (std::int64_t i = 0; i < small.size(); ++i) {
    const StoredSample a = small.fetch(i, scratch), b = back->fetch(i, other);
    EXPECT_TRUE(std::ranges::equal(a.bytes, b.bytes)) << i;
    EXPECT_EQ(a.label, b.label);
  }
}

TEST(Recode, ADamagedPhotoIsNamed) {
  const TempDir dir;
  const std::string good = jpeg_file(photo(60, 60, 3), {});
  write_file(dir / "photos" / "a" / "1.jpg", good);
  write_file(dir / "photos" / "a" / "2.jpg", good.substr(0, good.size() / 2));
  const auto photos = open_samples(dir / "photos");
  const auto writer = create_samples(dir / "a.athp");
  EXPECT_ERROR(IoError,
               convert(*photos, *writer, {.make_change = [] { return make_recoder({.shorter_side = 40}); }}),
               "2.jpg");
}

}  // namespace athanor::recode_test
