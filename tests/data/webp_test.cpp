#include "data/image/webp.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/convert.h"
#include "data/formats/open.h"
#include "data/image/decoder.h"
#include "data/image/reader.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/image_files.h"
#include "tests/support/temp_dir.h"

#ifdef ATHANOR_TEST_WEBP
#include <webp/encode.h>
#endif

namespace athanor::webp_test {

using test::bytes_of;
using test::Pixels;

std::string error_of(WebpDecoder& decoder, const std::string& file) {
  return test::message_of<IoError>([&] {
    const ImageSize size = decoder.open(bytes_of(file));
    decoder.decode({0, 0, size.height, size.width});
  });
}

/// The header of a lossless image, and nothing behind it.
std::string header_of(std::uint32_t height, std::uint32_t width) {
  const std::uint32_t sides = (width - 1) | (height - 1) << 14;
  std::string file = "RIFF";
  const auto number = [&](std::uint32_t value) {
    for (int i = 0; i < 4; ++i) file += static_cast<char>(value >> 8 * i & 255);
  };
  number(4 + 8 + 6);
  file += "WEBPVP8L";
  number(5);
  file += '\x2f';
  number(sides);
  return file + '\0';
}

#ifndef ATHANOR_TEST_WEBP

TEST(Webp, WithoutLibwebpTheErrorSaysWhatToInstall) {
  WebpDecoder decoder;
  EXPECT_TRUE(test::names(error_of(decoder, header_of(3, 5)), {"webp", "libwebp-dev"}));
}

#else

std::string webp_file(const Pixels& image, bool lossless = true) {
  std::uint8_t* out = nullptr;
  const int height = static_cast<int>(image.height), width = static_cast<int>(image.width);
  const int stride = width * static_cast<int>(image.channels);
  const std::uint8_t* const in = image.bytes.data();
  const std::size_t size = image.channels == 4 ? WebPEncodeLosslessRGBA(in, width, height, stride, &out)
                           : lossless          ? WebPEncodeLosslessRGB(in, width, height, stride, &out)
                                               : WebPEncodeRGB(in, width, height, stride, 90, &out);
  std::string file(reinterpret_cast<const char*>(out), size);
  WebPFree(out);
  return file;
}

TEST(Webp, AnyPartIsThatPartOfTheImage) {
  ImageDecoder decoder;
  for (const auto& [height, width] : {std::pair(1, 1), {7, 5}, {61, 130}}) {
    const Pixels image = test::photo(height, width, 3);
    const std::string file = webp_file(image);
    for (const Box& box : {Box{0, 0, height, width}, Box{height - 1, 0, 1, width},
                           Box{height / 3, width / 2, height / 2 + 1, width / 3 + 1}}) {
      ASSERT_EQ(decoder.open(bytes_of(file)), (ImageSize{height, width}));
      EXPECT_FALSE(decoder.reduces());
      const ImageView part = decoder.decode(box);
      for (std::int64_t y = 0; y < box.height; ++y) {
        EXPECT_TRUE(std::equal(part.row(y), part.row(y) + box.width * 3, image.at(box.top + y, box.left)))
            << height << "x" << width << " row " << y;
      }
    }
  }
}

TEST(Webp, LossyImagesAreNearWhatWasEncoded) {
  const Pixels image = test::photo(48, 40, 3);
  const std::string file = webp_file(image, false);
  WebpDecoder decoder;
  decoder.open(bytes_of(file));
  const ImageView all = decoder.decode({0, 0, 48, 40});
  double off = 0;
  for (std::size_t i = 0; i < image.bytes.size(); ++i) off += std::abs(all.pixels[i] - image.bytes[i]);
  EXPECT_LT(off / static_cast<double>(image.bytes.size()), 16);  // the photo's own noise is 10
}

TEST(Webp, TransparencyIsBlendedOverWhite) {
  const Pixels image{1, 3, 4, {10, 20, 30, 255, 10, 20, 30, 0, 100, 0, 200, 51}};
  const std::string file = webp_file(image);
  WebpDecoder decoder;
  decoder.open(bytes_of(file));
  const ImageView all = decoder.decode({0, 0, 1, 3});
  const std::vector<std::uint8_t> want{10, 20, 30, 255, 255, 255, 224, 204, 244};  // 0.2 c + 0.8 255
  EXPECT_EQ(std::vector<std::uint8_t>(all.pixels, all.pixels + 9), want);
}

TEST(Webp, DamagedFilesAreAnErrorOrAnImage) {
  WebpDecoder decoder;
  for (const bool lossless : {true, false}) {
    const std::string file = webp_file(test::photo(61, 83, 3), lossless);
    for (std::size_t size = 0; size < file.size(); size += 97)
      EXPECT_TRUE(test::names(error_of(decoder, file.substr(0, size)), {"webp", "WebP"}))
          << size << " of " << file.size();
    for (std::size_t at = 0; at < file.size(); at += 3) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      const std::string error = error_of(decoder, damaged);
      EXPECT_TRUE(error.empty() || test::names(error, {"webp"})) << error;
    }
    EXPECT_EQ(error_of(decoder, file), "");
  }
}

