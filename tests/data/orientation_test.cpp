#include "data/image/orientation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include <gtest/gtest.h>

#include "data/convert.h"
#include "data/decoded_dataset.h"
#include "data/formats/image_folder.h"
#include "data/formats/open.h"
#include "data/image/png.h"
#include "data/image/reader.h"
#include "data/recode.h"
#include "tensor/base/error.h"
#include "tests/support/image_files.h"
#include "tests/support/temp_dir.h"

namespace athanor::orientation_test {

using test::bytes_of, test::Pixels, test::TempDir;

constexpr std::int64_t kHeight = 203, kWidth = 331;  // no multiple of a block

/// Waves that look like themselves from no other side; smooth, so that JPEG keeps them.
Pixels waves() {
  Pixels image{kHeight, kWidth, 3, {}};
  for (std::int64_t y = 0; y < kHeight; ++y) {
    for (std::int64_t x = 0; x < kWidth; ++x) {
      const double across = std::sin(double(x) / 11), down = std::sin(double(y) / 17 + 1);
      for (const double light : {0.5 * across + 0.4 * double(x) / kWidth,
                                 0.5 * down + 0.4 * double(y) / kHeight, 0.4 * across * down}) {
        image.bytes.push_back(static_cast<std::uint8_t>(128 + 120 * light));
      }
    }
  }
  return image;
}

StoredSample jpeg_sample(const std::string& file) {
  return {std::as_bytes(std::span(file)), Codec::jpeg, 0, 0, 0, 0};
}

std::vector<std::uint8_t> read(const StoredSample& sample, const ImageTransform& transform,
                               const DrawKey& key = {}) {
  std::vector<std::uint8_t> out(static_cast<std::size_t>(transform.height * transform.width * 3));
  ImageReader().read(sample, transform, key, 3, out);
  return out;
}

/// Where row 0 and column 0 of the stored pixels are in the image a person sees: the standard's own table.
enum Side { top, bottom, left, right };
struct Meaning {
  int value;
  Side row, column;
};
constexpr std::array<Meaning, 8> kMeanings{{{1, top, left},
                                            {2, top, right},
                                            {3, bottom, right},
                                            {4, bottom, left},
                                            {5, left, top},
                                            {6, right, top},
                                            {7, right, bottom},
                                            {8, left, bottom}}};

/// The pixel `along` from one end and `in` pixels from that side.
const std::uint8_t* at_side(const std::vector<std::uint8_t>& image, std::int64_t height, std::int64_t width,
                            Side side, std::int64_t in, std::int64_t along) {
  const std::int64_t y = side == top ? in : side == bottom ? height - 1 - in : along;
  const std::int64_t x = side == left ? in : side == right ? width - 1 - in : along;
  return image.data() + (y * width + x) * 3;
}

TEST(Orientation, RowsAndColumnsGoToTheSidesTheStandardNames) {
  // Row 0 and those beside it red, column 0 blue, the rest dark.
  Pixels image{48, 80, 3, std::vector<std::uint8_t>(48 * 80 * 3, 20)};
  for (std::int64_t y = 0; y < 48; ++y) {
    for (std::int64_t x = 0; x < 80; ++x) {
      auto* pixel = image.bytes.data() + (y * 80 + x) * 3;
      if (y < 8) pixel[0] = 250;
      if (x < 8) pixel[2] = 250;
    }
  }
  const std::string plain = test::jpeg_file(image, {"4:4:4", JCS_RGB, JCS_YCbCr, 1, 1});
  for (const bool big_endian : {false, true}) {
    for (const auto& [value, row, column] : kMeanings) {
      SCOPED_TRACE(value);
      const bool turned = value > 4;
      const std::int64_t height = turned ? 80 : 48, width = turned ? 48 : 80;
      const std::string file = test::with_orientation(plain, value, big_endian);
      ImageReader reader;
      EXPECT_EQ(reader.open(jpeg_sample(file)), (ImageSize{height, width}));
      const auto out = read(jpeg_sample(file), {.height = height, .width = width});
      EXPECT_GT(at_side(out, height, width, row, 3, 24)[0], 200);
      EXPECT_LT(at_side(out, height, width, row, 24, 24)[0], 60);
      EXPECT_GT(at_side(out, height, width, column, 3, 24)[2], 200);
      EXPECT_LT(at_side(out, height, width, column, 24, 24)[2], 60);
    }
  }
}

/// What a JPEG file of that orientation holds, upright and as a PNG, made by the rule "row 0 is at that
/// side".
std::string upright_png(const std::string& jpeg, const Meaning& meaning) {
  const Pixels stored = test::decode_whole(bytes_of(jpeg));
  const bool turned = meaning.value > 4;
  const std::int64_t height = turned ? stored.width : stored.height,
                     width = turned ? stored.height : stored.width;
  std::vector<std::uint8_t> out(stored.bytes.size());
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const auto from = [&](Side side) {
        return side == top ? y : side == bottom ? height - 1 - y : side == left ? x : width - 1 - x;
      };
      std::copy_n(stored.at(from(meaning.row), from(meaning.column)), 3, out.data() + (y * width + x) * 3);
    }
  }
  std::vector<std::byte> png;
  encode_png({out.data(), height, width, 3, width * 3}, png);
  return {reinterpret_cast<const char*>(png.data()), png.size()};
}

