#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "data/decoded_dataset.h"
#include "data/formats/cifar.h"
#include "data/formats/image_folder.h"
#include "data/formats/packed.h"
#include "data/formats/packed_writer.h"
#include "data/in_memory.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "tensor/philox.h"
#include "tests/support/loader_steps.h"
#include "tests/support/made_up_set.h"
#include "tests/support/stores.h"
#include "tests/support/temp_dir.h"

// The same bytes, whatever the set, the number of threads and ranks, and wherever a loader goes on.

namespace athanor::loader_bytes_test {

/// What two epochs and the first again must be, from the set and the order alone.
std::vector<std::vector<test::LoadedBatch>> expected_epochs(const Dataset& data,
                                                            const LoaderOptions& options) {
  std::vector<std::vector<test::LoadedBatch>> epochs;
  for (const std::int64_t epoch : {0, 1, 0}) {
    const auto order = philox_permutation(
        data.size(), {options.seed, random_stream(RandomPurpose::order, static_cast<std::uint64_t>(epoch))});
    auto& steps = epochs.emplace_back();
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i % static_cast<std::size_t>(options.batch_size) == 0) steps.emplace_back();
      std::vector<std::uint8_t> image(static_cast<std::size_t>(data.spec().bytes()));
      steps.back().labels.push_back(data.read_in_epoch(order[i], epoch, image));
      steps.back().samples.push_back(order[i]);
      steps.back().pixels.insert(steps.back().pixels.end(), image.begin(), image.end());
    }
  }
  return epochs;
}

void expect_same_for_any_number_of_threads(const Dataset& data, std::int64_t batch_size) {
  LoaderOptions options{.batch_size = batch_size, .shuffle = true, .seed = 5, .training = true};
  const auto expected = expected_epochs(data, options);
  for (const int workers : {0, 1, 2, 7, 16}) {
    SCOPED_TRACE(workers);
    options.workers = workers;
    Loader loader(data, options);
    EXPECT_EQ(test::steps_of(loader, 0), expected[0]);
    EXPECT_EQ(test::steps_of(loader, 1), expected[1]);
    EXPECT_EQ(test::steps_of(loader, 0), expected[2]) << "back where nobody was heading";
  }
  // And for any number of ranks, their rows one after the other.
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    options.world_size = ranks;
    std::vector<test::LoadedBatch> joined(expected[1].size());
    for (options.rank = 0; options.rank < ranks; ++options.rank) {
      options.workers = options.rank;
      Loader loader(data, options);
      test::steps_of(loader, 0);
      const auto part = test::steps_of(loader, 1);
      ASSERT_EQ(part.size(), joined.size());
      for (std::size_t i = 0; i < part.size(); ++i) {
        const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
        append(joined[i].samples, part[i].samples);
        append(joined[i].labels, part[i].labels);
        append(joined[i].pixels, part[i].pixels);
      }
    }
    EXPECT_EQ(joined, expected[1]);
  }
  // And in a loader that goes on at any step.
  options.rank = 0;
  options.world_size = 1;
  for (const int workers : {0, 2}) {
    options.workers = workers;
    for (const std::int64_t epoch : {0, 1}) {
      for (std::size_t at = 0; at <= expected[0].size(); ++at) {
        SCOPED_TRACE(fmt::format("{} workers, epoch {}, step {}", workers, epoch, at));
        const auto& all = expected[static_cast<std::size_t>(epoch)];
        Loader resumed(data, options);
        const std::int64_t delivered =
            std::min(static_cast<std::int64_t>(at) * batch_size, resumed.samples_per_epoch());
        EXPECT_EQ(test::steps_of(resumed, epoch, delivered),
                  std::vector<test::LoadedBatch>(all.begin() + static_cast<std::ptrdiff_t>(at), all.end()));
        if (epoch == 0) {
          EXPECT_EQ(test::steps_of(resumed, 1), expected[1]);
        }
      }
    }
  }
}

TEST(LoaderBytes, OfASetInMemory) {
  expect_same_for_any_number_of_threads(*synthetic({4, 4, 3, 5}, 45), 8);
}

