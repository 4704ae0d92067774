#include "data/decoded_dataset.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "data/image/png.h"
#include "data/image/reader.h"
#include "data/pixel_stage.h"
#include "data/sample_row.h"
#include "kernels/cpu/context.h"
#include "kernels/resize.h"
#include "tensor/base/error.h"
#include "tests/support/count_new.h"
#include "tests/support/errors.h"
#include "tests/support/image_files.h"

namespace athanor::decoded_dataset_test {

using test::bytes_of;
using test::Pixels;

/// Files that lie in memory.
class Files final : public Dataset {
 public:
  struct File {
    std::string bytes;
    Codec codec = Codec::jpeg;
    ImageSize size = {};
    std::int64_t channels = 0;
  };
  explicit Files(std::vector<File> files, std::int64_t channels = 0)
      : files_(std::move(files)), spec_{channels > 0 ? 8 : 0, channels > 0 ? 8 : 0, channels, 10} {}
  std::int64_t size() const override { return std::ssize(files_); }
  const ImageSpec& spec() const override { return spec_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>&) const override {
    const File& file = files_[static_cast<std::size_t>(index)];
    return {bytes_of(file.bytes), file.codec, file.size.height, file.size.width, file.channels, index % 10};
  }
  std::string where(std::int64_t index) const override { return fmt::format("file {}", index); }

 private:
  std::vector<File> files_;
  ImageSpec spec_;
};

std::string text_of(const Pixels& image) {
  return {reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size()};
}
std::string png_of(const Pixels& image) {
  std::vector<std::byte> file;
  encode_png({image.bytes.data(), image.height, image.width, image.channels, image.width * image.channels},
             file);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

std::shared_ptr<Files> photos() {
  std::vector<Files::File> files;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const Pixels image = test::photo(60 + 7 * std::int64_t(i % 5), 50 + 11 * std::int64_t(i % 4), 3, i);
    test::JpegKind kind;
    kind.progressive = i % 5 == 4;
    files.push_back(i % 3 == 2 ? Files::File{png_of(image), Codec::png}
                               : Files::File{test::jpeg_file(image, kind), Codec::jpeg});
  }
  return std::make_shared<Files>(std::move(files));
}

constexpr ImageTransform kTraining{.height = 32, .width = 24, .random_crop = RandomResizedCrop{}};
constexpr ImageTransform kEvaluation{.height = 32, .width = 24, .shorter_side = 36};

std::vector<std::uint8_t> read(const Dataset& data, std::int64_t index, std::int64_t epoch = -1) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(data.spec().bytes()));
  const std::int64_t label = epoch < 0 ? data.read(index, pixels) : data.read_in_epoch(index, epoch, pixels);
  EXPECT_EQ(label, index % 10);
  return pixels;
}

/// The mean of a pixel's sources, in double, from the whole image.
double exact(const Pixels& whole, const Placement& at, std::int64_t y, std::int64_t x, std::int64_t c) {
  const auto weight = [](const Window& window, std::int64_t i, std::int64_t source) {
    const double centre = (double(i) + 0.5) * window.scale + window.offset;
    return std::max(0.0, 1 - std::abs(double(source) + 0.5 - centre) / std::max(window.scale, 1.0));
  };
  const auto near = [](const Window& window, std::int64_t i) {  // all others weigh nothing
    const auto centre = static_cast<std::int64_t>((double(i) + 0.5) * window.scale + window.offset);
    const auto radius = static_cast<std::int64_t>(window.scale) + 2;
    return std::pair(std::max(window.low, centre - radius), std::min(window.high, centre + radius));
  };
  double sum = 0, total = 0;
  const auto rows = near(at.rows, y), columns = near(at.columns, x);
  for (std::int64_t v = rows.first; v < rows.second; ++v) {
    for (std::int64_t u = columns.first; u < columns.second; ++u) {
      const double w = weight(at.rows, y, v) * weight(at.columns, x, u);
      total += w;
      sum += w * whole.at(v, u)[c];
    }
  }
  return sum / total;
}

