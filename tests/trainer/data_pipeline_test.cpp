// A Trainer and its loaders: where the time goes, what is said about it, and how it ends.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "autograd/shape.h"
#include "data/defects.h"
#include "data/formats/open.h"
#include "data/in_memory.h"
#include "data/synthetic.h"
#include "dist/transports/thread_transport.h"
#include "nn/linear.h"
#include "tensor/io/regular_file.h"
#include "tests/support/errors.h"
#include "tests/support/made_up_set.h"
#include "tests/support/recorded_run.h"
#include "tests/support/samples.h"
#include "tests/support/temp_dir.h"
#include "tests/support/undisturbed.h"
#include "trainer/bottleneck.h"
#include "trainer/loggers/progress.h"
#include "trainer/trainer.h"

namespace athanor::data_pipeline_test {

constexpr ImageSpec kSpec{4, 4, 1, 5};

class Line final : public nn::Module {
 public:
  Line() {
    register_module("out", out);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override {
    std::this_thread::sleep_for(takes);
    return out(flatten(x));
  }
  nn::Linear out{16, 5};
  std::chrono::milliseconds takes{0};
};

TrainerConfig small_config() {
  TrainerConfig config;
  config.epochs = 2;
  config.batch_size = 10;
  config.lr = 0.1;
  return config;
}

test::RecordedRun train(const TrainerConfig& config, const Dataset& data, const Dataset& held_out) {
  Trainer trainer(config);
  Line model;
  return test::record(trainer, model, data, held_out);
}

TEST(DataPipeline, ReadsThatWereTriedAgainAreANoteOfTheEpoch) {
  const auto data = synthetic(kSpec, 40, 1);
  const auto notes = [&] {
    std::vector<std::string> all;
    for (const EpochReport& epoch : train(small_config(), *data, *data).epochs)
      for (const std::string& note : epoch.notes)
        if (test::holds(note, std::strerror(ESTALE))) all.push_back(note);
    return all;
  };
  (void)take_repeated_reads();  // of other tests
  int tries = 0;
  for (int i = 0; i < 2; ++i) {
    errno = ESTALE;
    ASSERT_TRUE(try_again(tries, [](std::chrono::milliseconds) {}));
  }
  const std::vector<std::string> told = notes();
  ASSERT_EQ(told.size(), 1u) << "in the first of two epochs";
  EXPECT_TRUE(test::names(told[0], {"2"}));
}

std::int64_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST(DataPipeline, TwoSourcesWithEqualAccountsAreToldBoth) {
  TrainerConfig config = small_config();
  config.strict_data = true;
  const auto first = std::make_shared<test::MadeUpSet>(20, kSpec);
  const auto second = std::make_shared<test::MadeUpSet>(20, kSpec);
  first->account = second->account = {{"files of another type", 1, {"cat/notes.txt"}}};
  EXPECT_ERROR(ArgumentError, train(config, *first, *second), "--strict-data", "2");
  const auto parts = split(first, 0.5);
  EXPECT_ERROR(ArgumentError, train(config, *parts.first, *parts.second), "--strict-data", "1");
}

TEST(DataPipeline, ImagesInBothSetsAreANoteAndRefusedOfStrictData) {
  const test::TempDir dir;
  const auto stored = [&](const char* name, std::uint64_t first_seed) {
    const auto writer = create_samples(dir / name, {.classes = 5});
    for (std::uint64_t i = 0; i < 20; ++i)
      writer->add(test::raw_sample(4, 4, 1, static_cast<std::int64_t>(i % 5), first_seed + i).view());
    writer->finish();
    return open_samples(dir / name);
  };
  const auto data = stored("train.athp", 0), held_out = stored("val.athp", 19), others = stored("b.athp", 20);
  TrainerConfig config = small_config();
  config.metrics = dir / "metrics.jsonl";
  const test::RecordedRun run = train(config, *data, *held_out);
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_TRUE(test::names(run.notes[0], {"1", "20", held_out->where(0), data->where(19)}));
  EXPECT_TRUE(test::has_line(test::read_file(config.metrics), {"note", held_out->where(0)}));
  config.metrics.clear();
  config.strict_data = true;
  EXPECT_TRUE(train(config, *data, *others).notes.empty());
  EXPECT_ERROR(ArgumentError, train(config, *data, *held_out), "--strict-data", "1", held_out->where(0));
  dist::run_ranks(2, [&](dist::Transport& transport) {
    Trainer trainer(config, &transport);
    Line model;
    EXPECT_ERROR(ArgumentError, trainer.fit(model, *data, *held_out), "--strict-data", held_out->where(0));
  });
}

TEST(DataPipeline, WeightsAreTheSameHoweverSamplesCome) {
  const test::MadeUpSet data(95, kSpec), held_out(33, kSpec);
  TrainerConfig config = small_config();
  config.deterministic = true;
  config.workers = 0;
  const test::RecordedRun alone = train(config, data, held_out);
  for (const int workers : {1, 3}) {
    config.workers = workers;
    config.prefetch = workers;
    const test::RecordedRun other = train(config, data, held_out);
    EXPECT_EQ(other.report.weights_hash, alone.report.weights_hash);
    EXPECT_EQ(other.report.test_loss, alone.report.test_loss);
  }
  config.order = Order::page_random;
  EXPECT_NE(train(config, data, held_out).report.weights_hash, alone.report.weights_hash);
  // The device's own copy of a set in memory.
  const auto resident = synthetic(kSpec, 95), resident_test = synthetic(kSpec, 33, 1);
  config = small_config();
  const test::RecordedRun usual = train(config, *resident, *resident_test);
  config.data_on_device = true;
  EXPECT_EQ(train(config, *resident, *resident_test).report.weights_hash, usual.report.weights_hash);
}

TEST(DataPipeline, ThreadsEndWithTheTraining) {
  const test::MadeUpSet held_out(20, kSpec);
  TrainerConfig config = small_config();
  config.workers = 3;
  config.threads = 1;
  Trainer trainer(config);
  Line model;
  const std::int64_t before = threads_of_this_process();
  {
    const test::MadeUpSet data(40, kSpec);
    trainer.fit(model, data, held_out);
    EXPECT_TRUE(test::becomes_true([&] { return threads_of_this_process() <= before; }));
  }
  test::MadeUpSet broken(40, kSpec);
  broken.before = [](std::int64_t index) {
    if (index == 33) throw IoError("made-up: gone");
  };
  EXPECT_THROW(trainer.fit(model, broken, held_out), IoError);
  EXPECT_TRUE(test::becomes_true([&] { return threads_of_this_process() <= before; }));
}

TEST(DataPipeline, CtrlCEndsItAfterTheStep) {
  test::MadeUpSet data(4000, kSpec), held_out(20, kSpec);
  std::atomic<int> reads{0};
  data.before = [&](std::int64_t) {
    if (++reads == 300) kill(getpid(), SIGINT);  // the loader's threads leave it to others
  };
  for (const int workers : {0, 2}) {
    TrainerConfig config = small_config();
    config.workers = workers;
    reads = -4000;  // measuring the pixels reads, too
    const test::RecordedRun outcome = train(config, data, held_out);
    EXPECT_EQ(outcome.report.stopped_by, StoppedBy::signal);
    EXPECT_EQ(outcome.report.signal, SIGINT);
    EXPECT_GT(outcome.report.steps.applied, 0);
    EXPECT_LT(outcome.report.steps.applied, 100);
  }
}

// What the data set takes is what the data is said to have taken, whatever else the machine does.
testing::AssertionResult a_data_stall_counts_as_data_time() {
  using Clock = std::chrono::steady_clock;
  test::MadeUpSet data(400, kSpec);
  const test::MadeUpSet held_out(20, kSpec);
  struct {
    int row = 0;
    Clock::time_point began;  // a batch of 10
    double seconds = 0;
  } stalled;
  data.before = [&](std::int64_t) {
    if (stalled.row != 0) return;
    stalled.began = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  data.label = [&](std::int64_t) {  // the end of a read
    stalled.row = (stalled.row + 1) % 10;
    if (stalled.row == 0)
      stalled.seconds += std::chrono::duration<double>(Clock::now() - stalled.began).count();
    return 0;
  };
  class Begin final : public Callback {
   public:
    explicit Begin(std::function<void()> reset) : reset_(std::move(reset)) {}
    void on_fit_begin(Trainer&, const FitInfo&) override { reset_(); }  // the pixels were measured
   private:
    std::function<void()> reset_;
  };
  TrainerConfig config = small_config();
  config.workers = 0;
  config.threads = 1;
  Trainer trainer(config);
  trainer.add(std::make_unique<Begin>([&] { stalled = {}; }));
  Line model;
  const test::RecordedRun run = test::record(trainer, model, data, held_out);
  double data_s = 0, step_s = 0;
  for (const EpochReport& epoch : run.epochs) {
    data_s += epoch.times.data;
    step_s += epoch.times.step();
    EXPECT_GE(epoch.other_s, 0);
    if (epoch.bottleneck.bound_by != "data") return testing::AssertionFailure() << epoch.bottleneck.line;
    EXPECT_TRUE(test::names(epoch.bottleneck.line, {"--workers auto"}));
  }
  EXPECT_GE(stalled.seconds, 0.4);
  EXPECT_GE(data_s, stalled.seconds);
  if (data_s <= 1.05 * stalled.seconds) return testing::AssertionSuccess();
  return testing::AssertionFailure() << data_s << " s instead of " << stalled.seconds << ", of steps of "
                                     << step_s << " s";
}

TEST(DataPipeline, ADataStallCountsAsDataTime) {
  EXPECT_TRUE(test::undisturbed(a_data_stall_counts_as_data_time));
}

TEST(DataPipeline, ImagesOfALastSmallerBatchAreTold) {
  const test::MadeUpSet held_out(20, kSpec);
  TrainerConfig config = small_config();
  const test::RecordedRun some = train(config, test::MadeUpSet(25, kSpec), held_out);
  ASSERT_EQ(some.notes.size(), 1u);
  EXPECT_TRUE(test::names(some.notes[0], {"5", "25", "10", "--batch-size"}));
  EXPECT_TRUE(train(config, test::MadeUpSet(30, kSpec), held_out).notes.empty());
  EXPECT_TRUE(train(config, test::MadeUpSet(7, kSpec), held_out).notes.empty())
      << "the only batch is trained";
  config.limit_train_batches = {.count = 1};
  EXPECT_TRUE(train(config, test::MadeUpSet(25, kSpec), held_out).notes.empty()) << "as its user wants it";
}

TEST(DataPipeline, BadSamplesAreCountedOnceAnEpoch) {
  test::MadeUpSet data(200, kSpec);
  const test::MadeUpSet held_out(20, kSpec);
  data.before = [](std::int64_t index) {
    if (index == 7 || index == 90) throw IoError("made-up: gone");
  };
  TrainerConfig config = small_config();
  EXPECT_THROW(train(config, data, held_out), IoError);
  config.bad_samples = {.skip = true, .limit = 2};
  const test::TempDir dir;
  config.metrics = dir / "metrics.jsonl";
  const test::RecordedRun outcome = train(config, data, held_out);
  ASSERT_EQ(outcome.epochs.size(), 2u);
  for (const EpochReport& epoch : outcome.epochs) {
    EXPECT_EQ(epoch.loader.skipped, 2);
    ASSERT_EQ(epoch.notes.size(), 1u);
    EXPECT_TRUE(test::names(epoch.notes[0], {"2", "training", "made-up: gone"}));
  }
  EXPECT_TRUE(outcome.notes.empty()) << "each is told once, at the end of the epoch";
  std::istringstream file(test::read_file(config.metrics));
  int epochs = 0, notes = 0;
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line["event"] == "note") {
      ++notes;
      EXPECT_TRUE(test::names(line["text"].get<std::string>(), {"2", "training", "made-up: gone"}));
    }
    if (line["event"] != "epoch") continue;
    ++epochs;
    EXPECT_EQ(line["bad_samples"], 2);
    EXPECT_TRUE(line["verdict"].is_string());
    for (const char* part :
         {"data", "copy", "forward", "backward", "communication", "update", "device", "other"}) {
      EXPECT_TRUE(line["times_s"].at(part).is_number()) << part;
      EXPECT_GE(line["times_s"].at(part).get<double>(), 0) << part;
    }
  }
  EXPECT_EQ(epochs, 2);
  EXPECT_EQ(notes, 2);
}

TEST(DataPipeline, UnreadableSamplesAreListedBeforeTheFirstStep) {
  test::MadeUpSet data(200, kSpec), held_out(20, kSpec);
  TrainerConfig config = small_config();
  config.bad_samples = {.list = true};
  EXPECT_EQ(train(config, data, held_out).epochs.size(), 2u);
  data.before = [](std::int64_t index) {
    if (index == 7 || index == 90) throw IoError(fmt::format("train/{} is gone", index));
  };
  held_out.before = [](std::int64_t index) {
    if (index == 3) throw IoError("val/3 is gone");
  };
  data.reads = 0;
  std::string said = test::message_of<UnreadableSamplesError>([&] { train(config, data, held_out); });
  EXPECT_EQ(data.reads, 200) << "each once, and none for a step";
  const auto lists_all = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n') == 3 && test::has_line(text, {"3", "220"}) &&
           test::has_line(text, {"train/7"}) && test::has_line(text, {"train/90"}) &&
           test::has_line(text, {"val/3"});
  };
  EXPECT_TRUE(lists_all(said)) << said;
  dist::run_ranks(2, [&](dist::Transport& transport) {
    Trainer trainer(config, &transport);
    Line model;
    const std::string mine =
        test::message_of<UnreadableSamplesError>([&] { trainer.fit(model, data, held_out); });
    EXPECT_TRUE(lists_all(mine)) << "rank " << transport.rank() << ": " << mine;
  });
}

