#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/image/decoder.h"
#include "data/image/jpeg.h"
#include "data/image/reader.h"
#include "data/image/resize.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/image_files.h"
#include "tests/support/temp_dir.h"

namespace athanor::image_test {

using test::bytes_of;
using test::JpegKind;
using test::Pixels;

const std::vector<JpegKind> kKinds{
    {"4:4:4", JCS_RGB, JCS_YCbCr, 1, 1},
    {"4:2:2", JCS_RGB, JCS_YCbCr, 2, 1},
    {"4:2:0", JCS_RGB, JCS_YCbCr, 2, 2},
    {"4:4:0", JCS_RGB, JCS_YCbCr, 1, 2},
    {"4:1:1", JCS_RGB, JCS_YCbCr, 4, 1},
    {"4:1:0", JCS_RGB, JCS_YCbCr, 4, 2},
    {"rgb", JCS_RGB, JCS_RGB, 1, 1},
    {"grey", JCS_GRAYSCALE, JCS_GRAYSCALE, 1, 1},
    {"progressive 4:2:0", JCS_RGB, JCS_YCbCr, 2, 2, true},
    {"progressive 4:4:4", JCS_RGB, JCS_YCbCr, 1, 1, true},
    {"progressive grey", JCS_GRAYSCALE, JCS_GRAYSCALE, 1, 1, true},
    {"restarts 4:2:0", JCS_RGB, JCS_YCbCr, 2, 2, false, 1},
};

/// A part of an image, drawn.
Box draw_box(std::int64_t height, std::int64_t width, std::uint64_t seed, std::uint64_t i) {
  const PhiloxBlock random = philox({seed, 1}, i);
  const auto below = [](std::uint32_t word, std::int64_t range) { return word % range; };
  Box box;
  box.height = 1 + below(random.word[0], height);
  box.width = 1 + below(random.word[1], width);
  box.top = below(random.word[2], height - box.height + 1);
  box.left = below(random.word[3], width - box.width + 1);
  return box;
}

testing::AssertionResult equals_part(const ImageView& part, const Pixels& whole, const Box& box) {
  if (part.height != box.height || part.width != box.width || part.channels != 3) {
    return testing::AssertionFailure() << "wrong size";
  }
  for (std::int64_t y = 0; y < box.height; ++y) {
    const std::uint8_t *got = part.row(y), *want = whole.at(box.top + y, box.left);
    const auto at = std::mismatch(got, got + box.width * 3, want);
    if (at.first == got + box.width * 3) continue;
    return testing::AssertionFailure() << fmt::format(
               "{}x{} of {}x{} at ({}, {}): row {}, value {} is {}, not {}", box.height, box.width,
               whole.height, whole.width, box.top, box.left, y, at.first - got, *at.first, *at.second);
  }
  return testing::AssertionSuccess();
}

TEST(Jpeg, AnyPartEqualsThatPartOfTheWhole) {
  JpegDecoder decoder;
  for (const JpegKind& kind : kKinds) {
    for (const auto& [height, width] : {std::pair(1, 1), {7, 5}, {16, 33}, {100, 75}, {61, 130}}) {
      const Pixels image = test::photo(height, width, kind.in == JCS_RGB ? 3 : 1);
      const std::string file = test::jpeg_file(image, kind);
      for (const int reduce : {1, 2, 4, 8}) {
        SCOPED_TRACE(fmt::format("{} {}x{} / {}", kind.name, height, width, reduce));
        const Pixels whole = test::decode_whole(bytes_of(file), reduce);
        for (std::uint64_t i = 0; i < 25; ++i) {
          const Box box =
              i == 0 ? Box{0, 0, whole.height, whole.width}
                     : draw_box(whole.height, whole.width, 5, i + 100 * static_cast<std::uint64_t>(reduce));
          ASSERT_EQ(decoder.open(bytes_of(file)), (ImageSize{height, width}));
          ASSERT_TRUE(equals_part(decoder.decode(box, reduce), whole, box));
        }
      }
    }
  }
}

TEST(Jpeg, AnyPartOfRealPhotosEqualsThatPartOfTheWhole) {
  ATHANOR_NEEDS_DATA(photos, "imagenet-sample");
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(photos)) {
    if (entry.path().extension() == ".JPEG") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  JpegDecoder decoder;
  for (std::size_t i = 0; i < files.size(); i += 4) {
    SCOPED_TRACE(files[i].filename().string());
    const std::string file = test::read_file(files[i]);
    const int reduce = i % 16 == 0 ? 2 : 1;
    const Pixels whole = test::decode_whole(bytes_of(file), reduce);
    for (std::uint64_t k = 0; k < 6; ++k) {
      const Box box = draw_box(whole.height, whole.width, 6, i * 10 + k);
      decoder.open(bytes_of(file));
      ASSERT_TRUE(equals_part(decoder.decode(box, reduce), whole, box));
    }
  }
}

TEST(Jpeg, ConvertsCmykToRgb) {
  JpegDecoder decoder;
  // Photoshop's files hold 255 - ink, and a marker that says so; others hold ink.
  JpegKind inverted{"inks", JCS_CMYK, JCS_CMYK, 1, 1}, ycck{"ycck", JCS_CMYK, JCS_YCCK, 1, 1},
      inks = inverted;
  inks.no_marker = true;
  for (JpegKind kind : {inverted, ycck, inks}) {
    SCOPED_TRACE(kind.name);
    kind.quality = 100;
    const int stored[] = {200, 100, 50, 180};
    Pixels image{16, 16, 4, {}};
    for (int i = 0; i < 16 * 16 * 4; ++i) image.bytes.push_back(static_cast<std::uint8_t>(stored[i % 4]));
    const std::string file = test::jpeg_file(image, kind);
    const auto light = [&](int c) { return kind.no_marker ? 255.0 - stored[c] : double(stored[c]); };
    decoder.open(bytes_of(file));
    const ImageView whole = decoder.decode({0, 0, 16, 16});
    ASSERT_EQ(whole.channels, 3);
    for (int c = 0; c < 3; ++c) EXPECT_NEAR(whole.row(7)[7 * 3 + c], light(c) * light(3) / 255, 2.5) << c;
    decoder.open(bytes_of(file));
    const ImageView part = decoder.decode({3, 5, 4, 2});
    for (int c = 0; c < 3; ++c) EXPECT_NEAR(part.row(3)[3 + c], light(c) * light(3) / 255, 2.5) << c;
  }
}

/// What opening and decoding all of it throws; empty where nothing.
template <class Decoder> std::string error_of(Decoder& decoder, const std::string& file) {
  return test::message_of<IoError>([&] {
    const ImageSize size = decoder.open(bytes_of(file));
    const ImageView view = decoder.decode({0, 0, size.height, size.width});
    unsigned sum = 0;  // every byte is there to read
    for (std::int64_t y = 0; y < view.height; ++y) {
      for (std::int64_t i = 0; i < view.width * 3; ++i) sum += view.row(y)[i];
    }
    EXPECT_LE(sum, 255u * 3 * static_cast<unsigned>(size.height * size.width));
  });
}

/// One line that names the format and a number: an offset.
bool names_place(const std::string& error, const char* format) {
  return test::names(error, {format}) && error.find_first_of("0123456789") != std::string::npos;
}

TEST(Jpeg, DamagedFilesAreAnErrorOrAnImage) {
  JpegDecoder decoder;
  for (const JpegKind& kind : {kKinds[2], kKinds[7], kKinds[8], kKinds[11]}) {
    SCOPED_TRACE(kind.name);
    const Pixels image = test::photo(61, 83, kind.in == JCS_RGB ? 3 : 1);
    const std::string file = test::jpeg_file(image, kind);
    for (std::size_t size = 0; size < file.size() - 2; size += 97) {
      const std::string error = error_of(decoder, file.substr(0, size));
      // Progressive: what comes last is only the finest detail, but it is missing.
      EXPECT_TRUE(names_place(error, "jpeg")) << size << " of " << file.size() << error;
    }
    int errors = 0;
    for (std::size_t at = 0; at < file.size(); at += 3) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      errors += !error_of(decoder, damaged).empty();
    }
    EXPECT_GT(errors, 10);
    EXPECT_EQ(error_of(decoder, file), "");  // none of it stays behind
  }
  EXPECT_TRUE(test::names(error_of(decoder, ""), {"jpeg", "0"}));
  EXPECT_TRUE(names_place(error_of(decoder, "hello, I am no image"), "jpeg"));
}

