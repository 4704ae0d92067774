#include "data/convert.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "data/formats/open.h"
#include "data/formats/packed.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/samples.h"
#include "tests/support/temp_dir.h"

namespace athanor::convert_test {

using test::encoded_sample, test::OwnedSample, test::TempDir, test::write_file;

/// Samples 0 to n - 1, the bytes of each being its number, in scratch; later ones are often ready first.
class SlowStore final : public Dataset {
 public:
  explicit SlowStore(std::int64_t n) : size_(n) { spec_.classes = n; }
  std::int64_t size() const override { return size_; }
  const ImageSpec& spec() const override { return spec_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    if (index % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (index == bad || index == bad + 1) detail::fail<IoError>("sample {} is bad", index);
    scratch.assign(static_cast<std::size_t>(index % 5), static_cast<std::byte>(index));
    ++fetched;
    return {scratch, Codec::jpeg, 0, 0, 0, index};
  }
  std::string where(std::int64_t) const override { return "memory"; }

  std::int64_t bad = -2;
  mutable std::atomic<std::int64_t> fetched = 0;

 private:
  std::int64_t size_;
  ImageSpec spec_;
};

struct ListWriter final : SampleWriter {
  void add(const StoredSample& sample) override {
    const auto expected = static_cast<std::byte>(sample.label);
    EXPECT_EQ(std::ssize(sample.bytes), sample.label % 5);
    EXPECT_TRUE(std::ranges::all_of(sample.bytes, [&](std::byte b) { return b == expected; }))
        << sample.label;
    labels.push_back(sample.label);
    if (sample.label == refuses) throw ArgumentError("refused");
  }
  void finish() override { FAIL() << "convert() must not call it"; }