int largest_difference(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  int largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(Orientation, EveryPartEqualsThatOfTheUprightImage) {
  const std::string plain = test::jpeg_file(waves(), {"4:4:4", JCS_RGB, JCS_YCbCr, 1, 1, false, 0, 98});
  for (const Meaning& meaning : kMeanings) {
    const std::string file = test::with_orientation(plain, meaning.value), png = upright_png(plain, meaning);
    const StoredSample jpeg = jpeg_sample(file);
    const StoredSample upright{std::as_bytes(std::span(png)), Codec::png, 0, 0, 0, 0};
    for (const ImageTransform& transform :
         {ImageTransform{.height = 96, .width = 128, .shorter_side = 140},
          ImageTransform{.height = 64, .width = 40},
          ImageTransform{.height = kHeight, .width = kWidth, .random_crop = RandomResizedCrop{}}}) {
      for (std::int64_t sample = 0; sample < 6; ++sample) {
        const DrawKey key{3, 1, sample};
        EXPECT_LE(largest_difference(read(jpeg, transform, key), read(upright, transform, key)), 1)
            << "orientation " << meaning.value << ", " << describe(transform) << ", sample " << sample;
      }
    }
  }
}

// Decoded at a half, a quarter or an eighth: pixels in the middle of where they belong.
TEST(Orientation, ReducedPartsLieWhereTheWholeImagesDo) {
  const std::string plain = test::jpeg_file(waves(), {"4:4:4", JCS_RGB, JCS_YCbCr, 1, 1, false, 0, 98});
  for (const Meaning& meaning : kMeanings) {
    const std::string file = test::with_orientation(plain, meaning.value), png = upright_png(plain, meaning);
    const StoredSample upright{std::as_bytes(std::span(png)), Codec::png, 0, 0, 0, 0};
    for (const std::int64_t side : {17, 35, 70}) {
      const ImageTransform transform{
          .height = side,
          .width = side,
          .random_crop = RandomResizedCrop{.min_area = 0.9, .min_ratio = 0.9, .max_ratio = 1.1}};
      for (std::int64_t sample = 0; sample < 6; ++sample) {
        const DrawKey key{3, 1, sample};
        const auto got = read(jpeg_sample(file), transform, key), want = read(upright, transform, key);
        double sum = 0;
        for (std::size_t i = 0; i < got.size(); ++i) sum += std::abs(double(got[i]) - double(want[i]));
        EXPECT_LT(sum / double(got.size()), side < 30 ? 4 : 2)
            << "orientation " << meaning.value << ", side " << side << ", sample " << sample;
      }
    }
  }
}

TEST(Orientation, StaysWithTheImageThroughEveryFormat) {
  const TempDir dir;
  const std::string plain = test::jpeg_file(waves(), {});
  test::write_file(dir / "photos/a/1.jpg", test::with_orientation(plain, 6));
  test::write_file(dir / "photos/a/2.jpg", test::with_orientation(plain, 3));
  const ImageTransform transform{.height = 50, .width = 30};
  const auto images = [&](const std::filesystem::path& path) {
    const DecodedDataset data(open_samples(path), transform);
    std::vector<std::vector<std::uint8_t>> all;
    for (std::int64_t i = 0; i < data.size(); ++i) {
      all.emplace_back(static_cast<std::size_t>(data.spec().bytes()));
      data.read(i, all.back());
    }
    return all;
  };
  const auto wanted = images(dir / "photos");
  EXPECT_EQ(wanted[0], read(jpeg_sample(test::with_orientation(plain, 6)), transform));
  EXPECT_NE(wanted[0], read(jpeg_sample(plain), transform));
  const auto packed_as = [&](const char* name, const RecodeOptions& options) {
    const auto writer = create_samples(dir / name);
    convert(*open_samples(dir / "photos"), *writer, {.make_change = [&] { return make_recoder(options); }});
    writer->finish();
    return images(dir / name);
  };
  for (const char* name : {"a.athp", "a.tar", "a.tfrecord", "folder"}) {
    EXPECT_EQ(packed_as(name, {}), wanted) << name;
  }
  // Pixels that are stored anew are stored upright: their file says nothing any more.
  EXPECT_EQ(packed_as("raw.athp", {.raw = {50, 30}}), wanted);
  const auto smaller = packed_as("small.athp", {.shorter_side = 150});
  for (std::size_t i = 0; i < 2; ++i) EXPECT_LE(largest_difference(smaller[i], wanted[i]), 40) << i;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// EXIF data without their mark.
std::string tiff_of(int value, bool big_endian = false) {
  return test::with_orientation("\xff\xd8", value, big_endian).substr(2 + 4 + 6);
}

std::string png_of(const Pixels& image) {
  std::vector<std::byte> png;
  encode_png({image.bytes.data(), image.height, image.width, image.channels, image.width * image.channels},
             png);
  return text_of(png);
}

ImageSize size_of_png(const std::string& file) {
  return ImageReader().open({bytes_of(file), Codec::png});
}

TEST(Orientation, OfAPngEqualsThatOfAJpeg) {
  const std::string plain = test::jpeg_file(waves(), {});
  const std::string png = png_of(test::decode_whole(bytes_of(plain)));
  for (const Meaning& meaning : kMeanings) {
    const bool turned = meaning.value > 4, after = meaning.value % 2 == 0;
    const ImageTransform whole{.height = turned ? kWidth : kHeight, .width = turned ? kHeight : kWidth};
    const std::string file = test::with_chunk(png, "eXIf", tiff_of(meaning.value, after), after);
    const std::string upright = upright_png(plain, meaning);
    EXPECT_EQ(read({bytes_of(file), Codec::png}, whole), read({bytes_of(upright), Codec::png}, whole))
        << meaning.value;
  }
}

TEST(Orientation, OfAMaskTurnsItsClasses) {
  const Pixels stored = test::photo(20, 33, 1);
  const std::string turned = test::with_chunk(png_of(stored), "eXIf", tiff_of(6));
  std::vector<std::uint8_t> upright(stored.bytes.size());
  turn({stored.bytes.data(), 20, 33, 1, 33}, {true, true, false}, upright.data());
  const std::string plain = png_of({33, 20, 1, upright});
  const auto classes = [](const std::string& file) {
    ImageReader reader;
    const ImageSize size = reader.open({bytes_of(file), Codec::png});
    std::vector<std::uint8_t> out(15 * 11);
    reader.read_nearest(place({.height = 15, .width = 11}, size, {}), {15, 11}, out);
    return out;
  };
  EXPECT_EQ(classes(turned), classes(plain));
}

// Where Pillow's exif_transpose finds it.
TEST(Orientation, OfAPngMayBeInItsTexts) {
  const std::string png = png_of(test::photo(4, 7, 3));
  const ImageSize stored{4, 7}, turned{7, 4};
  const auto compressed = [](const std::string& text) {
    std::string out(text.size() + 100, '\0');
    uLongf size = out.size();
    compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
             text.size());
    return out.substr(0, size);
  };
  const std::string xmp = "<x><tiff:Orientation>6</tiff:Orientation></x>", key("XML:com.adobe.xmp\0", 18);
  const std::string plain(4, '\0'), deflated("\1\0\0\0", 4);
  EXPECT_EQ(size_of_png(png), stored);
  EXPECT_EQ(size_of_png(test::with_chunk(png, "iTXt", key + plain + xmp)), turned);
  EXPECT_EQ(size_of_png(test::with_chunk(png, "iTXt", key + deflated + compressed(xmp), true)), turned);
  EXPECT_EQ(size_of_png(test::with_chunk(png, "tEXt", std::string("Comment\0", 8) + xmp)), stored);
  std::string digits;
  for (const unsigned char c : tiff_of(5))
    digits += fmt::format("{:02x}", c) + (digits.size() % 9 ? "" : "\n");
  const std::string raw = "\nexif\n      38\n" + digits, name("Raw profile type exif\0", 22);
  EXPECT_EQ(size_of_png(test::with_chunk(png, "tEXt", name + raw)), turned);
  EXPECT_EQ(size_of_png(test::with_chunk(png, "zTXt", name + '\0' + compressed(raw))), turned);
  // EXIF data come before XMP, and a chunk before a text.
  const std::string with_xmp = test::with_chunk(png, "iTXt", key + plain + xmp);
  EXPECT_EQ(size_of_png(test::with_chunk(with_xmp, "eXIf", tiff_of(1))), stored);
  EXPECT_EQ(size_of_png(test::with_chunk(test::with_chunk(png, "tEXt", name + raw), "eXIf", tiff_of(3))),
            stored);
  // A chunk with a wrong checksum, or one that ends beyond the file, says nothing.
  std::string damaged = test::with_chunk(png, "eXIf", tiff_of(6));
  damaged[8 + 25 + 8 + 15] ^= 1;
  EXPECT_EQ(size_of_png(damaged), stored);
  for (std::size_t at = 33; at < damaged.size(); ++at) {
    std::string other = test::with_chunk(with_xmp, "eXIf", tiff_of(6));
    other[at] ^= 0x55;
    try {
      size_of_png(other);
    } catch (const IoError&) {
    }
  }
}

/// EXIF data of entries of 12 bytes, little-endian.
std::string tiff_with(const std::vector<std::string>& entries, const std::string& behind = {}) {
  std::string tiff("II*\0\x08\0\0\0", 8);
  tiff += static_cast<char>(entries.size()) + std::string(1, '\0');
  for (const std::string& entry : entries) tiff += entry;
  return tiff + std::string(4, '\0') + behind;
}

TEST(Orientation, IsReadAsPillowReadsIt) {
  const auto value_of = [](const std::string& tiff, const std::string& xmp = {}) {
    const Orientation found = exif_orientation(bytes_of(tiff), bytes_of(xmp));
    for (int value = 1; value <= 8; ++value)
      if (found == exif_orientation(bytes_of(tiff_of(value)))) return value;
    return 0;
  };
  const auto entry = [](char type, char count, const std::string& value) {
    return std::string("\x12\x01", 2) + type + '\0' + count + std::string(3, '\0') + value;
  };
  const std::string six("\6\0\0\0", 4), eight("\x08\0\0\0", 4),
      make_beyond("\x0f\1\2\0\x40\0\0\0\x00\x70\0\0", 12);
  for (const char type : {3, 4, 6, 8, 9, 13})
    EXPECT_EQ(value_of(tiff_with({entry(type, 1, six)})), 6) << int{type};
  for (const char type : {1, 2, 7, 11}) EXPECT_EQ(value_of(tiff_with({entry(type, 1, six)})), 1) << int{type};
  EXPECT_EQ(value_of(tiff_with({entry(3, 2, std::string("\6\0\3\0", 4))})), 6) << "the first of two";
  EXPECT_EQ(value_of(tiff_with({entry(3, 3, std::string("\x1a\0\0\0", 4))}, std::string("\5\0\3\0\3\0", 6))),
            5)
      << "elsewhere";
  EXPECT_EQ(value_of(tiff_with({entry(3, 1, six), entry(3, 1, eight)})), 8) << "the last of two tags";
  EXPECT_EQ(value_of(tiff_with({entry(3, 1, six), make_beyond})), 6);
  EXPECT_EQ(value_of(tiff_with({make_beyond, entry(3, 1, six)})), 1) << "beyond the end, reading stops";
  EXPECT_EQ(value_of(tiff_with({entry(3, 0, six)})), 1);
  std::string swapped = tiff_of(7);
  std::swap(swapped[2], swapped[3]);
  EXPECT_EQ(value_of(swapped), 7);
  EXPECT_EQ(value_of("Exif" + std::string(2, '\0') + "Exif" + std::string(2, '\0') + tiff_of(4)), 4);
  EXPECT_EQ(value_of("", "tiff:Orientation=\"3\""), 3);
  EXPECT_EQ(value_of("", "tiff:Orientation tiff:Orientation>8<"), 8);
  EXPECT_EQ(value_of(tiff_with({}), "tiff:Orientation='3' tiff:Orientation=\"9\""), 1);
  EXPECT_EQ(value_of(tiff_of(2), "tiff:Orientation=\"3\""), 2) << "EXIF data come first";
}

TEST(Orientation, OfAJpegMayBeInXmpAndFurtherSegments) {
  const std::string plain = test::jpeg_file(test::photo(16, 24, 3), {});
  const auto with_app1 = [](const std::string& file, const std::string& data) {
    const std::size_t length = data.size() + 2;
    return std::string(file).insert(
        2, std::string{'\xff', '\xe1', static_cast<char>(length >> 8), static_cast<char>(length)} + data);
  };
  const auto size_of_jpeg = [](const std::string& file) { return ImageReader().open(jpeg_sample(file)); };
  const ImageSize stored{16, 24}, turned{24, 16};
  const std::string xmp = std::string("http://ns.adobe.com/xap/1.0/\0", 29) + "<a tiff:Orientation=\"6\"/>",
                    mark("Exif\0\0", 6);
  EXPECT_EQ(size_of_jpeg(with_app1(plain, xmp)), turned);
  EXPECT_EQ(size_of_jpeg(with_app1(test::with_orientation(plain, 3), xmp)), stored);
  EXPECT_EQ(size_of_jpeg(
                with_app1(with_app1(plain, mark + tiff_of(6).substr(20)), mark + tiff_of(6).substr(0, 20))),
            turned);
  EXPECT_EQ(size_of_jpeg(with_app1(test::with_orientation(plain, 6), mark + tiff_of(1))), stored)
      << "the first says all";
}

std::span<const std::byte> exif_of(const std::string& file) {
  return bytes_of(file).subspan(6);
}

TEST(Orientation, NoBytesDoAnyHarm) {
  const std::string file = test::with_orientation("\xff\xd8", 6);
  const Orientation turned{true, true, false};
  EXPECT_EQ(exif_orientation(exif_of(file)), turned);
  for (std::size_t length = 0; length < exif_of(file).size(); ++length) {
    const Orientation cut = exif_orientation(exif_of(file).first(length));
    EXPECT_TRUE(cut.upright() || cut == turned);
  }
  for (std::size_t at = 6; at < file.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(value);
      exif_orientation(exif_of(damaged));
    }
  }
  for (const int value : {0, 1, 9, 255, 65535}) {
    EXPECT_TRUE(exif_orientation(exif_of(test::with_orientation("\xff\xd8", value))).upright()) << value;
  }
  std::string far = file;
  far.replace(6 + 6 + 4, 4, "\xff\xff\xff\xff");  // the directory lies behind the end
  EXPECT_TRUE(exif_orientation(exif_of(far)).upright());
  std::string many = file;
  many.replace(6 + 6 + 8, 2, "\xff\xff");  // as many entries as can be
  EXPECT_EQ(exif_orientation(exif_of(many)), turned);
}

}  // namespace athanor::orientation_test
