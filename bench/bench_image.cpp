#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>

#include <benchmark/benchmark.h>
#include <jpeglib.h>

#include "bench/support/bench.h"
#include "bench/support/quantile.h"
#include "data/decoded_dataset.h"
#include "data/image/jpeg.h"
#include "data/image/reader.h"
#include "tensor/philox.h"

// Photos to samples, one core: seconds are CPU time of one thread. Files lie in memory. Each row has two
// columns taken in turns over the same files: through DecodedDataset, and `bare`, a loop over libjpeg-turbo's
// functions and our Resizer with nothing around them. "photos" are those of
// $ATHANOR_DATA_DIR/imagenet-sample, or made up where there are none; "256px" the same with a shorter side of
// 256, at quality 90.

namespace athanor::bench {
namespace {

constexpr std::size_t kFiles = 200;

class Files final : public Dataset {
 public:
  explicit Files(std::vector<std::string> files) : files_(std::move(files)) {}
  std::int64_t size() const override { return std::ssize(files_); }
  const ImageSpec& spec() const override { return spec_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>&) const override {
    const std::string& file = files_[static_cast<std::size_t>(index)];
    return {.bytes = {reinterpret_cast<const std::byte*>(file.data()), file.size()}, .codec = Codec::jpeg};
  }
  std::string where(std::int64_t index) const override { return fmt::format("file {}", index); }
  bool resident() const override { return true; }

 private:
  std::vector<std::string> files_;
  ImageSpec spec_{0, 0, 0, 1};
};

std::string encode(const std::uint8_t* pixels, std::int64_t height, std::int64_t width, int quality) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(pixels + info.next_scanline * width * 3);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<char*>(memory), size);
  std::free(memory);
  return file;
}

std::string made_up_photo(std::uint64_t seed) {
  std::vector<std::uint8_t> pixels;
  for (std::int64_t i = 0; i < std::int64_t{375} * 500 * 3; ++i) {
    const std::int64_t x = i / 3 % 500, y = i / 1500;
    const std::int64_t wave = (x * x / (40 + i % 3) + y * static_cast<std::int64_t>(3 + seed % 5)) % 200;
    pixels.push_back(
        static_cast<std::uint8_t>(wave + philox_word({seed, 0}, static_cast<std::uint64_t>(i)) % 40));
  }
  return encode(pixels.data(), 375, 500, 92);
}

const Files& photos() {
  static const Files all = [] {
    std::vector<std::string> files;
    const char* root = std::getenv("ATHANOR_DATA_DIR");
    std::vector<std::filesystem::path> paths;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(
             std::filesystem::path(root ? root : "") / "imagenet-sample", none)) {
      if (entry.path().extension() == ".JPEG") paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (std::size_t i = 0; i < paths.size() && files.size() < kFiles;
         i += std::max<std::size_t>(paths.size() / kFiles, 1)) {
      std::ifstream in(paths[i], std::ios::binary);
      files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    for (std::uint64_t i = 0; files.size() < 20; ++i) files.push_back(made_up_photo(i));
    return Files(std::move(files));
  }();
  return all;
}

const Files& small_photos() {
  static const Files all = [] {
    std::vector<std::string> files;
    std::vector<std::byte> scratch;
    JpegDecoder decoder;
    Resizer resize;
    for (std::int64_t i = 0; i < photos().size(); ++i) {
      const ImageSize size = decoder.open(photos().fetch(i, scratch).bytes);
      const std::int64_t shorter = std::min(size.height, size.width);
      const std::int64_t height = size.height * 256 / shorter, width = size.width * 256 / shorter;
      const auto window = [](std::int64_t from, std::int64_t to) {
        return Window{static_cast<double>(from) / static_cast<double>(to), 0, 0, from};
      };
      std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height * width * 3));
      resize(decoder.decode({0, 0, size.height, size.width}), window(size.height, height),
             window(size.width, width), height, width, pixels);
      files.push_back(encode(pixels.data(), height, width, 90));
    }
    return Files(std::move(files));
  }();
  return all;
}