  std::vector<std::int64_t> labels;
  std::int64_t refuses = -1;
};

std::vector<std::int64_t> converted(const Dataset& store, const ConvertOptions& options) {
  ListWriter writer;
  EXPECT_TRUE(convert(store, writer, options));
  return writer.labels;
}

TEST(Convert, KeepsTheOrderForAnyThreadCount) {
  std::vector<std::int64_t> all(200);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const SlowStore store(200);
  for (const int threads : {1, 2, 7}) {
    EXPECT_EQ(converted(store, {.threads = threads}), all);
    EXPECT_EQ(converted(store, {.threads = threads, .limit = 1000}), all);
    EXPECT_EQ(converted(store, {.threads = threads, .limit = 3}), (std::vector<std::int64_t>{0, 1, 2}));
  }
  EXPECT_TRUE(converted(SlowStore(0), {.threads = 3}).empty());
}

TEST(Convert, AShuffleIsAFunctionOfItsSeed) {
  const SlowStore store(100);
  const auto first = converted(store, {.threads = 1, .shuffle_seed = 7});
  EXPECT_EQ(first, converted(store, {.threads = 4, .shuffle_seed = 7}));
  EXPECT_NE(first, converted(store, {.shuffle_seed = 8}));
  EXPECT_NE(first, converted(store, {}));
  EXPECT_EQ(std::set<std::int64_t>(first.begin(), first.end()).size(), 100u);
  const auto some = converted(store, {.limit = 10, .shuffle_seed = 7});
  EXPECT_EQ(some, std::vector<std::int64_t>(first.begin(), first.begin() + 10));
}

TEST(Convert, ThreadsChangeSamplesIndependently) {
  const SlowStore store(100);
  std::atomic<int> made = 0;
  const auto make_change = [&]() -> SampleChange {
    ++made;
    return [](const StoredSample& sample, std::vector<std::byte>& bytes) {
      if (sample.label == 42) detail::fail<IoError>("offset 3: bad");
      bytes.assign(sample.bytes.begin(), sample.bytes.end());
      bytes.push_back(std::byte{1});
      StoredSample changed = sample;
      changed.bytes = bytes;
      changed.codec = Codec::png;
      return changed;
    };
  };
  struct Writer final : SampleWriter {
    void add(const StoredSample& sample) override {
      EXPECT_EQ(std::ssize(sample.bytes), count % 5 + 1);
      EXPECT_EQ(sample.bytes.back(), std::byte{1});
      EXPECT_EQ(sample.codec, Codec::png);
      EXPECT_EQ(sample.label, count++);
    }
    void finish() override {}
    std::int64_t count = 0;
  } writer;
  EXPECT_TRUE(convert(store, writer, {.threads = 3, .limit = 42, .make_change = make_change}));
  EXPECT_EQ(writer.count, 42);
  EXPECT_EQ(made, 3);
  writer.count = 0;
  EXPECT_ERROR(IoError, convert(store, writer, {.threads = 3, .make_change = make_change}), "memory", "3",
               "bad");
}

TEST(Convert, TheFirstBadSampleOfTheOrderIsTheError) {
  SlowStore store(100);
  store.bad = 33;  // 34 is bad, too, and quicker
  for (const int threads : {1, 7}) {
    ListWriter writer;
    EXPECT_ERROR(IoError, convert(store, writer, {.threads = threads}), "sample 33");
    EXPECT_EQ(std::ssize(writer.labels), 33);
  }
}

TEST(Convert, AFailedChangeIsAnError) {
  const SlowStore store(20);
  ListWriter writer;
  const auto make_change = []() -> SampleChange { throw ArgumentError("no such change"); };
  EXPECT_THROW(convert(store, writer, {.threads = 3, .make_change = make_change}), ArgumentError);
  EXPECT_TRUE(writer.labels.empty());
}

TEST(Convert, StopsWhenProgressReturnsFalse) {
  const SlowStore store(10'000);
  ListWriter writer;
  std::int64_t bytes_seen = 0;
  const auto stop_at_ten = [&](std::int64_t samples, std::int64_t bytes) {
    bytes_seen = bytes;
    return samples < 10;
  };
  EXPECT_FALSE(convert(store, writer, {.threads = 3, .progress = stop_at_ten}));
  EXPECT_EQ(std::ssize(writer.labels), 10);
  EXPECT_EQ(bytes_seen, 20);
  EXPECT_LE(store.fetched, 10 + 3 * 4 * 64) << "must not run ahead of what is taken";
  ListWriter picky;
  picky.refuses = 5;
  EXPECT_THROW(convert(store, picky, {.threads = 3}), ArgumentError);
  EXPECT_THROW(convert(store, writer, {.threads = 0}), ArgumentError);
  EXPECT_THROW(convert(store, writer, {.limit = -1}), ArgumentError);
}

/// Samples of `bytes` bytes, each its number, at once.
class QuickStore final : public Dataset {
 public:
  QuickStore(std::int64_t n, std::size_t bytes) : size_(n), bytes_(bytes) { spec_.classes = n; }
  std::int64_t size() const override { return size_; }
  const ImageSpec& spec() const override { return spec_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    if (index == bad) detail::fail<IoError>("sample {} is bad", index);
    scratch.assign(bytes_, static_cast<std::byte>(index));
    ++fetched;
    return {scratch, Codec::png, 0, 0, 0, index};
  }
  std::string where(std::int64_t) const override { return "memory"; }

  std::int64_t bad = -1;
  mutable std::atomic<std::int64_t> fetched = 0;

 private:
  std::int64_t size_;
  std::size_t bytes_;
  ImageSpec spec_;
};

/// Takes them all, and counts how far ahead the threads are.
struct QuickWriter final : SampleWriter {
  explicit QuickWriter(const QuickStore& from) : store(from) {}
  void add(const StoredSample& sample) override {
    EXPECT_EQ(sample.label, count++);
    EXPECT_EQ(sample.bytes.back(), static_cast<std::byte>(sample.label));
    if (count % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    most_ahead = std::max(most_ahead, store.fetched - count);
  }
  void finish() override {}

  const QuickStore& store;
  std::int64_t count = 0, most_ahead = 0;
};

TEST(Convert, SmallSamplesTravelInRunsAndLargeOnesAlone) {
  for (const int threads : {1, 2, 7}) {
    const QuickStore small(20'011, 10), large(300, 200'000);
    QuickWriter all(small), few(large);
    EXPECT_TRUE(convert(small, all, {.threads = threads}));
    EXPECT_EQ(all.count, 20'011);
    EXPECT_GT(all.most_ahead, 4 * threads) << "runs are longer than a sample";
    EXPECT_LE(all.most_ahead, 4 * threads * 64);
    EXPECT_TRUE(convert(large, few, {.threads = threads}));
    EXPECT_EQ(few.count, 300);
    EXPECT_LE(few.most_ahead, 4 * threads) << "memory for many large samples";

    // In the middle of a run: those before it arrive.
    QuickStore damaged(20'011, 10);
    damaged.bad = 7777;
    QuickWriter some(damaged);
    EXPECT_THROW(convert(damaged, some, {.threads = threads}), IoError);
    EXPECT_EQ(some.count, 7777);
  }
}

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

TEST(Open, DetectsFormatsByContent) {
  const TempDir dir;
  std::string pixels, records;
  for (int i = 0; i < 24; ++i) pixels.push_back(static_cast<char>(i));
  const std::string images = big_endian(0x803) + big_endian(2) + big_endian(3) + big_endian(4) + pixels;
  write_file(dir / "mnist" / "train-images-idx3-ubyte", images);
  write_file(dir / "mnist" / "train-labels-idx1-ubyte",
             big_endian(0x801) + big_endian(2) + std::string("\7\1"));
  for (int i = 0; i < 20; ++i) records += static_cast<char>(i % 10) + std::string(3072, static_cast<char>(i));
  write_file(dir / "cifar" / "test_batch.bin", records);

  EXPECT_EQ(format_of(dir / "mnist"), "MNIST folder");
  const auto store = open_samples(dir / "mnist");
  ASSERT_EQ(store->size(), 2);
  EXPECT_EQ(store->spec(), (ImageSpec{3, 4, 1, 10}));
  std::vector<std::byte> scratch;
  const StoredSample second = store->fetch(1, scratch);
  EXPECT_EQ(second.label, 1);
  EXPECT_EQ(second.bytes[0], std::byte{12});
  EXPECT_NE(store->where(1).find("mnist"), std::string::npos);

  EXPECT_EQ(format_of(dir / "cifar"), "CIFAR-10 folder");
  const auto test = open_samples(dir / "cifar", {.split = Split::test});
  EXPECT_EQ(test->size(), 20);
  EXPECT_THROW(open_samples(dir / "cifar"), IoError) << "the training part is not there";

  const auto writer = create_samples(dir / "a.athp", {.threads = 1, .classes = 10});
  EXPECT_TRUE(convert(*store, *writer, {.threads = 2}));
  writer->finish();
  EXPECT_EQ(format_of(dir / "a.athp"), "packed file");
  const auto packed = open_samples(dir / "a.athp");
  EXPECT_EQ(packed->spec(), store->spec());
  for (std::int64_t i = 0; i < 2; ++i) {
    std::vector<std::byte> other;
    EXPECT_TRUE(std::ranges::equal(packed->fetch(i, scratch).bytes, store->fetch(i, other).bytes));
  }
}

TEST(Open, UnknownFormatsAreErrors) {
  const TempDir dir;
  write_file(dir / "x.bin", "hello");
  EXPECT_ERROR(IoError, open_samples(dir / "absent"), "data", (dir / "absent").string());
  EXPECT_ERROR(IoError, open_samples(dir / "x.bin"), "data", (dir / "x.bin").string(), "packed file");
  EXPECT_ERROR(IoError, open_samples(dir.path()), "image folder", dir.path().string(), "x.bin");
  EXPECT_ERROR(ArgumentError, create_samples(dir / "x.zip"), "data", ".athp", "'.zip'");
  EXPECT_ERROR(ArgumentError, create_samples(dir / "x.lmdb"), "data", ".athp", "'.lmdb'");
  EXPECT_ERROR(ArgumentError, open_samples(dir.path(), {.fields = "image=x"}), "--fields", "image folder");
}

TEST(Open, ATrailingSlashChangesNothing) {
  const TempDir dir;
  const auto writer = create_samples(dir / "photos/");
  writer->add(encoded_sample(9, 0, 0).view());
  writer->finish();
  EXPECT_EQ(format_of(dir / "photos/"), "image folder");
  write_file(dir / "x.lmdb" / "data.mdb", "");
  EXPECT_EQ(format_of(dir / "x.lmdb/"), "LMDB environment");
}

}  // namespace athanor::convert_test
