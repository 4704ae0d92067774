#include <algorithm>
#include <atomic>
#include <new>

#include <gtest/gtest.h>

#include "data/decoded_dataset.h"
#include "data/defects.h"
#include "data/formats/open.h"
#include "data/loader.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/image_files.h"
#include "tests/support/loader_steps.h"
#include "tests/support/made_up_set.h"
#include "tests/support/temp_dir.h"

namespace athanor::loader_errors_test {

constexpr int kWorkers[] = {0, 1, 2, 7, 16};

bool is_damaged(std::int64_t index) {
  return index == 9 || index == 10 || index == 17 || index == 30;
}

/// Samples of which some cannot be read; the later ones fail sooner.
struct Damaged {
  Damaged() {
    data.before = [](std::int64_t index) {
      if (index < 12) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (is_damaged(index)) throw IoError("made-up: a byte is\nwrong");
    };
  }
  test::MadeUpSet data{32};
};

std::string what_next_throws(Loader& loader) {
  Batch batch;
  return test::message_of<IoError>([&] { loader.next(batch); });
}
TEST(LoaderErrors, ComeAtTheirStepInOrderAndNameEverything) {
  for (const int workers : kWorkers) {
    SCOPED_TRACE(workers);
    const Damaged damaged;
    Loader loader(damaged.data, {.batch_size = 4, .training = true, .workers = workers});
    Batch batch;
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(loader.next(batch));
      EXPECT_EQ(batch.samples.to_vector().front(), 4 * step);
    }
    // Samples 9 and 10 are of one batch: the first of them is the one that is told of, each time.
    for (int attempt = 0; attempt < 3; ++attempt) {
      const std::string line = what_next_throws(loader);
      EXPECT_TRUE(test::names(
          line, {"epoch 1", "sample 9", "made-up/9.img", "900", "read", "a byte is wrong", "--bad-samples"}));
      EXPECT_EQ(test::holds(line, "worker"), workers > 0) << line;
    }
    loader.start_epoch(0, 12);  // the caller may go on elsewhere
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.samples.to_vector().front(), 12);
    EXPECT_TRUE(test::names(what_next_throws(loader), {"sample 17"}));
  }
}

// What a set does is fixed before its loader is made: threads may read ahead from it as long as the loader
// lives.
TEST(LoaderErrors, OfLabels) {
  test::MadeUpSet data(8);
  data.label = [](std::int64_t index) { return index == 5 ? 7 : 0; };
  Loader loader(data, {.batch_size = 8, .workers = 2});
  EXPECT_TRUE(test::names(what_next_throws(loader), {"sample 5", "label", "[0, 7)", "7"}));
}

TEST(LoaderErrors, OfUnknownKinds) {
  test::MadeUpSet data(8);
  data.before = [](std::int64_t index) {
    if (index == 2) throw 17;
  };
  Loader loader(data, {.batch_size = 8, .workers = 2});
  EXPECT_TRUE(test::names(what_next_throws(loader), {"sample 2", "std::exception"}));
}

TEST(LoaderErrors, SkippingReplacesByTheSameSamplesForAnyNumberOfThreads) {
  std::vector<test::LoadedBatch> first, second;
  for (const int workers : kWorkers) {
    SCOPED_TRACE(workers);
    const Damaged damaged;
    const LoaderOptions options{.batch_size = 5,
                                .shuffle = true,
                                .seed = 4,
                                .training = true,
                                .workers = workers,
                                .bad_samples = {.skip = true, .limit = 4}};
    Loader loader(damaged.data, options);
    const auto epoch = test::steps_of(loader, 0);
    EXPECT_TRUE(test::names(loader.stats().first_skipped, {"epoch 1", "sample", "a byte is wrong"}));
    const auto next = test::steps_of(loader, 1);
    if (workers == 0) {
      first = epoch;
      second = next;
      const auto samples = test::samples_of(epoch);
      EXPECT_EQ(samples.size(), 32u);
      EXPECT_TRUE(std::none_of(samples.begin(), samples.end(), is_damaged));
      EXPECT_NE(samples, test::samples_of(next));
      for (const test::LoadedBatch& step : epoch) {  // the label goes with the sample that is there
        for (std::size_t i = 0; i < step.samples.size(); ++i) EXPECT_EQ(step.labels[i], step.samples[i] % 7);
      }
    }
    EXPECT_EQ(epoch, first);
    EXPECT_EQ(next, second);
    EXPECT_EQ(loader.stats().skipped, 4);
    EXPECT_TRUE(test::names(loader.stats().first_skipped, {"epoch 2", "sample"}));
  }
}

TEST(LoaderErrors, SkippingEndsAtTheLimit) {
  const Damaged damaged;
  LoaderOptions options{.batch_size = 4, .workers = 2, .bad_samples = {.skip = true, .limit = 2}};
  Loader loader(damaged.data, options);
  Batch batch;
  for (int step = 0; step < 4; ++step) ASSERT_TRUE(loader.next(batch));
  EXPECT_TRUE(test::names(what_next_throws(loader), {"sample 17", "2", "--bad-samples"}));
  options.bad_samples.limit = -1;  // a hundredth of 32, at least one
  Loader usual(damaged.data, options);
  EXPECT_EQ(usual.options().bad_samples.limit, 1);

  test::MadeUpSet none(20);
  none.before = [](std::int64_t) { throw IoError("made-up: gone"); };
  options.bad_samples.limit = 1000;
  Loader hopeless(none, options);
  EXPECT_TRUE(test::names(what_next_throws(hopeless), {"sample 0", "16"}));
}