TEST(Webp, IsTurnedByItsExifDataAndXmp) {
  const Pixels image = test::photo(5, 8, 3);
  const std::string pixels = webp_file(image).substr(12);
  const auto number = [](std::size_t n, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(n >> 8 * i);
    return text;
  };
  const auto chunk = [&](const std::string& name, const std::string& data) {
    return name + number(data.size(), 4) + data + std::string(data.size() % 2, '\0');
  };
  const auto file_with = [&](char flags, const std::string& chunks) {
    const std::string body =
        "WEBP" + chunk("VP8X", flags + number(0, 3) + number(7, 3) + number(4, 3)) + pixels + chunks;
    return "RIFF" + number(body.size(), 4) + body;
  };
  const auto size_of = [](const std::string& file) {
    return ImageReader().open({bytes_of(file), Codec::webp});
  };
  const std::string tiff = test::with_orientation("\xff\xd8", 6).substr(12), exif = chunk("EXIF", tiff);
  const std::string xmp = chunk("XMP ", "<a tiff:Orientation=\"8\"/>");
  constexpr char kExif = 8, kXmp = 4;
  const ImageSize stored{5, 8}, turned{8, 5};
  EXPECT_EQ(size_of(file_with(kExif, exif)), turned);
  EXPECT_EQ(size_of(file_with(kExif, chunk("EXIF", std::string("Exif\0\0", 6) + tiff))), turned);
  EXPECT_EQ(size_of(file_with(kXmp, xmp)), turned);
  EXPECT_EQ(size_of(file_with(0, exif + xmp)), stored) << "not announced, as for libwebp";
  ImageReader reader;
  std::vector<std::uint8_t> out(image.bytes.size()), want(image.bytes.size());
  const std::string file = file_with(kExif, exif);
  reader.read({bytes_of(file), Codec::webp}, {.height = 8, .width = 5}, {}, 3, out);
  turn({image.bytes.data(), 5, 8, 3, 24}, {true, true, false}, want.data());
  EXPECT_EQ(out, want);
  for (std::size_t at = 4; at < file.size(); ++at) {  // no byte does any harm
    std::string damaged = file;
    damaged[at] ^= 0x55;
    WebpDecoder decoder;
    error_of(decoder, damaged);
  }
}

TEST(Webp, HugeImagesAndAnimationsAreRefused) {
  WebpDecoder decoder;
  EXPECT_TRUE(
      test::names(error_of(decoder, header_of(16'000, 16'000)), {"webp", "100000000", "16000x16000"}));
  std::string animation = "RIFF";
  animation += std::string("\x16\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x07\0\0\x07\0\0", 26);
  EXPECT_TRUE(test::names(error_of(decoder, animation), {"webp", "animation"}));
}

TEST(Webp, DecodeMustFollowOpenAndStayInside) {
  const std::string file = webp_file(test::photo(4, 6, 3));
  WebpDecoder decoder;
  EXPECT_THROW(decoder.decode({0, 0, 1, 1}), ArgumentError);
  for (const Box& box : {Box{0, 0, 0, 6}, Box{-1, 0, 4, 6}, Box{1, 0, 4, 6}, Box{0, 1, 4, 6}}) {
    decoder.open(bytes_of(file));
    EXPECT_THROW(decoder.decode(box), ArgumentError);
  }
  ImageDecoder any;
  any.open(bytes_of(file));
  EXPECT_THROW(any.decode_classes({0, 0, 4, 6}), IoError) << "a mask";
}

// Through each of them, a folder's files come back byte for byte.
TEST(Webp, EveryFormatOfEncodedImagesHoldsThem) {
  const test::TempDir dir;
  const Pixels image = test::photo(9, 8, 3);
  const std::string file = webp_file(image);
  test::write_file(dir / "photos/cat/1.WebP", file);
  test::write_file(dir / "photos/dog/1.webp", webp_file(test::photo(5, 4, 3)));
  const auto photos = open_samples(dir / "photos", {});
  for (const char* name : {"all.athp", "all.tar", "all.tfrecord", "folder"}) {
    SCOPED_TRACE(name);
    const auto writer = create_samples(dir / name, {.classes = 2});
    convert(*photos, *writer);
    writer->finish();
    const auto read = open_samples(dir / name, {});
    ASSERT_EQ(read->size(), 2);
    std::vector<std::byte> scratch;
    const StoredSample sample = read->fetch(0, scratch);
    EXPECT_EQ(sample.codec, Codec::webp);
    EXPECT_TRUE(std::ranges::equal(sample.bytes, bytes_of(file)));
    ImageReader reader;
    std::vector<std::uint8_t> pixels(9 * 8 * 3);
    reader.read(sample, {.height = 9, .width = 8}, {}, 3, pixels);
    EXPECT_EQ(pixels, image.bytes);
  }
}

#endif

}  // namespace athanor::webp_test