// As a loader leaves images to a GPU, with the CPU in its place.
TEST(DecodedDataset, StagedImagesAreScaledToTheSameBits) {
  const DecodedDataset data(photos(), kTraining, kEvaluation, 3);
  ASSERT_TRUE(data.stages());
  const std::int64_t n = data.size(), bytes = data.spec().bytes();
  const RowLayout layout(data.fields(), n);
  PixelStage stage(n, bytes, false);
  std::vector<std::int64_t> left_to_kernels;
  for (const std::int64_t epoch : {std::int64_t{-1}, std::int64_t{-1}, std::int64_t{0}, std::int64_t{7}}) {
    stage.clear(stage.wanted());
    EXPECT_LE(stage.memory().numel() - stage.pixels_at(), PixelStage::kMost * n * (bytes + 64));
    std::vector<std::byte> memory(static_cast<std::size_t>(layout.bytes));
    std::int64_t staged = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      SampleRow row(layout, memory.data(), i, &stage);
      data.read_fields(i, epoch, row);
      row.check_written();
      EXPECT_EQ(row.label(), i % 10);
      staged += stage.image(i).at == kernels::StagedImage::kComplete ? 0 : 1;
    }
    const auto part = [&](std::int64_t begin, std::int64_t count) {
      return stage.memory().view_as_strided({count}, {1}, begin);
    };
    const auto* rows = reinterpret_cast<const std::uint8_t*>(memory.data()) + layout.places[layout.image].at;
    const Tensor y = Tensor::from(std::vector(rows, rows + n * bytes), {n, 32, 24, 3});
    kernels::resize_images(cpu_context(), part(0, n * std::int64_t{sizeof(kernels::StagedImage)}),
                           part(stage.pixels_at(), stage.used() - stage.pixels_at()), y);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint8_t* at = y.data<std::uint8_t>() + i * bytes;
      EXPECT_EQ(std::vector(at, at + bytes), read(data, i, epoch)) << i << " of epoch " << epoch;
    }
    left_to_kernels.push_back(staged);
  }
  EXPECT_LT(left_to_kernels[0], n) << "the first batch finds little room";
  EXPECT_GT(left_to_kernels[0], 0);
  EXPECT_EQ(left_to_kernels[1], n) << "then there is more";
}

// Whatever the fit: padding, and turned images, are the kernel's, too. Bicubic is left to the threads.
TEST(DecodedDataset, StagedImagesArePaddedAndSquashedToTheSameBits) {
  for (const ResizeMode mode : {ResizeMode::crop, ResizeMode::pad, ResizeMode::squash}) {
    for (const auto interpolation : {Resampling::bilinear, Resampling::nearest}) {
      const ImageTransform transform{
          .height = 32, .width = 24, .mode = mode, .interpolation = interpolation, .padding = 200};
      const DecodedDataset data(photos(), transform);
      const std::int64_t n = data.size(), bytes = data.spec().bytes();
      const RowLayout layout(data.fields(), n);
      PixelStage stage(n, 8 * bytes, false);
      std::vector<std::byte> memory(static_cast<std::size_t>(layout.bytes));
      for (std::int64_t i = 0; i < n; ++i) {
        SampleRow row(layout, memory.data(), i, &stage);
        data.read_fields(i, -1, row);
        ASSERT_NE(stage.image(i).at, kernels::StagedImage::kComplete);
      }
      const auto part = [&](std::int64_t begin, std::int64_t count) {
        return stage.memory().view_as_strided({count}, {1}, begin);
      };
      const Tensor y = Tensor::zeros({n, 32, 24, 3}, {DType::u8});
      kernels::resize_images(cpu_context(), part(0, n * std::int64_t{sizeof(kernels::StagedImage)}),
                             part(stage.pixels_at(), stage.used() - stage.pixels_at()), y);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::uint8_t* at = y.data<std::uint8_t>() + i * bytes;
        EXPECT_EQ(std::vector(at, at + bytes), read(data, i)) << i << ", " << describe(transform);
      }
      const auto first = read(data, 0);  // 60 x 50, of which 24 x 29 are seen in the middle of 32 rows
      EXPECT_EQ(std::all_of(first.begin(), first.begin() + 24 * 3, [](std::uint8_t v) { return v == 200; }),
                mode == ResizeMode::pad);
    }
  }
  const ImageTransform smooth{.height = 8, .width = 8, .interpolation = Resampling::bicubic};
  EXPECT_FALSE(DecodedDataset(photos(), smooth).stages());
}

TEST(DecodedDataset, AnotherSizeNeedNotBeSquare) {
  const DecodedDataset square(photos(), central_crop({32, 32}, 0.875));
  EXPECT_EQ(square.with_size(16, 16)->resizing(),
            (ImageTransform{.height = 16, .width = 16, .shorter_side = 19}));
  const auto wide = square.with_size(16, 28);
  EXPECT_EQ(wide->spec(), (ImageSpec{16, 28, 3, 10}));
  EXPECT_EQ(wide->resizing().shorter_side, 0);
  EXPECT_NEAR(wide->resizing().crop_share, 0.875, 0.02);  // 32 of 37
  EXPECT_EQ(read(*wide, 3).size(), 16u * 28 * 3);
}

