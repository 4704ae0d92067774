#include <algorithm>
#include <array>
#include <numeric>

#include <gtest/gtest.h>
#include <zlib.h>

#include "data/digits.h"
#include "data/formats/cifar.h"
#include "data/formats/mnist.h"
#include "data/in_memory.h"
#include "data/preprocess.h"
#include "data/synthetic.h"
#include "kernels/hash.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/made_up_set.h"
#include "tests/support/temp_dir.h"

namespace athanor::dataset_test {

using test::TempDir;
using test::write_file;

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string gzip(const std::string& content) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(content.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// Three 2x2 images, pixels 0 .. 11, labels 7, 0, 9.
std::string good_images() {
  std::string file = big_endian(0x803) + big_endian(3) + big_endian(2) + big_endian(2);
  for (int i = 0; i < 12; ++i) file.push_back(static_cast<char>(i));
  return file;
}
std::string good_labels() {
  return big_endian(0x801) + big_endian(3) + std::string("\7\0\11", 3);
}

TEST(Digits, AreEmbeddedWithAFixedStratifiedSplit) {
  const auto train = digits(Split::train), test = digits(Split::test);
  EXPECT_EQ(train->size(), 1437);
  EXPECT_EQ(test->size(), 360);
  EXPECT_EQ(train->spec(), (ImageSpec{8, 8, 1, 10}));
  std::array<int, 10> train_count{}, test_count{};
  for (std::int64_t label : train->labels()) ++train_count[static_cast<std::size_t>(label)];
  for (std::int64_t label : test->labels()) ++test_count[static_cast<std::size_t>(label)];
  for (std::size_t c = 0; c < 10; ++c) {
    const double share = static_cast<double>(test_count[c]) / (train_count[c] + test_count[c]);
    EXPECT_NEAR(share, 360.0 / 1797, 0.004) << "class " << c;
  }
  // Which images are for testing: every recorded accuracy rests on it.
  const auto hash = [](const InMemoryDataset& data) {
    return kernels::fnv1a({reinterpret_cast<const char*>(data.pixels().data()), data.pixels().size()});
  };
  EXPECT_EQ(hash(*train), 0xb7e31c3310e0c738u);
  EXPECT_EQ(hash(*test), 0xe6651a5c0dc983b7u);
  // The first line of the file: 0,0,5,13,... and the label 0; 5/16 and 13/16 of 255, rounded.
  EXPECT_EQ(train->labels()[0], 0);
  EXPECT_EQ(std::vector<int>(train->pixels().begin(), train->pixels().begin() + 5),
            (std::vector<int>{0, 0, 80, 207, 143}));
  EXPECT_EQ(*std::max_element(train->pixels().begin(), train->pixels().end()), 255);
}

TEST(Mnist, ReadsPlainAndGzippedFiles) {
  for (const bool compressed : {false, true}) {
    const TempDir dir;
    const auto put = [&](const std::string& name, const std::string& content) {
      write_file(dir / (compressed ? name + ".gz" : name), compressed ? gzip(content) : content);
    };
    put("train-images-idx3-ubyte", good_images());
    put("train-labels-idx1-ubyte", good_labels());
    const auto data = mnist(dir.path(), Split::train);
    EXPECT_EQ(data->spec(), (ImageSpec{2, 2, 1, 10}));
    EXPECT_EQ(std::vector<std::int64_t>(data->labels().begin(), data->labels().end()),
              (std::vector<std::int64_t>{7, 0, 9}));
    std::array<std::uint8_t, 4> image;
    EXPECT_EQ(data->read(2, image), 9);
    EXPECT_EQ(image, (std::array<std::uint8_t, 4>{8, 9, 10, 11}));
  }
}

TEST(Mnist, HostileFilesAreOneLineNamingFileAndOffset) {
  struct Case {
    const char* what;
    std::string images, labels;  // empty: the file is missing
    const char* file;
    std::vector<std::string> values;  // what the error names besides it
  };
  const std::string head = big_endian(0x803) + big_endian(3), gz = gzip(good_images());
  std::string flipped = gz;
  flipped[flipped.size() / 2] = static_cast<char>(~flipped[flipped.size() / 2]);
  const std::vector<Case> cases{
      {"no images", "", good_labels(), "train-images-idx3-ubyte", {"train-images-idx3-ubyte.gz"}},
      {"no labels", good_images(), "", "train-labels-idx1-ubyte", {"train-labels-idx1-ubyte.gz"}},
      {"empty", " ", good_labels(), "train-images-idx3-ubyte", {"0", "4"}},
      {"labels as images", good_labels(), good_labels(), "train-images-idx3-ubyte", {"0", "3", "4", "1"}},
      {"cut header", good_images().substr(0, 10), good_labels(), "train-images-idx3-ubyte", {"2"}},
      {"cut pixels",
       good_images().substr(0, 20),
       good_labels(),
       "train-images-idx3-ubyte",
       {"16", "12", "4"}},
      {"too long", good_images() + "x", good_labels(), "train-images-idx3-ubyte", {"28"}},
      {"no image", big_endian(0x803) + big_endian(0), good_labels(), "train-images-idx3-ubyte", {"4", "0"}},
      {"huge side",
       head + big_endian(0xffffffff) + big_endian(2),
       good_labels(),
       "train-images-idx3-ubyte",
       {"8", "height", "width", "channels"}},
      {"promises 1.6 TB",
       big_endian(0x803) + big_endian(100'000'000) + big_endian(128) + big_endian(128) + "ab",
       good_labels(),
       "train-labels-idx1-ubyte",
       {"100000000"}},
      {"fewer labels",
       good_images(),
       big_endian(0x801) + big_endian(2) + "ab",
       "train-labels-idx1-ubyte",
       {"3", "[2]"}},
      {"label 10",
       good_images(),
       big_endian(0x801) + big_endian(3) + "\1\12\1",
       "train-labels-idx1-ubyte",
       {"9", "label", "[0, 10)", "10"}},
      {"gzip cut short", gz.substr(0, gz.size() - 9), good_labels(), "train-images-idx3-ubyte", {"gzip"}},
      {"gzip damaged", flipped, good_labels(), "train-images-idx3-ubyte", {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const TempDir dir;
    if (!c.images.empty()) write_file(dir / "train-images-idx3-ubyte", c.images == " " ? "" : c.images);
    if (!c.labels.empty()) write_file(dir / "train-labels-idx1-ubyte", c.labels);
    const std::string message = test::message_of<IoError>([&] { mnist(dir.path(), Split::train); });
    EXPECT_TRUE(test::names(message, {c.file}));
    EXPECT_TRUE(test::names(message, c.values));
  }
}

TEST(Mnist, AFolderInsteadOfAFileIsAnIoError) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "train-images-idx3-ubyte");
  write_file(dir / "train-labels-idx1-ubyte", good_labels());
  EXPECT_ERROR(IoError, mnist(dir.path(), Split::train), "train-images-idx3-ubyte", "folder");
}

TEST(Mnist, ReadsTheOfficialFiles) {
  ATHANOR_NEEDS_DATA(folder, "mnist");
  const auto train = mnist(folder, Split::train), test = mnist(folder, Split::test);
  EXPECT_EQ(train->size(), 60'000);
  EXPECT_EQ(test->size(), 10'000);
  EXPECT_EQ(train->spec(), (ImageSpec{28, 28, 1, 10}));
  EXPECT_EQ(train->labels()[0], 5);  // the famous first image
  const Normalization known = measure(*train);
  EXPECT_NEAR(known.mean[0], 0.1307, 1e-4);
  EXPECT_NEAR(known.stddev[0], 0.3081, 1e-4);
}

constexpr std::int64_t kCifarBytes = 30'730'000;

TEST(Cifar10, HostileFilesAreOneLineNamingFileAndOffset) {
  const TempDir dir;
  const auto path = dir / "test_batch.bin";
  const auto read = [&] { cifar10(dir.path(), Split::test); };
  EXPECT_ERROR(IoError, read(), "test_batch.bin");
  for (const std::int64_t size :
       {std::int64_t{0}, std::int64_t{3072}, std::int64_t{3073 * 5000}, kCifarBytes - 1}) {
    write_file(path, "");
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size));
    EXPECT_ERROR(IoError, read(), "test_batch.bin", "10000", "3073", std::to_string(size));
  }
  write_file(path, "");
  std::filesystem::resize_file(path, kCifarBytes + 1);
  EXPECT_ERROR(IoError, read(), "test_batch.bin", "30730000", "10000", "30730001");
  write_file(path, std::string(3073, '\0') + "\12");
  std::filesystem::resize_file(path, kCifarBytes);
  EXPECT_ERROR(IoError, read(), "test_batch.bin", "3073", "label", "[0, 10)", "10");
}

TEST(Cifar100, TakesTheFineLabelAndTurnsPlanesIntoPixels) {
  const TempDir dir;
  std::string record = {4, 99};
  for (const char plane : {1, 2, 3}) record += std::string(1024, plane);
  write_file(dir / "test.bin", record);
  std::filesystem::resize_file(dir / "test.bin", 3074 * 10'000);
  const auto data = cifar100(dir.path(), Split::test);
  EXPECT_EQ(data->spec(), (ImageSpec{32, 32, 3, 100}));
  EXPECT_EQ(data->labels()[0], 99);
  EXPECT_EQ(std::vector<int>(data->pixels().begin(), data->pixels().begin() + 6),
            (std::vector<int>{1, 2, 3, 1, 2, 3}));
}

TEST(Cifar10, ReadsTheOfficialFiles) {
  ATHANOR_NEEDS_DATA(folder, "cifar10");
  const auto train = cifar10(folder, Split::train);
  ASSERT_EQ(train->class_names().size(), 10u);
  EXPECT_EQ(train->class_names()[3], "cat");
  EXPECT_EQ(train->size(), 50'000);
  const Normalization known = measure(*train);
  const double mean[] = {0.49139968, 0.48215841, 0.44653091};
  for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(known.mean[c], mean[c], 1e-7);
}

TEST(InMemory, RejectsInvalidArguments) {
  EXPECT_THROW(InMemoryDataset({2, 2, 1, 3}, std::vector<std::uint8_t>(7), {0, 1}), ArgumentError);
  EXPECT_THROW(InMemoryDataset({2, 2, 1, 3}, std::vector<std::uint8_t>(4), {3}), ArgumentError);
  EXPECT_THROW(InMemoryDataset({2, 2, 1, 3}, std::vector<std::uint8_t>(4), {-1}), ArgumentError);
  EXPECT_THROW(InMemoryDataset({0, 2, 1, 3}, {}, {}), ArgumentError);
  const InMemoryDataset one({2, 2, 1, 3}, std::vector<std::uint8_t>(4), {2});
  std::array<std::uint8_t, 4> image;
  EXPECT_THROW(one.read(1, image), ArgumentError);
  EXPECT_THROW(one.read(-1, image), ArgumentError);
}

TEST(Split, HoldsEverySampleOnce) {
  const std::shared_ptr<const Dataset> data = synthetic({2, 2, 1, 4}, 103);
  const auto [first, second] = split(data, 0.2);
  EXPECT_EQ(first->size() + second->size(), 103);
  EXPECT_EQ(second->size(), 21);
  std::vector<std::string> all, parts;
  const auto collect = [](const Dataset& from, auto& to) {
    for (std::int64_t i = 0; i < from.size(); ++i) {
      std::array<std::uint8_t, 4> image;
      from.read(i, image);
      to.emplace_back(image.begin(), image.end());
    }
  };
  collect(*data, all);
  collect(*first, parts);
  collect(*second, parts);
  std::sort(all.begin(), all.end());
  std::sort(parts.begin(), parts.end());
  EXPECT_EQ(all, parts);
}

TEST(Synthetic, IsAFunctionOfItsSeed) {
  const ImageSpec spec{4, 4, 3, 10};
  const auto a = synthetic(spec, 30, 1), b = synthetic(spec, 30, 1), c = synthetic(spec, 30, 2);
  EXPECT_TRUE(std::equal(a->pixels().begin(), a->pixels().end(), b->pixels().begin()));
  EXPECT_FALSE(std::equal(a->pixels().begin(), a->pixels().end(), c->pixels().begin()));
}

TEST(Synthetic, RefusesImagesOfNoClass) {
  EXPECT_THROW(synthetic({4, 4, 3, 0}, 30), ArgumentError);
}

TEST(Subset, ForwardsWillNeed) {
  const auto data = std::make_shared<test::MadeUpSet>(10);
  std::vector<std::int64_t> needed;
  data->on_will_need = [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) needed.push_back(i);
  };
  const Subset some(data, {7, 2, 5, 3});
  some.will_need(1, 2);
  EXPECT_EQ(needed, (std::vector<std::int64_t>{2, 5}));
  some.will_need(3, 100);
  EXPECT_EQ(needed, (std::vector<std::int64_t>{2, 5, 3}));
}

}  // namespace athanor::dataset_test