TEST(LoaderErrors, ErrorsNotCausedByASampleAreNotSkipped) {
  test::MadeUpSet data(8);
  data.before = [](std::int64_t index) {
    if (index == 6) throw std::bad_alloc();
  };
  for (const int workers : {0, 2}) {
    Loader loader(data, {.batch_size = 4, .workers = workers, .bad_samples = {.skip = true}});
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    EXPECT_THROW(loader.next(batch), std::bad_alloc);
  }
}

TEST(LoaderErrors, HarmlessDefectsAreCounted) {
  const test::TempDir dir;
  const std::string clean = test::jpeg_file(test::photo(24, 24, 3), {});
  for (int i = 0; i < 6; ++i) {
    const bool junk = i == 2 || i == 3;
    test::write_file(dir / fmt::format("photos/a/{}.jpg", i),
                     junk ? std::string(clean).insert(2, "junk") : clean);
  }
  const DecodedDataset data(open_samples(dir / "photos"), {.height = 16, .width = 16});
  for (const int workers : kWorkers) {
    Loader loader(data, {.batch_size = 4, .workers = workers, .epochs = 2});
    for (int epoch = 0; epoch < 2; ++epoch) {
      test::steps_of(loader, epoch);
      EXPECT_EQ(loader.stats().harmless, 2);
      EXPECT_EQ(loader.stats().skipped, 0);
      EXPECT_TRUE(test::names(loader.stats().first_harmless, {"sample 2", "2.jpg", "4", "0xe0"}));
    }
  }
  EXPECT_TRUE(test::names(data.check_sample(3), {"3.jpg", "4", "0xe0"}));
  EXPECT_EQ(data.check_sample(4), "");
}

TEST(Defects, OfAllSamplesAreFoundInOnePass) {
  test::MadeUpSet data(100);
  data.before = [](std::int64_t index) {
    if (index % 40 == 7) throw IoError(fmt::format("{}.img is gone", index));
    if (index == 90) throw std::bad_alloc();
  };
  const auto check = [&](std::int64_t index) {
    const std::string found = index == 90 ? "" : data.check_sample(index);
    return index % 30 == 5 ? fmt::format("{}.img: a note", index) : found;
  };
  for (const int threads : {1, 3}) {
    std::int64_t last = 0;
    const Defects all = find_defects(
        100, check, {.threads = threads, .progress = [&](std::int64_t done) { EXPECT_EQ(done, ++last); }});
    ASSERT_EQ(all.unreadable.size(), 3u);
    EXPECT_EQ(all.unreadable[1].index, 47);
    EXPECT_TRUE(test::names(all.unreadable[1].what, {"47.img"}));
    EXPECT_EQ(all.harmless, 4);
    EXPECT_EQ(all.first_harmless.index, 5);
    EXPECT_EQ(last, 100);
    const Defects share = find_defects(100, check, {.threads = threads, .first = 2, .step = 3});
    EXPECT_EQ(share.unreadable.size(), 1u) << "47";
    EXPECT_EQ(share.harmless, 4);
    EXPECT_THROW(check_all(data, threads), std::bad_alloc) << "no defect of a sample";
  }
  data.before = [](std::int64_t index) {
    if (index == 7 || index == 8) throw IoError(fmt::format("{}\n.img is gone", index));
  };
  const std::string said = test::message_of<UnreadableSamplesError>([&] { check_all(data, 2); });
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  EXPECT_TRUE(test::has_line(said, {"2", "100", "--bad-samples"}));
  EXPECT_TRUE(test::has_line(said, {"8\\n.img"}));
}

TEST(LoaderErrors, AHangingReadIsNamed) {
  test::MadeUpSet data(16);
  test::Gate gate;
  data.before = [&](std::int64_t index) {
    if (index == 6) gate.wait();
  };
  std::atomic<int> finished{0};
  data.label = [&](std::int64_t) {
    ++finished;
    return 0;
  };
  std::vector<std::string> told;
  Loader loader(data, {.batch_size = 4,
                       .workers = 2,
                       .on_warning =
                           [&](const std::string& line) {
                             told.push_back(line);
                             gate.open();
                           },
                       .stuck_after_s = 0.05});
  loader.start_epoch(0);
  // All there is room for but the one: no other read, and no other step, is waited for.
  EXPECT_TRUE(test::becomes_true([&] { return data.reads == 16 && finished == 15; }));
  EXPECT_EQ(test::steps_of(loader, 0).size(), 4u);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(test::names(told[0], {"step 2", "epoch 1", "worker", "sample 6", "made-up/6.img"}));
}

}  // namespace athanor::loader_errors_test