// A row whose image is replaced after it was staged has the new one alone.
TEST(DecodedDataset, AStagedRowMayBeWrittenAfterAll) {
  const DecodedDataset data(photos(), kTraining, kEvaluation, 3);
  const RowLayout layout(data.fields(), 2);
  PixelStage stage(2, data.spec().bytes() * 10, false);
  std::vector<std::byte> memory(static_cast<std::size_t>(layout.bytes));
  SampleRow row(layout, memory.data(), 1, &stage);
  data.read_fields(2, -1, row);
  EXPECT_NE(stage.image(1).at, kernels::StagedImage::kComplete);
  EXPECT_EQ(stage.image(0).at, kernels::StagedImage::kComplete);
  row.image()[0] = 1;
  EXPECT_EQ(stage.image(1).at, kernels::StagedImage::kComplete);
}

TEST(DecodedDataset, IsTheWholeImageDecodedThenCutAndScaled) {
  const auto store = photos();
  const DecodedDataset data(store, kTraining, kEvaluation, 5);
  EXPECT_EQ(data.spec(), (ImageSpec{32, 24, 3, 10}));
  std::vector<std::byte> scratch;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const StoredSample sample = store->fetch(i, scratch);
    Pixels whole;
    if (sample.codec == Codec::jpeg) {
      whole = test::decode_whole(sample.bytes);
    } else {
      PngDecoder png;
      const ImageSize size = png.open(sample.bytes);
      const ImageView view = png.decode({0, 0, size.height, size.width});
      whole = {size.height, size.width, 3, {view.pixels, view.pixels + size.height * view.stride}};
    }
    const ImageSize size{whole.height, whole.width};
    for (const bool training : {false, true}) {
      const Placement at = place(training ? kTraining : kEvaluation, size, {5, 9, i});
      if (training && std::min(at.rows.scale, at.columns.scale) >= 2) continue;  // decoded at half its size
      const auto pixels = training ? read(data, i, 9) : read(data, i);
      double worst = 0;
      for (std::int64_t y = 0; y < 32; ++y) {
        for (std::int64_t x = 0; x < 24; ++x) {
          for (std::int64_t c = 0; c < 3; ++c) {
            worst = std::max(worst, std::abs(pixels[static_cast<std::size_t>((y * 24 + x) * 3 + c)] -
                                             exact(whole, at, y, x, c)));
          }
        }
      }
      EXPECT_LT(worst, 0.6) << "image " << i << (training ? " training" : " evaluation");
    }
  }
}

TEST(DecodedDataset, AReducedImageIsNearlyTheSame) {
  // No noise: what is left is the difference of two ways to average.
  Pixels image = test::photo(400, 480, 3);
  for (std::int64_t y = 0; y < 400; ++y) {
    for (std::int64_t x = 0; x < 480; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        image.bytes[static_cast<std::size_t>((y * 480 + x) * 3 + c)] =
            static_cast<std::uint8_t>(127 + 100 * std::sin(0.02 * double(x + 2 * y) + double(c)));
      }
    }
  }
  const auto store = std::make_shared<Files>(std::vector<Files::File>{{test::jpeg_file(image, {})}});
  for (const double area : {0.3, 0.9}) {  // 2 and 4 times
    const ImageTransform drawn{
        .height = 90, .width = 100, .random_crop = RandomResizedCrop{area, area, 1.1, 1.2}};
    const DecodedDataset data(store, drawn, {.height = 90, .width = 100}, 1);
    const auto pixels = read(data, 0, 0);
    const Placement at = place(drawn, {400, 480}, {1, 0, 0});
    ASSERT_GE(std::min(at.rows.scale, at.columns.scale), 2);
    const Pixels whole = test::decode_whole(bytes_of(test::jpeg_file(image, {})));
    double worst = 0;
    for (std::int64_t y = 0; y < 90; y += 7) {
      for (std::int64_t x = 0; x < 100; x += 7) {
        worst = std::max(
            worst, std::abs(pixels[static_cast<std::size_t>((y * 100 + x) * 3)] - exact(whole, at, y, x, 0)));
      }
    }
    EXPECT_LT(worst, 4) << area;  // a shift by half a pixel of the source would be 2 and more
  }
}

