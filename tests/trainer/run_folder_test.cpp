#include "trainer/checkpoints/run_folder.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/formats/image_folder.h"
#include "data/stratified_split.h"
#include "tests/support/errors.h"
#include "tests/support/resumed_run.h"
#include "tests/support/small_training.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/split_file.h"

// Where a run's files lie, and which run --resume auto goes on with.

namespace athanor::run_folder_test {

namespace fs = std::filesystem;

TEST(RunFolder, EachRunGetsTheNextNumberAndTheLastOneTheLink) {
  const test::TempDir folder;
  const fs::path root = folder / "runs" / "train_digits";
  EXPECT_TRUE(run_folders(root).empty());
  EXPECT_EQ(make_run_folder(root), root / "1");
  EXPECT_EQ(make_run_folder(root), root / "2");
  EXPECT_EQ(fs::read_symlink(root / "latest"), "2");
  // What is none of theirs stays, and counts for nothing; a hole is not filled.
  for (const char* name : {"mine", "007", "-5", "12x"}) fs::create_directory(root / name);
  test::write_file(root / "9", "a file");
  fs::create_directory(root / "8");
  fs::remove(root / "1");
  EXPECT_EQ(make_run_folder(root), root / "10") << "9 is taken by a file";
  EXPECT_EQ(run_folders(root), (std::vector<fs::path>{root / "10", root / "8", root / "2"}));
  EXPECT_EQ(fs::read_symlink(root / "latest"), "10");
}

TEST(RunFolder, RunsThatBeginAtOnceGetOneEach) {
  const test::TempDir folder;
  std::vector<fs::path> made(16);
  {
    std::vector<std::jthread> threads;
    for (fs::path& path : made) threads.emplace_back([&] { path = make_run_folder(folder / "runs"); });
  }
  EXPECT_EQ(std::set<fs::path>(made.begin(), made.end()).size(), made.size());
  EXPECT_TRUE(fs::is_directory(folder / "runs" / "latest" / ""));
}

TEST(RunFolder, WhereNoneCanBeMadeOneLineSaysSo) {
  const test::TempDir folder;
  test::write_file(folder / "file", "");
  const fs::path below = folder / "file" / "runs";
  EXPECT_ERROR(IoError, make_run_folder(below), "--run-dir", below.string(), "none");
}

TEST(SplitFile, FindsWhatARunValidatedOnInChangedData) {
  const test::TempDir folder;
  const fs::path photos = folder / "photos";
  for (const char* name : {"cat", "dog"})
    for (int i = 0; i < 6; ++i) test::write_file(photos / name / fmt::format("{}.jpg", i), name);
  const auto [train, held_out] = stratified_split(std::make_shared<ImageFolder>(photos), 0.5, 1);
  EXPECT_FALSE(find_split(folder.path(), *train)) << "a run of an older version";
  save_split(folder.path(), *train, *held_out);
  const auto held_out_now = [&](const FoundSplit& found) {
    const ImageFolder now(photos);
    std::set<std::string> names;
    for (const std::int64_t i : found.held_out) names.insert(now.where(i));
    return names;
  };
  std::set<std::string> validated;
  for (std::int64_t i = 0; i < held_out->size(); ++i) validated.insert(held_out->where(i));
  FoundSplit found = *find_split(folder.path(), ImageFolder(photos));
  EXPECT_EQ(held_out_now(found), validated);
  EXPECT_TRUE(found.added.empty());
  EXPECT_EQ(found.missing, 0);

  test::write_file(photos / "ant/1.jpg", "new");  // every later index changes
  test::write_file(train->where(0), "replaced");
  fs::rename(held_out->where(0), photos / "dog/9.jpg");
  validated.erase(held_out->where(0));
  found = *find_split(folder.path(), ImageFolder(photos));
  EXPECT_EQ(held_out_now(found), validated);
  EXPECT_EQ(found.added.size(), 3u);
  EXPECT_EQ(found.missing, 1);
}

TEST(RunFolder, ConfigSaysWhatEachFlagWasAndWhy) {
  const test::TempDir folder;
  TrainerConfig config{.program = "train_x"};
  config.command = {"train_x", "--epochs", "3", "--train", "caf\xe9"};  // a path may be no UTF-8
  config.flags = {{"--epochs", "3", "flag"}, {"--lr", "0.1", "default"}};
  write_config(folder.path(), config);
  const auto json = nlohmann::json::parse(test::read_file(folder / "config.json"));
  EXPECT_EQ(json.at("program"), "train_x");
  EXPECT_EQ(json.at("command").at(2), "3");
  EXPECT_EQ(json.at("flags").at("--epochs"), (nlohmann::json{{"value", "3"}, {"from", "flag"}}));
  EXPECT_EQ(json.at("flags").at("--lr").at("from"), "default");
  EXPECT_EQ(json.at("began").get<std::string>().size(), 20u);
}

// A command that is refused, such as the same one again, changes nothing of a run that is there.
TEST(RunFolder, ARefusedRunLeavesAnotherOnesFilesAsTheyAre) {
  const test::TempDir folder;
  TrainerConfig config = test::small_config();
  config.program = "train_x";
  config.run_dir = folder / "run";
  config.flags = {{"--epochs", "3", "default"}};
  test::run(config);
  const auto files = [&] {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(config.run_dir))
      if (entry.is_regular_file()) all[entry.path().string()] = test::read_file(entry.path());
    return all;
  };
  const auto before = files();
  EXPECT_GE(before.size(), 4u);
  config.flags = {{"--epochs", "2", "flag"}};
  config.epochs = 2;
  EXPECT_ERROR(ArgumentError, test::run(config), "--checkpoint-dir", "--resume auto");
  config.resume = "auto";
  config.lr = 0.7;
  EXPECT_ERROR(ArgumentError, test::run(config), "--resume", "--lr");
  EXPECT_TRUE(files() == before);
}

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