TEST(LoaderBytes, OfASlowSet) {
  test::MadeUpSet data(29);
  data.before = test::take_a_while;
  expect_same_for_any_number_of_threads(data, 6);
}

TEST(LoaderBytes, OfEpochsShorterThanTheRing) {
  expect_same_for_any_number_of_threads(test::MadeUpSet(3), 2);
  expect_same_for_any_number_of_threads(test::MadeUpSet(1), 1);
}

TEST(LoaderBytes, OfAnImageFolder) {
  ATHANOR_NEEDS_DATA(sample, "imagenet-sample");
  const test::TempDir dir;
  int file = 0;
  for (const auto& entry : std::filesystem::directory_iterator(sample)) {
    if (entry.path().extension() != ".JPEG") continue;
    const auto folder = dir.path() / (file++ % 2 == 0 ? "even" : "odd");
    std::filesystem::create_directories(folder);
    std::filesystem::copy(entry.path(), folder / entry.path().filename());
    if (file == 5) break;
  }
  const auto photos = std::make_shared<ImageFolder>(dir.path());
  const ImageTransform middle{.height = 24, .width = 32},
      drawn{.height = 24, .width = 32, .random_crop = RandomResizedCrop{}};
  expect_same_for_any_number_of_threads(DecodedDataset(photos, drawn, middle, 3), 2);
}

/// Raw images of one size, made of nothing but their number.
void write_made_up(SampleWriter& writer, std::int64_t count, const ImageSpec& spec) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(spec.bytes()));
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < pixels.size(); ++k) {
      pixels[k] = static_cast<std::uint8_t>(k * 31 + static_cast<std::size_t>(i) * 7);
    }
    writer.add({std::as_bytes(std::span(pixels)), Codec::raw, spec.height, spec.width, spec.channels,
                i % spec.classes});
  }
  writer.finish();
}

TEST(LoaderBytes, OfAPackedFile) {
  const test::TempDir dir;
  const ImageSpec spec{12, 10, 3, 5};
  PackedWriter writer(dir / "a.athp", {.page_bytes = 4096});
  write_made_up(writer, 29, spec);
  const ImageTransform as_is{.height = 12, .width = 10},
      drawn{.height = 12, .width = 10, .random_crop = RandomResizedCrop{}};
  for (const PackedAccess access : {PackedAccess::map, PackedAccess::read}) {
    const auto store = std::make_shared<PackedStore>(dir / "a.athp", PackedOptions{.access = access});
    ASSERT_EQ(store->spec(), spec);
    expect_same_for_any_number_of_threads(DecodedDataset(store, as_is), 6);
    expect_same_for_any_number_of_threads(DecodedDataset(store, drawn, as_is, 3), 6);
  }
}

// So many small images that a thread takes several at a time, over the ends of batches and epochs.
TEST(LoaderBytes, OfManySmallPackedImages) {
  const test::TempDir dir;
  PackedWriter writer(dir / "a.athp", {.classes = 7});
  write_made_up(writer, 1101, {4, 4, 3, 7});
  const DecodedDataset data(std::make_shared<PackedStore>(dir / "a.athp"), {.height = 4, .width = 4});
  expect_same_for_any_number_of_threads(data, 270);
}

TEST(LoaderBytes, OfCifar10) {
  const test::TempDir dir;
  test::write_file(dir / "data_batch_1.bin", test::cifar_file(test::raw_samples(21, 32, 32, 3, 10), 10));
  const std::shared_ptr<const Dataset> store = open_cifar(dir / "data_batch_1.bin", 10);
  expect_same_for_any_number_of_threads(DecodedDataset(store, {.height = 32, .width = 32}), 4);
  ATHANOR_NEEDS_DATA(folder, "cifar10");
  const std::shared_ptr<const Dataset> all = cifar10(folder, Split::train);
  std::vector<std::int64_t> some(37);
  for (std::size_t i = 0; i < some.size(); ++i)
    some[i] = static_cast<std::int64_t>(i) * 1350;  // of every file
  expect_same_for_any_number_of_threads(Subset(all, some), 8);
}

}  // namespace athanor::loader_bytes_test