/// The offsets of the segments before a JPEG's pixels: the last one is that of the first pass.
std::vector<std::size_t> segments_of(const std::string& file) {
  std::vector<std::size_t> all;
  for (std::size_t at = 2; all.empty() || file[all.back() + 1] != '\xda';) {
    all.push_back(at);
    at += 2 + static_cast<unsigned char>(file[at + 2]) * 256u + static_cast<unsigned char>(file[at + 3]);
  }
  return all;
}

/// Decodes the whole of a file that has a warning and the pixels of `clean`.
testing::AssertionResult warns_of_what_changes_nothing(const std::string& file, const std::string& clean) {
  JpegDecoder decoder;
  const ImageSize size = decoder.open(bytes_of(file));
  const Box all{0, 0, size.height, size.width};
  const auto equal = equals_part(decoder.decode(all), test::decode_whole(bytes_of(clean)), all);
  if (!equal) return equal;
  if (decoder.warning().empty()) return testing::AssertionFailure() << "no warning";
  decoder.open(bytes_of(clean));
  decoder.decode(all);
  if (decoder.warning().empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the warning stays: " << decoder.warning();
}

TEST(Jpeg, DefectsThatChangeNoPixelAreWarnings) {
  const Pixels image = test::photo(61, 83, 3);
  for (const JpegKind& kind : {kKinds[2], kKinds[6], kKinds[8], kKinds[11]}) {
    SCOPED_TRACE(kind.name);
    const std::string clean = test::jpeg_file(image, kind);
    for (const std::size_t at : segments_of(clean)) {
      for (const std::string& junk :
           {std::string(1, '\0'), std::string("junk"), std::string("\xff\x00\x07", 3)})
        EXPECT_TRUE(warns_of_what_changes_nothing(std::string(clean).insert(at, junk), clean)) << at;
    }
  }
  const std::string clean = test::jpeg_file(image, kKinds[2]);
  std::string no_end = clean;  // of the pass: the coefficients 0 to 0 of a sequential image
  no_end[segments_of(clean).back() + 4 + 7 + 1] = 0;
  EXPECT_TRUE(warns_of_what_changes_nothing(no_end, clean));
  std::string version = clean;
  ASSERT_EQ(version.substr(6, 4), "JFIF");
  version[11] = 9;
  EXPECT_TRUE(warns_of_what_changes_nothing(version, clean));
  // Metadata that are no metadata, and what follows a segment that says to be shorter than it is.
  const std::string bad_exif(
      "\xff\xe1\x00\x0c"
      "Exif\0\0II*\0",
      14),
      rest("\x08\0\0\0", 4);
  EXPECT_TRUE(warns_of_what_changes_nothing(std::string(clean).insert(2, bad_exif + rest), clean));
}

// Within a scan, and behind it, bytes are left over if a code was damaged: other decoders say no more of it.
TEST(Jpeg, NoDamagedCodeIsOnlyAWarning) {
  const Pixels image = test::photo(61, 83, 3);
  JpegDecoder decoder;
  for (const JpegKind& kind : {kKinds[2], kKinds[8], kKinds[11]}) {
    SCOPED_TRACE(kind.name);
    const std::string clean = test::jpeg_file(image, kind);
    int errors = 0;
    for (std::size_t at = segments_of(clean).back() + 20; at < clean.size() - 2; at += 3) {
      std::string damaged = clean;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      errors += !error_of(decoder, damaged).empty();
      EXPECT_EQ(decoder.warning(), "") << at;
    }
    EXPECT_GT(errors, 0);
  }
}

TEST(Jpeg, RefusesHugeImagesAndUnknownColours) {
  JpegDecoder decoder;
  std::string file = test::jpeg_file(test::photo(16, 16, 3), kKinds[2]);
  const std::size_t frame = file.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (std::size_t i = 5; i < 9; ++i) file[frame + i] = '\xf0';
  EXPECT_TRUE(test::names(error_of(decoder, file), {"jpeg", "100000000", "61680x61680"}));
  const std::string two = test::jpeg_file(test::photo(16, 16, 2), {"two", JCS_UNKNOWN, JCS_UNKNOWN, 1, 1});
  EXPECT_TRUE(test::names(error_of(decoder, two), {"jpeg", "RGB", "CMYK", "2"}));
}

TEST(Jpeg, RefusesThousandsOfPasses) {
  JpegDecoder decoder;
  JpegKind kind;
  kind.exact_passes = true;
  const std::string file = test::jpeg_file(test::photo(16, 16, 3), kind);
  ASSERT_EQ(error_of(decoder, file), "");
  const std::size_t last = file.rfind("\xff\xda");
  for (const int more : {400, 600}) {  // the last pass again and again
    std::string bomb = file.substr(0, file.size() - 2);
    for (int i = 0; i < more; ++i) bomb += file.substr(last, file.size() - 2 - last);
    const std::string error = error_of(decoder, bomb + "\xff\xd9");
    EXPECT_EQ(test::holds(error, "500"), more == 600) << error;
  }
}

TEST(Jpeg, DecodeMustFollowOpenAndStayInside) {
  JpegDecoder decoder;
  EXPECT_THROW(decoder.decode({0, 0, 1, 1}), ArgumentError);
  const std::string file = test::jpeg_file(test::photo(16, 16, 3), kKinds[2]);
  decoder.open(bytes_of(file));
  EXPECT_THROW(decoder.decode({0, 0, 17, 1}), ArgumentError);
  EXPECT_THROW(decoder.decode({0, 9, 8, 8}), ArgumentError);
  EXPECT_THROW(decoder.decode({-1, 0, 8, 8}), ArgumentError);
  EXPECT_THROW(decoder.decode({0, 0, 0, 8}), ArgumentError);
  EXPECT_THROW(decoder.decode({0, 0, 9, 8}, 2), ArgumentError);
  EXPECT_THROW(decoder.decode({0, 0, 8, 8}, 3), ArgumentError);
  decoder.decode({0, 0, 8, 8}, 2);
  EXPECT_THROW(decoder.decode({0, 0, 8, 8}), ArgumentError);  // once
}

// PNG
// --------------------------------------------------------------------------------------------------------

struct PngKind {
  const char* name;
  int type, bits, samples;
};
const PngKind kPngKinds[] = {
    {"grey 1", PNG_COLOR_TYPE_GRAY, 1, 1},         {"grey 2", PNG_COLOR_TYPE_GRAY, 2, 1},
    {"grey 4", PNG_COLOR_TYPE_GRAY, 4, 1},         {"grey 8", PNG_COLOR_TYPE_GRAY, 8, 1},
    {"grey 16", PNG_COLOR_TYPE_GRAY, 16, 1},       {"palette 1", PNG_COLOR_TYPE_PALETTE, 1, 1},
    {"palette 4", PNG_COLOR_TYPE_PALETTE, 4, 1},   {"palette 8", PNG_COLOR_TYPE_PALETTE, 8, 1},
    {"rgb 8", PNG_COLOR_TYPE_RGB, 8, 3},           {"rgb 16", PNG_COLOR_TYPE_RGB, 16, 3},
    {"rgba 8", PNG_COLOR_TYPE_RGB_ALPHA, 8, 4},    {"rgba 16", PNG_COLOR_TYPE_RGB_ALPHA, 16, 4},
    {"grey+a 8", PNG_COLOR_TYPE_GRAY_ALPHA, 8, 2}, {"grey+a 16", PNG_COLOR_TYPE_GRAY_ALPHA, 16, 2},
};

TEST(Png, EveryKindIsRgbOverWhite) {
  constexpr std::int64_t kHeight = 21, kWidth = 19;
  PngDecoder decoder;
  std::vector<png_color> palette;
  palette.reserve(256);
  for (int i = 0; i < 256; ++i) {
    palette.push_back(
        {static_cast<png_byte>(i), static_cast<png_byte>(3 * i), static_cast<png_byte>(255 - i)});
  }
  for (const PngKind& kind : kPngKinds) {
    for (const bool interlaced : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", kind.name, interlaced ? " interlaced" : ""));
      const bool indexed = kind.type == PNG_COLOR_TYPE_PALETTE;
      std::vector<std::vector<std::uint8_t>> rows;
      Pixels want{kHeight, kWidth, 3, {}};
      std::uint64_t n = 0;
      for (std::int64_t y = 0; y < kHeight; ++y) {
        std::vector<std::uint8_t> row(static_cast<std::size_t>((kWidth * kind.samples * kind.bits + 7) / 8));
        for (std::int64_t x = 0; x < kWidth; ++x) {
          int eight[4] = {0, 0, 0, 255};
          for (int c = 0; c < kind.samples; ++c) {
            const auto most = (1u << kind.bits) - 1;
            const std::uint32_t value = philox_word({8, 1}, n++) & most;
            const auto bit = static_cast<std::size_t>((x * kind.samples + c) * kind.bits);
            if (kind.bits == 16) {
              row[bit / 8] = static_cast<std::uint8_t>(value >> 8);
              row[bit / 8 + 1] = static_cast<std::uint8_t>(value);
            } else {
              row[bit / 8] =
                  static_cast<std::uint8_t>(row[bit / 8] | value << (8 - kind.bits - int(bit % 8)));
            }
            eight[c] = indexed ? int(value) : int(std::lround(value * 255.0 / most));
          }
          const bool alpha = kind.samples % 2 == 0;
          const int a = alpha ? eight[kind.samples - 1] : 255;
          for (int c = 0; c < 3; ++c) {
            const int value = indexed            ? (c == 0   ? palette[std::size_t(eight[0])].red
                                                    : c == 1 ? palette[std::size_t(eight[0])].green
                                                             : palette[std::size_t(eight[0])].blue)
                              : kind.samples < 3 ? eight[0]
                                                 : eight[c];
            want.bytes.push_back(
                static_cast<std::uint8_t>(std::lround((value * a + 255.0 * (255 - a)) / 255)));
          }
        }
        rows.push_back(std::move(row));
      }
      if (indexed) palette.resize(std::size_t{1} << kind.bits);
      const std::string file = test::png_file(kHeight, kWidth, kind.type, kind.bits, interlaced, rows,
                                              indexed ? palette : std::vector<png_color>());
      if (indexed) {
        for (auto i = palette.size(); i < 256; ++i) {
          const auto b = static_cast<png_byte>(i);
          palette.push_back({b, static_cast<png_byte>(3 * b), static_cast<png_byte>(255 - b)});
        }
      }
      for (std::uint64_t i = 0; i < 10; ++i) {
        const Box box = i == 0 ? Box{0, 0, kHeight, kWidth} : draw_box(kHeight, kWidth, 7, i);
        ASSERT_EQ(decoder.open(bytes_of(file)), (ImageSize{kHeight, kWidth}));
        ASSERT_TRUE(equals_part(decoder.decode(box), want, box));
      }
    }
  }
}

TEST(Png, ReadsWhatItWrote) {
  PngDecoder decoder;
  for (const std::int64_t channels : {1, 3}) {
    const Pixels image = test::photo(13, 40, channels);
    std::vector<std::byte> file;
    encode_png({image.bytes.data(), 13, 40, channels, 40 * channels}, file);
    decoder.open(file);
    const ImageView view = decoder.decode({0, 0, 13, 40});
    for (std::int64_t y = 0; y < 13; ++y) {
      for (std::int64_t x = 0; x < 40; ++x) {
        for (std::int64_t c = 0; c < 3; ++c) {
          ASSERT_EQ(view.row(y)[x * 3 + c], image.at(y, x)[channels == 3 ? c : 0]);
        }
      }
    }
  }
  std::vector<std::byte> file;
  const Pixels image = test::photo(4, 4, 4);
  EXPECT_THROW(encode_png({image.bytes.data(), 4, 4, 4, 16}, file), ArgumentError);
  EXPECT_THROW(encode_png({image.bytes.data(), 4, 4, 2, 8}, file), ArgumentError);
}

TEST(Decoders, RefuseBoxesThatAreEmptyOrOutside) {
  const Pixels image = test::photo(4, 6, 3);
  std::vector<std::byte> png, jpeg;
  encode_png({image.bytes.data(), 4, 6, 3, 18}, png);
  encode_jpeg({image.bytes.data(), 4, 6, 3, 18}, 90, jpeg);
  PngDecoder of_png;
  JpegDecoder of_jpeg;
  for (const Box& box : {Box{0, 0, 0, 6}, Box{0, 0, 4, 0}, Box{-1, 0, 4, 6}, Box{0, -1, 4, 6},
                         Box{1, 0, 4, 6}, Box{0, 1, 4, 6}}) {
    of_png.open(png);
    EXPECT_THROW(of_png.decode(box), ArgumentError) << box.height << "x" << box.width;
    of_jpeg.open(jpeg);
    EXPECT_THROW(of_jpeg.decode(box), ArgumentError) << box.height << "x" << box.width;
  }
  EXPECT_THROW(PngDecoder().decode({0, 0, 1, 1}), ArgumentError) << "nothing was opened";
}

TEST(Png, DamagedFilesAreAnErrorOrAnImage) {
  PngDecoder decoder;
  const Pixels image = test::photo(61, 83, 3);
  std::vector<std::vector<std::uint8_t>> rows;
  for (std::int64_t y = 0; y < 61; ++y) rows.emplace_back(image.at(y, 0), image.at(y, 82) + 3);
  for (const bool interlaced : {false, true}) {
    const std::string file = test::png_file(61, 83, PNG_COLOR_TYPE_RGB, 8, interlaced, rows);
    for (std::size_t size = 0; size < file.size() - 20; size += 97) {
      const std::string error = error_of(decoder, file.substr(0, size));
      EXPECT_TRUE(names_place(error, "png")) << size << " of " << file.size() << error;
    }
    int errors = 0;
    for (std::size_t at = 0; at < file.size(); at += 3) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      errors += !error_of(decoder, damaged).empty();
    }
    EXPECT_GT(errors, 100);
    EXPECT_EQ(error_of(decoder, file), "");
  }
  std::string huge = test::png_file(61, 83, PNG_COLOR_TYPE_RGB, 8, false, rows);
  huge[18] = '\x40';  // the width, whose checksum is then wrong, too
  EXPECT_NE(error_of(decoder, huge), "");
}