/// Runs of a program, each with the folder it has chosen.
class RunsTest : public testing::Test {
 protected:
  TrainerConfig config(const std::string& resume = {}) const {
    TrainerConfig config = test::resume_config();
    config.run_root = folder_ / "runs";
    config.resume = resume;
    return config;
  }
  /// Ends as a process that is killed after a step, where one is given.
  fs::path train(const TrainerConfig& config, std::int64_t killed_after = -1) const {
    test::ResumeNet model;
    Trainer trainer(config);
    test::RecordedRun recorded;
    trainer.add(std::make_unique<test::Recorder>(recorded, [&](Trainer&, const StepInfo& step) {
      if (step.attempted == killed_after) throw Killed();
    }));
    try {
      (void)trainer.fit(model, *synthetic(test::kResumeSpec, 75, 1), *synthetic(test::kResumeSpec, 30, 2));
    } catch (const Killed&) {
    }
    return trainer.config().run_dir;
  }

  test::TempDir folder_;
};

TEST_F(RunsTest, ResumeAutoContinuesTheNewestUnfinishedRun) {
  const fs::path root = folder_ / "runs";
  EXPECT_EQ(train(config()), root / "1");
  const std::string whole = test::read_file(root / "1/model.safetensors");
  EXPECT_EQ(train(config(), 7), root / "2") << "an epoch of five steps, and a checkpoint after it";
  EXPECT_FALSE(fs::exists(root / "2/model.safetensors"));
  TrainerConfig other = config();
  other.lr = 0.1;
  EXPECT_EQ(train(other, 7), root / "3");
  EXPECT_EQ(train(config(), 2), root / "4") << "before its first checkpoint";

  EXPECT_EQ(train(config("auto")), root / "2");
  EXPECT_EQ(test::read_file(root / "2/model.safetensors"), whole) << "as if it had never stopped";
  EXPECT_EQ(train(config("auto")), root / "5") << "1 and 2 are finished, 3 has another --lr, 4 no checkpoint";
  other.resume = "auto";
  EXPECT_EQ(train(other), root / "3");
  std::ifstream metrics(root / "2/metrics.jsonl");
  std::vector<std::string> events;
  for (std::string line; std::getline(metrics, line);)
    events.push_back(nlohmann::json::parse(line).at("event"));
  EXPECT_EQ(events, (std::vector<std::string>{"epoch", "error", "resume", "epoch", "end"}));
}

TEST_F(RunsTest, ARunInProgressIsLeftAlone) {
  const fs::path root = folder_ / "runs";
  (void)train(config(), 7);
  const CheckpointFolder under_way(root / "1/checkpoints");
  EXPECT_EQ(train(config("auto")), root / "2");
}