/// libjpeg-turbo as its manual says to use it, with the same settings. Ends the program on damaged files.
class Bare {
 public:
  Bare() {
    info_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&info_);
  }
  ~Bare() { jpeg_destroy_decompress(&info_); }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;

  ImageSize open(std::span<const std::byte> bytes) {
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()),
                 static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&info_, TRUE);
    return {info_.image_height, info_.image_width};
  }
  /// Columns left of the box that are decoded, too, are part of the image.
  ImageView decode(const Box& box, int reduce, std::int64_t& columns_before) {
    info_.out_color_space = JCS_RGB;
    info_.scale_denom = static_cast<unsigned>(reduce);
    jpeg_start_decompress(&info_);
    auto left = static_cast<JDIMENSION>(box.left), width = static_cast<JDIMENSION>(box.width);
    if (width < info_.output_width) jpeg_crop_scanline(&info_, &left, &width);
    if (box.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(box.top));
    const std::size_t stride = std::size_t{info_.output_width} * 3;
    pixels_.resize(std::max(pixels_.size(), stride * static_cast<std::size_t>(box.height)));
    const auto end = static_cast<JDIMENSION>(box.top + box.height);
    while (info_.output_scanline < end) {
      JSAMPROW rows[8];
      const JDIMENSION count = std::min<JDIMENSION>(8, end - info_.output_scanline);
      for (JDIMENSION i = 0; i < count; ++i) {
        rows[i] = pixels_.data() + stride * (info_.output_scanline - static_cast<JDIMENSION>(box.top) + i);
      }
      jpeg_read_scanlines(&info_, rows, count);
    }
    jpeg_abort_decompress(&info_);
    columns_before = box.left - left;
    return {pixels_.data(), box.height, info_.output_width, 3, static_cast<std::int64_t>(stride)};
  }

 private:
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  std::vector<std::uint8_t> pixels_;
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Row {
  std::string name;
  std::function<const Files&()> files;
  /// Make of image `index` in `epoch` a sample, or part of one.
  std::function<void(const Files&, std::int64_t index, std::int64_t epoch)> ours, bare;
};

/// Passes over all files in turns, with other draws each time; medians, and that of each pair's ratio.
void run(benchmark::State& state, const Row& row) {
  const Files& files = row.files();
  const auto pass = [&](const auto& make, std::int64_t epoch) {
    const double start = cpu_seconds();
    for (std::int64_t i = 0; i < files.size(); ++i) make(files, i, epoch);
    return (cpu_seconds() - start) / static_cast<double>(files.size());
  };
  std::vector<double> ours, bare, ratio;
  std::int64_t epoch = 0;
  pass(row.ours, epoch);
  if (row.bare) pass(row.bare, epoch);
  for (auto unused : state) {
    static_cast<void>(unused);
    ours.push_back(pass(row.ours, ++epoch));
    if (!row.bare) continue;
    bare.push_back(pass(row.bare, epoch));
    ratio.push_back(bare.back() / ours.back());
  }
  state.counters["images/s"] = 1 / quantile(ours, 0.5);
  state.counters["cpu_us"] = 1e6 * quantile(ours, 0.5);
  if (!row.bare) return;
  state.counters["bare_images/s"] = 1 / quantile(bare, 0.5);
  state.counters["of_bare_%"] = 100 * quantile(ratio, 0.5);
}

void add_row(Row row) {
  const auto shared = std::make_shared<const Row>(std::move(row));
  benchmark::RegisterBenchmark(shared->name.c_str(),
                               [shared](benchmark::State& state) { run(state, *shared); })
      ->Unit(benchmark::kMillisecond)
      ->MinTime(2);
}

/// What both sides keep between images.
struct Desk {
  JpegDecoder decoder;
  Bare bare;
  Resizer resize, bare_resize;
  std::vector<std::byte> scratch;
  std::vector<std::uint8_t> out;
};
Desk& desk() {
  static Desk one;
  return one;
}