/// Images of which some have a defect that changes no pixel.
struct Warned : FieldDataset {
  Warned() : FieldDataset(kSpec, {}) {}
  std::int64_t size() const override { return 40; }
  void read_fields(std::int64_t index, std::int64_t, SampleRow& row) const override {
    std::fill(row.image().begin(), row.image().end(), static_cast<std::uint8_t>(index));
    row.set_label(index % 5);
    if (index == 4 || index == 9) row.set_warning("a byte too many");
  }
  std::string where(std::int64_t index) const override { return fmt::format("{}.img", index); }
};

TEST(DataPipeline, HarmlessDefectsAreToldOnce) {
  const Warned data;
  const test::MadeUpSet held_out(20, kSpec);
  const test::RecordedRun outcome = train(small_config(), data, held_out);
  ASSERT_EQ(outcome.epochs.size(), 2u);
  ASSERT_EQ(outcome.epochs[0].notes.size(), 1u);
  EXPECT_TRUE(test::names(outcome.epochs[0].notes[0], {"2", "a byte too many"}));
  EXPECT_TRUE(outcome.epochs[1].notes.empty());
}

TEST(DataPipeline, ProgressNamesTheDataSourceAndItsBottleneck) {
  const auto said = [](TrainerConfig config, const Dataset& data,
                       std::chrono::milliseconds takes = std::chrono::milliseconds(0)) {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* out = open_memstream(&text, &size);
    {
      Line model;
      model.takes = takes;
      Trainer trainer(config);
      trainer.add(std::make_unique<Progress>(out, false));
      trainer.fit(model, data, data);
    }
    std::fclose(out);
    const std::string all(text, size);
    std::free(text);  // NOLINT: open_memstream's contract
    return all;
  };
  test::MadeUpSet slow(40, kSpec);
  slow.before = [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  TrainerConfig config = small_config();
  config.workers = 2;
  const auto says = [&](const Dataset& data, std::initializer_list<const char*> values,
                        std::chrono::milliseconds takes = std::chrono::milliseconds(0)) {
    return test::undisturbed([&]() -> testing::AssertionResult {
      const std::string text = said(config, data, takes);
      for (const char* value : values)
        if (!test::holds(text, value)) return testing::AssertionFailure() << value << " in: " << text;
      return testing::AssertionSuccess();
    });
  };
  EXPECT_TRUE(says(slow, {"2 threads", "data:", "2 workers"}));
  config.workers = 0;
  EXPECT_TRUE(test::holds(said(config, slow), "training thread"));
  config.workers = LoaderOptions::kAuto;
  // A forward pass that is far longer than a copy from memory.
  EXPECT_TRUE(says(*synthetic(kSpec, 40), {"memory", "compute:", "forward"}, std::chrono::milliseconds(20)));
}

// The verdict, by the table.

TEST(Bottleneck, IsNamedByTheTable) {
  const Device gpu{DeviceType::cuda, 0};
  struct Case {
    const char* what;
    Times times;
    RunFacts run;
    const char* bound_by;
    std::vector<std::string> figures;
    std::string advice;  ///< the flag it proposes; empty where none
  };
  const LoaderStats busy{.busy = 0.97, .workers = 4, .threads = 16},
      idle{.busy = 0.5, .workers = 4, .threads = 4};
  const LoaderStats one{.busy = 1.002, .workers = 1, .threads = 1};
  const Times starved{.data = 38, .copy = 2, .forward = 20, .backward = 30, .update = 10};
  const Times computing{.data = 1, .copy = 4, .forward = 30, .backward = 55, .update = 10};
  const std::vector<Case> cases{
      {"busy threads",
       starved,
       {.loader = busy, .cores = 8},
       "data",
       {"38 %", "4 workers", "97 %", "athanor pack"},
       "--workers 6"},
      {"no core left",
       starved,
       {.loader = busy, .cores = 4},
       "data",
       {"38 %", "4 workers", "97 %", "4 cores", "athanor pack"},
       ""},
      {"one thread",
       starved,
       {.loader = one, .cores = 2},
       "data",
       {"38 %", "1 worker", "100 %", "athanor pack"},
       "--workers 2"},
      {"threads that wait, too",
       starved,
       {.loader = idle, .prefetch = 4, .cores = 8},
       "data",
       {"38 %", "4 workers", "50 %"},
       "--prefetch 8"},
      {"no threads", starved, {}, "data", {"38 %"}, "--workers auto"},
      {"in memory", starved, {.device = gpu, .resident = true}, "data", {"38 %"}, "--data-on-device"},
      {"threads for nothing",
       starved,
       {.resident = true, .loader = idle},
       "data",
       {"38 %"},
       "--workers auto"},
      {"compute",
       computing,
       {.loader = idle, .cores = 1},
       "compute",
       {"forward 30 %", "backward 55 %", "optimizer 10 %", "copies 4 %", "data 1 %"},
       ""},
      {"compute with idle cores",
       computing,
       {.cores = 4, .per_step_s = 0.1},
       "compute",
       {"forward 30 %", "backward 55 %", "optimizer 10 %", "copies 4 %", "data 1 %"},
       "--threads 4"},
      {"several ranks",
       {.data = 1, .copy = 0.1, .forward = 31, .backward = 53.9, .communication = 13, .update = 1},
       {},
       "compute",
       {"forward 31 %", "backward 54 %", "communication 13 %", "optimizer 1 %", "data 1 %"},
       ""},
      {"a GPU that is waited for",
       {.data = 4, .forward = 20, .backward = 15, .communication = 19, .update = 15, .device = 27},
       {.device = gpu},
       "compute",
       {"forward 20 %", "backward 15 %", "communication 19 %", "optimizer 15 %", "device 27 %", "data 4 %"},
       ""},
      {"a GPU at work",
       {.data = 1, .forward = 10, .backward = 10, .update = 5, .device = 74},
       {.device = gpu},
       "device",
       {"74 %"},
       "--precision bf16"},
      {"a GPU that waits", computing, {.device = gpu}, "host", {"95 %"}, "--batch-size"},
      {"copies",
       {.data = 5, .copy = 50, .forward = 45},
       {.device = gpu, .resident = true},
       "copy",
       {"50 %"},
       "--data-on-device"},
      {"other ranks", {.forward = 50, .communication = 50}, {}, "communication", {"50 %"}, "--batch-size"},
      {"nothing was measured",
       {},
       {},
       "compute",
       {"forward 0 %", "backward 0 %", "optimizer 0 %", "data 0 %"},
       ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const Bottleneck found = find_bottleneck(c.times, c.run);
    EXPECT_EQ(found.bound_by, c.bound_by);
    EXPECT_TRUE(test::names(found.line, c.figures));
    EXPECT_TRUE(test::names(found.line, {c.bound_by, c.advice}));
    EXPECT_EQ(found.line.find("--") != std::string::npos, !c.advice.empty()) << found.line;
  }
}

}  // namespace athanor::data_pipeline_test