// Which another process has chosen, but not opened yet.
TEST_F(RunsTest, ARunThatAnotherProcessContinuesIsLeftAlone) {
  const fs::path root = folder_ / "runs";
  (void)train(config(), 7);
  {
    const FolderLock other(root / "1", "--run-dir");
    EXPECT_EQ(train(config("auto")), root / "2");
  }
  EXPECT_EQ(train(config("auto")), root / "1");
}

TEST_F(RunsTest, TwoRunsNeverShareAFolder) {
  TrainerConfig named = test::resume_config();
  named.run_dir = folder_ / "run";
  named.checkpoint_dir = folder_ / "checkpoints";
  {
    const Trainer first(named);
    named.checkpoint_dir = folder_ / "others";
    EXPECT_ERROR(ArgumentError, Trainer{named}, "--run-dir", named.run_dir.string());
    EXPECT_THROW(FolderLock(named.run_dir, "--run-dir"), ArgumentError);
  }
  (void)train(named);
  named.run_dir = named.checkpoint_dir = folder_ / "both";
  (void)train(named);
  EXPECT_TRUE(fs::exists(folder_ / "both/model.safetensors"));
}

/// Samples that are what these numbers say.
struct Numbered final : ImageDataset {
  explicit Numbered(std::vector<std::uint64_t> all) : ids(std::move(all)) {}
  std::int64_t size() const override { return std::ssize(ids); }
  const ImageSpec& spec() const override { return test::kResumeSpec; }
  std::int64_t read(std::int64_t, std::span<std::uint8_t>) const override { return 0; }
  std::uint64_t sample_id(std::int64_t index) const override { return ids[static_cast<std::size_t>(index)]; }
  std::vector<std::uint64_t> ids;
};

TEST(SplitFile, IsFoundInDataThatHasChanged) {
  const test::TempDir folder;
  EXPECT_FALSE(find_split(folder.path(), Numbered({1})));
  save_split(folder.path(), Numbered({1, 2, 3, 3}), Numbered({4, 5, 3}));
  const auto same = find_split(folder.path(), Numbered({1, 2, 3, 3, 3, 4, 5}));
  ASSERT_TRUE(same);
  EXPECT_EQ(same->held_out, (std::vector<std::int64_t>{2, 5, 6})) << "of equal samples any may be held out";
  EXPECT_TRUE(same->added.empty());
  EXPECT_EQ(same->missing, 0);
  const auto changed = find_split(folder.path(), Numbered({9, 4, 3, 3, 3, 3, 1}));
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->held_out, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(changed->added, (std::vector<std::int64_t>{0, 5}));
  EXPECT_EQ(changed->missing, 1);
}

struct WritesNote final : Callback {
  void on_run_dir(Trainer&, const fs::path& run_dir) override { test::write_file(run_dir / "note", "kept"); }
};

TEST_F(RunsTest, AFolderThatIsRemovedIsMadeAgain) {
  for (const auto& [numbered, emptied] : {std::pair{true, false}, {false, false}, {false, true}}) {
    fs::remove_all(folder_ / "runs");
    TrainerConfig config = test::resume_config();
    config.program = "train_x";
    config.flags = {{"--epochs", "3", "default"}};
    config.log_csv = config.log_tensorboard = true;
    (numbered ? config.run_root : config.run_dir) = folder_ / "runs";
    Trainer trainer(config);
    trainer.add(std::make_unique<WritesNote>());
    test::ResumeNet model;
    const test::RecordedRun run = test::record(
        trainer, model, *synthetic(test::kResumeSpec, 75, 1), *synthetic(test::kResumeSpec, 30, 2),
        [&, emptied = emptied](Trainer&, const StepInfo& step) {
          if (step.attempted != 7) return;
          for (const auto& part : fs::directory_iterator(folder_ / "runs")) fs::remove_all(part);
          if (!emptied) fs::remove(folder_ / "runs");
        });
    const fs::path made = trainer.config().run_dir;
    EXPECT_EQ(run.report.model, made / "model.safetensors");
    for (const char* name : {"model.safetensors", "config.json", "metrics.jsonl", "note"})
      EXPECT_TRUE(fs::exists(made / name)) << name;
    EXPECT_FALSE(fs::is_empty(made / "checkpoints"));
    EXPECT_TRUE(test::read_file(made / "metrics.csv").starts_with("session,event,"));
    for (const auto& entry : fs::directory_iterator(made)) {
      if (entry.path().extension() != ".athanor") continue;
      const std::string events = test::read_file(entry.path());
      EXPECT_NE(events.find("brain.Event:2"), events.npos);  // binary: its neighbours may be letters
    }
    EXPECT_EQ(fs::exists(folder_ / "runs/latest/model.safetensors"), numbered);
    EXPECT_EQ(std::ranges::count_if(run.notes, [&](auto& note) { return test::holds(note, made.string()); }),
              1);
  }
}

