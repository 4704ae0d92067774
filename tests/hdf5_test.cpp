#include "data/formats/hdf5.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "data/decoded_dataset.h"
#include "data/loader.h"
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

/// Opens and reads everything: samples, or one line that names the file.
struct Outcomes {
  int samples = 0, lines = 0, lost = 0;

  void add(const std::filesystem::path& path) {
    const std::string line = io_error([&] { read_all(*open_hdf5(path, {.patience_s = 20})); });
    if (line == "no error") {
      ++samples;
      return;
    }
    ++lines;
    if (line.find("a process of its own") != std::string::npos) ++lost;
    ASSERT_TRUE(names_place(line, "a.h5")) << line;
  }
};

/// What a child process holds of this file; -1: there is no child.
pid_t child_of_this() {
  std::ifstream children(fmt::format("/proc/self/task/{}/children", ::gettid()));
  pid_t pid = -1;
  children >> pid;
  return children ? pid : -1;
}

// A file of 5 KiB, cut at every length, and with each bit of its metadata flipped once in a while: as many
// children are forked as there are cases.
TEST(Hdf5, NoDamageEndsOrHangsTheReader) {
  const TempDir dir;
  write_all(create_hdf5(dir / "whole.h5", 6), raw_samples(3, 2, 3, 3, 3));
  const std::string whole = read_file(dir / "whole.h5");
  Outcomes cut, flipped;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    if (length > 3000 && length % 7 != 0) continue;  // the rest of a table
    replace_file(dir / "a.h5", whole.substr(0, length));
    ASSERT_NO_FATAL_FAILURE(cut.add(dir / "a.h5")) << "cut at " << length;
  }
  EXPECT_EQ(cut.samples, 0);
  std::mt19937 random(1);
  for (std::size_t i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    const std::size_t at = random() % whole.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (i % 2 == 0 ? 1 << random() % 8 : 0xff));
    replace_file(dir / "a.h5", damaged);
    ASSERT_NO_FATAL_FAILURE(flipped.add(dir / "a.h5")) << "byte " << at;
  }
  EXPECT_GT(flipped.samples, 0) << "most bytes of so small a file are filling";
  EXPECT_GT(flipped.lines, 0);
  RecordProperty("lost", cut.lost + flipped.lost);
}

TEST(Hdf5, ALostChildIsOneLineAndTheNextReadHasAnother) {
  const TempDir dir;
  const auto samples = raw_samples(40, 256, 256, 1, 10);  // 16 in a chunk
  write_all(create_hdf5(dir / "a.h5", 1), samples);
  const auto store = open_hdf5(dir / "a.h5", {.cache_bytes = 0, .patience_s = 10});
  std::vector<std::byte> scratch;
  const pid_t first = child_of_this();
  ASSERT_GT(first, 0);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  expect_one_line(
      io_error([&] { store->fetch(0, scratch); }), "a.h5",
      "images 0 to 15 must be readable, but libhdf5, in a process of its own, was ended by signal 9");
  EXPECT_EQ(child_of_this(), -1) << "no zombie";
  expect_same(*store, samples);
  const pid_t second = child_of_this();
  ASSERT_GT(second, 0);
  EXPECT_NE(second, first);
  ASSERT_EQ(::kill(second, SIGSTOP), 0);
  expect_one_line(
      io_error([&] { store->fetch(39, scratch); }), "a.h5",
      "images 32 to 39 must be readable, but libhdf5, in a process of its own, gave no answer for "
      "10 s");
  EXPECT_EQ(child_of_this(), -1);
  expect_same(*store, samples);
  EXPECT_THROW(open_hdf5(dir / "a.h5", {.patience_s = 0}), ArgumentError);
}

TEST(Hdf5, AFileThatBecomesAnotherIsOneLine) {
  const TempDir dir;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(40, 256, 256, 1, 10));
  const auto store = open_hdf5(dir / "a.h5", {.cache_bytes = 0});
  ASSERT_EQ(::kill(child_of_this(), SIGKILL), 0);
  std::vector<std::byte> scratch;
  EXPECT_NE(io_error([&] { store->fetch(0, scratch); }), "no error");
  std::filesystem::remove(dir / "a.h5");
  write_all(create_hdf5(dir / "a.h5"), raw_samples(41, 256, 256, 1, 10));
  expect_one_line(io_error([&] { store->fetch(0, scratch); }), "a.h5", "must stay what it was");
}

TEST(Hdf5, TheChildEndsWithTheStore) {
  const TempDir dir;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(3, 4, 4, 1, 3));
  auto store = open_hdf5(dir / "a.h5");
  EXPECT_GT(child_of_this(), 0);
  store.reset();
  EXPECT_EQ(child_of_this(), -1);
  EXPECT_NE(io_error([&] { open_hdf5(dir / "a.h5", {.images = "pics", .labels = "labels"}); }), "no error");
  EXPECT_EQ(child_of_this(), -1) << "nor does one stay that could not open it";
}

// The loader's thread has all signals blocked; the file was opened by another.
TEST(Hdf5, FeedsALoaderWithThreads) {
  const TempDir dir;
  const auto samples = raw_samples(40, 64, 64, 3, 10);
  write_all(create_hdf5(dir / "a.h5", 1), samples);
  const DecodedDataset data(open_hdf5(dir / "a.h5", {.cache_bytes = 0}), {.height = 64, .width = 64});
  Loader loader(data, {.batch_size = 8, .shuffle = true, .workers = 2});
  Batch batch;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    std::int64_t seen = 0;
    while (loader.next(batch)) {
      for (std::int64_t row = 0; row < batch.size(); ++row, ++seen) {
        const OwnedSample& wanted =
            samples[static_cast<std::size_t>(batch.samples.data<std::int64_t>()[row])];
        ASSERT_EQ(batch.labels.data<std::int64_t>()[row], wanted.label);
        ASSERT_EQ(std::memcmp(batch.images.data<std::uint8_t>() + row * 64 * 64 * 3, wanted.bytes.data(),
                              wanted.bytes.size()),
                  0);
      }
    }
    EXPECT_EQ(seen, 40);
  }
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