TEST(DecodedDataset, DoesNotDependOnReaderOrOrder) {
  const DecodedDataset data(photos(), kTraining, kEvaluation, 5), other(photos(), kTraining, kEvaluation, 6);
  std::vector<std::vector<std::uint8_t>> want;
  for (std::int64_t i = 0; i < data.size(); ++i) want.push_back(read(data, i, 3));
  std::vector<std::thread> threads;
  for (std::int64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t k = 0; k < 2 * data.size(); ++k) {
        const std::int64_t i = (k * 5 + t) % data.size();
        read(data, i);
        EXPECT_EQ(read(data, i, 3), want[static_cast<std::size_t>(i)]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(read(data, 1, 4), want[1]);
  EXPECT_NE(read(other, 1, 3), want[1]);
  EXPECT_EQ(read(data, 1), read(other, 1));
}

TEST(DecodedDataset, AllocatesNothingPerImage) {
  const DecodedDataset data(photos(), kTraining, kEvaluation, 5);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(data.spec().bytes()));
  const auto pass = [&](std::int64_t epoch) {
    for (std::int64_t i = 0; i < data.size(); ++i) {
      data.read(i, pixels);
      data.read_in_epoch(i, epoch, pixels);
    }
  };
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) pass(epoch);
  const std::int64_t before = test::operator_news();
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) pass(epoch);
  EXPECT_EQ(test::operator_news() - before, 0);
}

TEST(DecodedDataset, RawSamplesKeepTheirChannels) {
  for (const std::int64_t channels : {1, 3, 4}) {
    const Pixels image = test::photo(8, 8, channels);
    const auto store = std::make_shared<Files>(
        std::vector<Files::File>{{text_of(image), Codec::raw, {8, 8}, channels}}, channels);
    const DecodedDataset data(store, {.height = 8, .width = 8});
    EXPECT_EQ(data.spec(), (ImageSpec{8, 8, channels, 10}));
    EXPECT_EQ(read(data, 0), image.bytes);
  }
  // Among encoded ones, grey becomes RGB, and what is neither is refused.
  const Pixels grey = test::photo(8, 8, 1), four = test::photo(8, 8, 4);
  const DecodedDataset mixed(
      std::make_shared<Files>(std::vector<Files::File>{{text_of(grey), Codec::raw, {8, 8}, 1},
                                                       {text_of(four), Codec::raw, {8, 8}, 4},
                                                       {text_of(grey), Codec::raw, {8, 9}, 1}}),
      {.height = 8, .width = 8});
  const auto pixels = read(mixed, 0);
  for (std::size_t i = 0; i < pixels.size(); ++i) ASSERT_EQ(pixels[i], grey.bytes[i / 3]);
  std::vector<std::uint8_t> out(192);
  EXPECT_THROW(mixed.read(1, out), IoError);
  EXPECT_THROW(mixed.read(2, out), IoError);
}

TEST(DecodedDataset, ErrorsSayWhereAndWhat) {
  const std::string whole = test::jpeg_file(test::photo(40, 40, 3), {});
  const DecodedDataset data(std::make_shared<Files>(std::vector<Files::File>{
                                {whole}, {whole.substr(0, whole.size() / 2)}, {"hello"}}),
                            kTraining, kEvaluation, 5);
  std::vector<std::uint8_t> out(static_cast<std::size_t>(data.spec().bytes()));
  for (const std::int64_t i : {1, 2}) {
    EXPECT_ERROR(IoError, data.read(i, out), fmt::format("file {}", i), "JPEG");
  }
  EXPECT_NO_THROW(data.read(0, out));
  EXPECT_THROW(data.read(3, out), ArgumentError);
  EXPECT_THROW(data.read(-1, out), ArgumentError);
  EXPECT_THROW(data.read(0, std::span(out).first(5)), ArgumentError);
}

TEST(DecodedDataset, RefusesTransformsThatDoNotFitEachOther) {
  const auto store = photos();
  EXPECT_THROW(DecodedDataset(store, kTraining, {.height = 32, .width = 25}, 0), ArgumentError);
  EXPECT_THROW(DecodedDataset(store, kTraining, kTraining, 0), ArgumentError);
  EXPECT_THROW(DecodedDataset(store, {.height = 0}), ArgumentError);
  EXPECT_THROW(DecodedDataset(nullptr, kEvaluation), ArgumentError);
}

}  // namespace athanor::decoded_dataset_test