/// Removes the checkpoints while the second one is being made.
class Remover final : public Callback {
 public:
  explicit Remover(fs::path folder) : folder_(std::move(folder)) {}
  bool reads_weights() const override { return false; }
  std::string state_name() const override { return "remover"; }
  StateDict state_dict(const Trainer&) const override {
    if (++saves_ == 2) fs::remove_all(folder_);
    return {};
  }

 private:
  fs::path folder_;
  mutable int saves_ = 0;
};

TEST_F(RunsTest, ACheckpointIsWrittenAgainIfItsFolderIsRemovedMeanwhile) {
  TrainerConfig config = test::resume_config();
  config.checkpoint_dir = folder_ / "checkpoints";
  Trainer trainer(config);
  trainer.add(std::make_unique<Remover>(config.checkpoint_dir));
  test::ResumeNet model;
  (void)test::record(trainer, model, *synthetic(test::kResumeSpec, 75, 1),
                     *synthetic(test::kResumeSpec, 30, 2));
  EXPECT_FALSE(fs::is_empty(config.checkpoint_dir));
}

TEST_F(RunsTest, WithoutALinkToTheLatestANoteNamesTheFolder) {
  const fs::path root = folder_ / "runs";
  test::write_file(root / "latest/file", "so that no link can have this name");
  Trainer trainer(config());
  test::ResumeNet model;
  const test::RecordedRun run = test::record(trainer, model, *synthetic(test::kResumeSpec, 75, 1),
                                             *synthetic(test::kResumeSpec, 30, 2));
  ASSERT_FALSE(run.notes.empty());
  EXPECT_TRUE(test::names(run.notes[0], {(root / "latest").string(), (root / "1").string()}));
}

TEST_F(RunsTest, NamedFoldersAndFastDevRunMakeNone) {
  TrainerConfig fast = config();
  fast.fast_dev_run = 1;
  EXPECT_EQ(train(fast), "");
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
  TrainerConfig named = config();
  named.checkpoint_dir = folder_ / "checkpoints";
  named.metrics = folder_ / "metrics.jsonl";
  EXPECT_EQ(train(named), folder_ / "runs/1");
  EXPECT_TRUE(fs::exists(folder_ / "runs/1/model.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "runs/1/checkpoints"));
  EXPECT_FALSE(fs::exists(folder_ / "runs/1/metrics.jsonl"));
  EXPECT_TRUE(fs::exists(folder_ / "metrics.jsonl"));
  EXPECT_TRUE(fs::exists(folder_ / "checkpoints/step-00000010.safetensors"));
}

// `latest` is what people type next: it must not come to point to a folder in which nothing is.
TEST_F(RunsTest, ARefusedRunLeavesNoFolder) {
  const fs::path root = folder_ / "runs";
  EXPECT_ERROR(ArgumentError, train(config((folder_ / "none.safetensors").string())), "--resume",
               "none.safetensors");
  EXPECT_FALSE(fs::is_symlink(root / "latest"));
  EXPECT_TRUE(run_folders(root).empty());
  (void)train(config());
  test::write_file(folder_ / "damaged.safetensors", "no checkpoint");
  EXPECT_ERROR(IoError, train(config((folder_ / "damaged.safetensors").string())), "checkpoint",
               "damaged.safetensors");
  EXPECT_EQ(run_folders(root), std::vector<fs::path>{root / "1"});
  EXPECT_EQ(fs::read_symlink(root / "latest"), "1");
  EXPECT_EQ(train(config()), root / "2");
}

TEST(RunFolder, OneWithContentsIsNotRemoved) {
  const test::TempDir folder;
  const fs::path root = folder / "runs", made = make_run_folder(root);
  fs::create_directories(made / "samples");
  test::write_file(made / "samples/notes", "mine");
  remove_unused_run_folder(made);
  EXPECT_TRUE(fs::exists(made / "samples/notes"));
  fs::resize_file(made / "samples/notes", 0);
  remove_unused_run_folder(made);
  EXPECT_FALSE(fs::exists(made));
  remove_unused_run_folder(made);  // as if another had done it
}

}  // namespace athanor::run_folder_test
