#include "data/formats/hdf5.h"

#include <random>
#include <thread>

#include "support/stores.h"

namespace athanor {
namespace {

using namespace test;

#ifdef ATHANOR_TEST_HDF5
struct Size {
  std::int64_t count, height, width, channels, classes;
};

TEST(Hdf5, ReadsWhatItWrote) {
  // One image; odd sizes; more than a chunk; chunks of one image.
  for (const Size& s :
       std::vector<Size>{{1, 1, 1, 1, 1}, {13, 3, 2, 3, 70000}, {300, 64, 65, 1, 10}, {3, 700, 601, 3, 2}}) {
    for (const int deflate : {0, 6}) {
      const TempDir dir;
      const auto samples = raw_samples(s.count, s.height, s.width, s.channels, s.classes);
      write_all(create_hdf5(dir / "a.h5", deflate), samples);
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1)
          << "nothing else is left";
      for (const std::int64_t cache : {0, 3 << 20}) {
        const auto store = open_hdf5(dir / "a.h5", {.classes = s.classes, .cache_bytes = cache});
        EXPECT_EQ(store->spec(), (ImageSpec{s.height, s.width, s.channels, s.classes}));
        EXPECT_FALSE(store->resident());
        expect_same(*store, samples);
      }
      expect_same(*open_hdf5(dir / "a.h5", {.images = "/images", .labels = "labels"}), samples);
    }
  }
}

TEST(Hdf5, ReadsWhatH5pyWrote) {
  const auto path = std::filesystem::path(ATHANOR_GOLDEN_DIR) / "formats/h5py.h5";
  expect_same(*open_hdf5(path, {.images = "train/x", .labels = "train/y"}), golden_samples());
  expect_one_line(io_error([&] { open_hdf5(path); }), "h5py.h5", "name yours");
}

TEST(Hdf5, ManyThreadsReadTheSame) {
  const TempDir dir;
  const auto samples = raw_samples(200, 40, 40, 3, 10);
  write_all(create_hdf5(dir / "a.h5", 1), samples);
  const auto store = open_hdf5(dir / "a.h5", {.cache_bytes = 0});
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { expect_same(*store, samples); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Hdf5, RefusesWhatItCannotHoldAndLeavesNothing) {
  const TempDir dir;
  {
    const auto writer = create_hdf5(dir / "a.h5");
    EXPECT_THROW(writer->finish(), ArgumentError);
    EXPECT_THROW(writer->add(encoded_sample(Codec::png, 10, 0).view()), ArgumentError);
    writer->add(raw_samples(1, 2, 2, 3, 1)[0].view());
    EXPECT_THROW(writer->add(raw_samples(1, 2, 1, 3, 1)[0].view()), ArgumentError);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_THROW(create_hdf5(dir / "a.h5", 10), ArgumentError);
}

TEST(Hdf5, DamagedFilesAreOneLine) {
  const TempDir dir;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(20, 4, 5, 3, 3));
  const auto read = [&] { read_all(*open_hdf5(dir / "a.h5")); };
  expect_one_line(io_error([&] { open_hdf5(dir / "a.h5", {.images = "pics", .labels = "labels"}); }), "a.h5",
                  "must have the data set pics");
  expect_one_line(io_error([&] { open_hdf5(dir / "a.h5", {.images = "images", .labels = "images"}); }),
                  "a.h5", "one label for each of 20 images");
  expect_one_line(io_error([&] { open_hdf5(dir / "a.h5", {.images = "labels", .labels = "labels"}); }),
                  "a.h5", "astype(numpy.uint8)");
  expect_one_line(io_error([&] { open_hdf5(dir / "a.h5", {.classes = 2}); }), "a.h5",
                  "the label must be in [0, 2), but is 2 (label 0)");
  const std::string whole = read_file(dir / "a.h5");
  for (std::size_t length = 0; length < whole.size(); length += 41) {
    replace_file(dir / "a.h5", whole.substr(0, length));
    ASSERT_TRUE(names_place(io_error(read), "a.h5")) << length << ": " << io_error(read);
  }
  const std::string pixel = raw_samples(20, 4, 5, 3, 3)[7].bytes;
  const std::size_t at = whole.find(pixel);
  ASSERT_NE(at, std::string::npos);
  std::string damaged = whole;
  damaged[at + 3] = static_cast<char>(damaged[at + 3] ^ 4);
  replace_file(dir / "a.h5", damaged);
  expect_one_line(io_error(read), "a.h5", "images 0 to 19 must be readable");
  write_file(dir / "a.h5", "not HDF5");
  expect_one_line(io_error(read), "a.h5", "must be a whole HDF5 file");
  expect_one_line(io_error([&] { open_hdf5(dir / "none.h5"); }), "none.h5", "No such file");
}

#else
TEST(Hdf5, SaysThatItTakesLibhdf5) {
  const TempDir dir;
  expect_one_line(io_error([&] { open_hdf5(dir / "a.h5"); }), "a.h5", "take libhdf5");
  expect_one_line(io_error([&] { create_hdf5(dir / "a.h5"); }), "a.h5", "take libhdf5");
}
#endif

}  // namespace
}  // namespace athanor