TEST(ImageDecoder, DetectsTheFormatFromTheContent) {
  ImageDecoder decoder;
  const Pixels image = test::photo(8, 8, 3);
  std::vector<std::byte> png;
  encode_png({image.bytes.data(), 8, 8, 3, 24}, png);
  EXPECT_EQ(decoder.open(png), (ImageSize{8, 8}));
  EXPECT_FALSE(decoder.reduces());
  EXPECT_TRUE(equals_part(decoder.decode({2, 1, 4, 5}), image, {2, 1, 4, 5}));
  const std::string jpeg = test::jpeg_file(image, kKinds[0]);
  decoder.open(bytes_of(jpeg));
  EXPECT_TRUE(decoder.reduces());
  EXPECT_TRUE(equals_part(decoder.decode({2, 1, 4, 5}), test::decode_whole(bytes_of(jpeg)), {2, 1, 4, 5}));
}

TEST(ImageDecoder, NamesWhatElseAFileIs) {
  ImageDecoder decoder;
  const std::pair<std::string, const char*> kinds[] = {
      {"GIF89a\x01", "GIF"},
      {"BM\x46\x01", "BMP"},
      {{"II*\0\x08", 5}, "TIFF"},
      {{"MM\0*\0", 5}, "TIFF"},
      {{"\0\0\0\x18"
        "ftypheic\0\0",
        14},
       "HEIC"},
      {{"\0\0\0\x18"
        "ftypmif1\0\0",
        14},
       "HEIC"},
      {{"\0\0\0\x18"
        "ftypavif\0\0",
        14},
       "AVIF"},
      {{"\0\0\0\x18"
        "ftypisom\0\0",
        14},
       "video"},
      {"%PDF-1.4", "PDF"},
      {"PK\x03\x04", "ZIP"},
      {"\n <!DOCTYPE html><title>404</title>", "web page"},
      {"<svg xmlns=''/>", "SVG"},
      {"version https://git-lfs.github.com/spec/v1\n", "LFS"},
      {"no picture", "text"},
      {"", "empty"},
      {std::string(600, '\0'), "600"},
      {"\x89PNG\n\x1a\n", "PNG"},
      {"\x01\x02\x03", "01 02 03"},
  };
  for (const auto& kind : kinds)
    EXPECT_ERROR(IoError, decoder.open(bytes_of(kind.first)), "JPEG", "WebP", kind.second);
}