void add_transform(const std::string& name, const std::function<const Files&()>& files,
                   const ImageTransform& training) {
  const auto data = std::make_shared<std::unique_ptr<DecodedDataset>>();
  const auto of = [data, training](const Files& from) -> const DecodedDataset& {
    if (!*data) {
      const std::shared_ptr<const Dataset> lent(&from, [](const Dataset*) {});
      *data = std::make_unique<DecodedDataset>(
          lent, training, ImageTransform{.height = training.height, .width = training.width}, 1);
    }
    return **data;
  };
  const auto ours = [of](const Files& from, std::int64_t index, std::int64_t epoch) {
    const DecodedDataset& dataset = of(from);
    desk().out.resize(static_cast<std::size_t>(dataset.spec().bytes()));
    dataset.read_in_epoch(index, epoch, desk().out);
  };
  const auto bare = [training](const Files& from, std::int64_t index, std::int64_t epoch) {
    Desk& mine = desk();
    const ImageSize size = mine.bare.open(from.fetch(index, mine.scratch).bytes);
    Placement at = place(training, size, {1, epoch, index});
    const double scale = std::min(at.rows.scale, at.columns.scale);
    const int reduce = !training.random_crop ? 1 : scale >= 8 ? 8 : scale >= 4 ? 4 : scale >= 2 ? 2 : 1;
    const auto reduced = [&](Window& w) {
      w = {w.scale / reduce, w.offset / reduce, w.low / reduce, (w.high + reduce - 1) / reduce};
    };
    reduced(at.rows);
    reduced(at.columns);
    const Reach rows = reach(at.rows, training.height), columns = reach(at.columns, training.width);
    std::int64_t before = 0;
    const ImageView view = mine.bare.decode(
        {rows.first, columns.first, rows.last - rows.first, columns.last - columns.first}, reduce, before);
    const auto moved = [](Window w, const Reach& within, std::int64_t by) {
      return Window{w.scale, w.offset - static_cast<double>(by), std::max(w.low, within.first) - by,
                    std::min(w.high, within.last) - by};
    };
    mine.out.resize(static_cast<std::size_t>(training.height * training.width * 3));
    mine.bare_resize(view, moved(at.rows, rows, rows.first),
                     moved(at.columns, columns, columns.first - before), training.height, training.width,
                     mine.out);
  };
  add_row({name, files, ours, bare});
}

void add_decode(const std::string& name, const std::function<const Files&()>& files, bool crop) {
  const auto box_of = [crop](const ImageSize& size, std::int64_t index, std::int64_t epoch) {
    return crop ? draw({}, size, {1, epoch, index}) : Box{0, 0, size.height, size.width};
  };
  add_row({name, files,
           [box_of](const Files& from, std::int64_t index, std::int64_t epoch) {
             Desk& mine = desk();
             const ImageSize size = mine.decoder.open(from.fetch(index, mine.scratch).bytes);
             benchmark::DoNotOptimize(mine.decoder.decode(box_of(size, index, epoch)));
           },
           [box_of](const Files& from, std::int64_t index, std::int64_t epoch) {
             Desk& mine = desk();
             std::int64_t before = 0;
             const ImageSize size = mine.bare.open(from.fetch(index, mine.scratch).bytes);
             benchmark::DoNotOptimize(mine.bare.decode(box_of(size, index, epoch), 1, before));
           }});
}

void add_resize(std::int64_t side, std::int64_t to) {
  const auto pixels = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(side * side * 3));
  for (std::size_t i = 0; i < pixels->size(); ++i)
    (*pixels)[i] = static_cast<std::uint8_t>(i * 2654435761u >> 24);
  // Another part each time, so that weights are made anew, as random crops need.
  add_row({fmt::format("resize/{}px/to{}", side, to), photos,
           [=](const Files&, std::int64_t index, std::int64_t) {
             Desk& mine = desk();
             mine.out.resize(static_cast<std::size_t>(to * to * 3));
             const auto from = static_cast<double>(side) - 1e-6 * static_cast<double>(index + 1);
             const Window window{from / static_cast<double>(to), 0, 0, side};
             mine.resize({pixels->data(), side, side, 3, side * 3}, window, window, to, to, mine.out);
           },
           nullptr});
}

}  // namespace

void register_all() {
  for (const bool small : {false, true}) {
    const std::function<const Files&()> files = small ? small_photos : photos;
    const std::string set = small ? "256px" : "photos";
    const auto crop = [](std::int64_t side) {
      return ImageTransform{.height = side, .width = side, .random_crop = RandomResizedCrop{}};
    };
    add_decode("decode_whole/" + set, files, false);
    add_decode("decode_crop/" + set, files, true);
    add_transform("crop224/" + set, files, crop(224));
    add_transform("crop160/" + set, files, crop(160));
    add_transform("middle224/" + set, files, {.height = 224, .width = 224, .shorter_side = 256});
  }
  for (const std::int64_t side : {256, 280, 300, 400}) add_resize(side, 224);
}

}  // namespace athanor::bench