// What is said to be whole has been decoded to its last row.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve address space
/// 0 if decoding the file with another MiB of memory throws OutOfMemoryError that names the size. Run it in a
/// process of its own.
int code_without_memory(const std::string& file, const char* size) {
  ImageDecoder decoder;
  const ImageSize all = decoder.open(bytes_of(file));
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (1 << 20));
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 3;
  try {
    decoder.decode({0, 0, all.height, all.width});
  } catch (const OutOfMemoryError& error) {
    return test::holds(error.what(), size) ? 0 : 2;
  } catch (...) {
  }
  return 1;
}

// libjpeg has no memory for the coefficients, libpng none for a row.
TEST(ImageDecoder, WithoutMemoryTheFileIsNotToBlame) {
  const std::string jpeg = test::jpeg_file({2000, 2000, 1, std::vector<std::uint8_t>(4'000'000)},
                                           {"", JCS_GRAYSCALE, JCS_GRAYSCALE, 1, 1, true});
  const std::vector<std::vector<std::uint8_t>> rows(64, std::vector<std::uint8_t>(125'000));
  const std::string png = test::png_file(64, 1'000'000, PNG_COLOR_TYPE_GRAY, 1, false, rows);
  for (const auto& [file, size] : {std::pair{&jpeg, "2000x2000"}, std::pair{&png, "1000000x64"}}) {
    const pid_t child = fork();
    if (child == 0) _exit(code_without_memory(*file, size));
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << size;
  }
}
#endif

TEST(ImageReader, ChecksEveryRow) {
  std::vector<std::vector<std::uint8_t>> rows;
  for (std::uint64_t y = 0; y < 64; ++y) {
    rows.emplace_back();
    for (std::uint64_t x = 0; x < 64; ++x)
      rows.back().push_back(static_cast<std::uint8_t>(philox_word({3, 1}, 64 * y + x)));
  }
  const std::string png = test::png_file(64, 64, PNG_COLOR_TYPE_GRAY, 8, false, rows);
  const std::string jpeg = test::jpeg_file(test::photo(64, 64, 3), {});
  ImageReader reader;
  for (const auto& [file, codec] : {std::pair{png, Codec::png}, {jpeg, Codec::jpeg}}) {
    EXPECT_NO_THROW(reader.check({test::bytes_of(file), codec}));
    const std::string cut = file.substr(0, file.size() * 4 / 5);
    EXPECT_THROW(reader.check({test::bytes_of(cut), codec}), IoError) << name_of(codec);
  }
  std::string damaged = png;
  damaged[png.size() * 4 / 5] = static_cast<char>(damaged[png.size() * 4 / 5] ^ 16);
  EXPECT_THROW(reader.check({test::bytes_of(damaged), Codec::png}), IoError);
}

}  // namespace athanor::image_test
