#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/in_memory.h"
#include "data/synthetic.h"
#include "dist/transports/thread_transport.h"
#include "optim/adam.h"
#include "tests/support/errors.h"
#include "tests/support/resumed_run.h"
#include "tests/support/small_training.h"
#include "tests/support/temp_dir.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/flags/detail/settings_table.h"

namespace athanor::resume_files_test {

using namespace test;

using ResumeFiles = ResumeTest;

// Files ----------------------------------------------------------------------------------------------------

TEST_F(ResumeFiles, FallsBackWhereTheNewestFileIsDamagedAndSaysSo) {
  const RecordedRun straight = train(test::resume_config());
  const TrainerConfig config = saving(test::resume_config(), 2);
  train(config, [](Trainer&, const StepInfo& step) {
    if (step.attempted == 6) std::raise(SIGINT);
  });
  std::string bytes = test::read_file(file(6));
  bytes[bytes.size() - 7] ^= 1;
  test::write_file(file(6), bytes);
  const RecordedRun resumed = train(from(config, "auto"));
  EXPECT_EQ(resumed.steps.size(), 6u);  // from step 4
  EXPECT_TRUE(has_note(resumed, {"checkpoint", file(6).string(), "checksum"}));
  EXPECT_TRUE(has_note(resumed, {file(4).string(), "4 of 10 steps"}));
  expect_same_end(resumed, straight);
  EXPECT_NO_THROW(load_checkpoint(file(6)));  // written anew on the way
}

TEST_F(ResumeFiles, AutoStartsFreshAndSaysSo) {
  const RecordedRun straight = train(test::resume_config());
  const TrainerConfig config = from(saving(test::resume_config(), 0), "auto");
  const RecordedRun fresh = train(config);
  ASSERT_EQ(fresh.notes.size(), 2u) << "and one about a last, smaller batch";
  EXPECT_TRUE(names(fresh.notes[0], {"--resume auto", folder().string()}));
  expect_same_end(fresh, straight);
  for (const auto& entry : std::filesystem::directory_iterator(folder())) test::write_file(entry.path(), "x");
  const RecordedRun again = train(config);
  EXPECT_EQ(again.notes.size(), 4u);
  EXPECT_TRUE(has_note(again, {"--resume auto", folder().string()}));
  expect_same_end(again, straight);
}

TEST_F(ResumeFiles, AFolderWithAnotherRunInItIsRefused) {
  const TrainerConfig config = saving(test::resume_config(), 4);
  train(config);
  EXPECT_ERROR(ArgumentError, train(config), "--checkpoint-dir", folder().string(), "step 10",
               "--resume auto");
  EXPECT_ERROR(ArgumentError, train(from(config, file(4).string())), "--resume", file(4).string(),
               "--checkpoint-dir", file(10).string());
  EXPECT_NO_THROW(train(from(config, file(10).string())));
  EXPECT_EQ(files(), 3u);
}

TEST_F(ResumeFiles, ATrialRunLeavesNothingBehind) {
  TrainerConfig config = saving(test::resume_config(), 1);
  config.fast_dev_run = 1;
  train(config);
  EXPECT_EQ(files(), 0u);
}

TEST_F(ResumeFiles, SavingIsAllowedWhereWaitingIsNot) {
  TrainerConfig config = saving(test::resume_config(), 1);
  config.forbid_sync = true;
  EXPECT_NO_THROW(train(config));
  EXPECT_GT(train(from(config, "auto")).report.host_syncs, 0);
}

// Refusals -------------------------------------------------------------------------------------------------

TEST_F(ResumeFiles, EveryEntryIsNeededAndNamed) {
  train(saving(test::resume_config(), 0));
  const StateDict whole = load_checkpoint(file(10));
  const std::filesystem::path broken = dir_ / "broken.safetensors";
  const TrainerConfig config = from(test::resume_config(), broken.string());
  const auto refusal = [&](const StateDict& state) {
    save_checkpoint(broken, state);
    ResumeNet model;
    std::vector<std::vector<double>> before;
    for (const Parameter& p : model.parameters()) before.push_back(p.tensor.detach().to_vector());
    const std::string said = message_of([&] { train(config, model); });
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(model.parameters()[i].tensor.detach().to_vector(), before[i]) << "weights were written";
    }
    return said;
  };
  ASSERT_GT(whole.size(), 80u);
  // Without a setting that has its default, a checkpoint is as those of older versions are.
  std::set<std::string> may_miss;
  std::map<std::string, std::string> flags;  // of settings
  for (const detail::SettingGroup& group : detail::settings_table()) {
    for (const detail::SettingRow& row : group.rows) {
      if (row.same == detail::Same::run && row.compared_value(config) == row.compared_value({}))
        may_miss.insert("settings." + row.key());
      flags["settings." + row.key()] = row.name();
    }
  }
  int missed = 0;
  for (const std::string& missing : whole.names()) {
    if (may_miss.contains(missing)) continue;
    missed += missing.starts_with("settings.");
    StateDict state;
    for (const StateDict::Entry& entry : whole) {
      if (entry.name != missing) state.set(entry.name, entry.value);
    }
    const std::string said = refusal(state), last = missing.substr(missing.rfind('.') + 1);
    const std::string& called = flags.contains(missing) ? flags[missing] : last;
    EXPECT_TRUE(names(said, {"--resume", broken.string(), last}) ||
                names(said, {"--resume", broken.string(), called}));
  }
  EXPECT_GT(missed, 10) << "settings without their default, and what the data and the optimizer bring";
  for (const char* extra :
       {"model.fc.weight", "optimizer.momentum.fc", "run.luck", "step.luck", "settings.luck",
        "callbacks.early_stopping_val_loss.luck", "callbacks.other.value", "luck"}) {
    StateDict state = whole;
    state.set(extra, std::int64_t{1});
    const std::string last = std::string(extra).substr(std::string(extra).rfind('.') + 1);
    EXPECT_TRUE(names(refusal(state), {"--resume", broken.string(), last}));
  }
  // Of another kind, shape, dtype or range.
  const auto changed = [&](const std::string& name, const StateDict::Value& value) {
    StateDict state;
    for (const StateDict::Entry& entry : whole)
      state.set(entry.name, entry.name == name ? value : entry.value);
    return refusal(state);
  };
  EXPECT_TRUE(names(changed("settings.version", std::string("1")),
                    {"--resume", "version 2", "version 1", "--pretrained FILE"}));
  EXPECT_TRUE(names(changed("run.epoch", 1.0), {"--resume", "state_dict", "'epoch'"}));
  EXPECT_TRUE(names(changed("run.epoch", std::int64_t{-1}), {"--resume", "state_dict", "0", "-1"}));
  EXPECT_TRUE(names(changed("run.epoch", std::int64_t{3}), {"--resume", "epoch", "2", "3"}));
  EXPECT_TRUE(names(changed("run.epoch_samples", std::int64_t{7}), {"--resume", "7"}));
  EXPECT_TRUE(names(changed("run.ended_by", std::string("x")), {"--resume", "'ended_by'", "'x'"}));
  for (const double seconds : {std::nan(""), -1.0, 1e300})
    EXPECT_TRUE(names(changed("run.elapsed_s", seconds), {"--resume", "'elapsed_s'"}));
  EXPECT_TRUE(names(changed("run.validated", std::int64_t{2}), {"--resume", "'validated'", "0", "1", "2"}));
  EXPECT_TRUE(
      names(changed("step.growth_counter", std::int64_t{1} << 40), {"--resume", "'growth_counter'", "32"}));
  EXPECT_TRUE(
      names(changed("model.norm.weight", Tensor::zeros({5})), {"--resume", "norm.weight", "[6]", "[5]"}));
  EXPECT_TRUE(names(changed("model.norm.weight", Tensor::zeros({6}, {DType::f64, kCpu})),
                    {"--resume", "norm.weight", "f64"}));
}

// Each row of the table of settings is compared as the flags' tests say; here, what a user reads of it.
TEST_F(ResumeFiles, OtherSettingsAreNamedAsTheUserKnowsThem) {
  train(saving(test::resume_config(), 0));
  struct Case {
    std::vector<std::string> values;
    std::function<void(TrainerConfig&)> change;
  };
  const std::vector<Case> cases{
      {{"--seed", "1", "0"}, [](auto& c) { c.seed = 1; }},
      {{"--sync-bn is given and was not given"}, [](auto& c) { c.sync_bn = true; }},
      {{"--clip-norm is 1 and was not given"}, [](auto& c) { c.clip_norm = 1; }},
      {{"--loss-scale", "dynamic"}, [](auto& c) { c.loss_scaling = LossScaling{}; }},
      {{"--early-stop is not given and was val_loss:3"}, [](auto& c) { c.early_stop.reset(); }},
      {{"--early-stop", "val_accuracy:3", "val_loss:3"},
       [](auto& c) { c.early_stop->metric = "val_accuracy"; }},
      {{"--decay", "all", "matrices"}, [](auto& c) { c.decay = Decay::all; }},
      {{"--augment", "crop:1:reflect,flip", "crop:1,flip"},
       [](auto& c) { c.augment.padding = Padding::reflect; }},
      {{"--model", "other"}, [](auto& c) { c.model = "other"; }},
      {{"learning rate", "'0.2 0.2 0.2 0.2 0.2'"},
       [](auto& c) { c.schedule = [](double lr, std::int64_t) { return schedules::constant(lr); }; }},
      {{"--optimizer", "adam", "sgd"},
       [](auto& c) { c.optimizer = [](ParameterArena& arena) { return std::make_unique<Adam>(arena); }; }},
      {{"--batch-size", "16", "8"}, [](auto& c) { c.batch_size = 16; }},
      {{"--epochs", "1", "2"}, [](auto& c) { c.epochs = 1; }},
      {{"--max-steps", "7", "10"}, [](auto& c) { c.max_steps = 7; }},
      {{"--lr", "0.1", "0.2", "--pretrained", "--checkpoint-dir"}, [](auto& c) { c.lr = 0.1; }},
      {{"--seed", "1", "0", "--epochs", "2"}, [](auto& c) { c.seed = c.epochs = 1; }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.values[0]);
    TrainerConfig config = from(test::resume_config(), file(10).string());
    c.change(config);
    const std::string message = message_of([&] { train(config); });
    EXPECT_TRUE(names(message, {"--resume", file(10).string()}));
    EXPECT_TRUE(names(message, c.values));
    EXPECT_EQ(message.find("schedule_steps"), std::string::npos) << message;
    // What follows from another flag is not said beside it: the rates.
    const bool of_rates = c.values[0] == "learning rate";
    EXPECT_EQ(message.find("at five steps") != std::string::npos, of_rates) << message;
  }
  // Other data, of the same size.
  const auto data = synthetic(test::kResumeSpec, 75, 9), held_out = synthetic(test::kResumeSpec, 31, 2);
  const TrainerConfig config = from(test::resume_config(), file(10).string());
  Trainer trainer(config);
  ResumeNet model;
  EXPECT_ERROR(ArgumentError, trainer.fit(model, *data, *held_out), "--resume", "validation images", "31",
               "30", "mean", "deviation");
  // Another model.
  ResumeNet wide(7);
  EXPECT_ERROR(ArgumentError, train(config, wide), "--resume", "conv.weight", "[7, 3, 3, 1]", "[6, 3, 3, 1]");
}

TEST_F(ResumeFiles, FlagsThatDoNotFitTogetherAreRefused) {
  TrainerConfig config = test::resume_config();
  config.checkpoint_every = 5;
  EXPECT_ERROR(ArgumentError, Trainer{config}, "--checkpoint-every", "--checkpoint-dir");
  config.checkpoint_every = 0;
  EXPECT_ERROR(ArgumentError, Trainer{from(config, "auto")}, "--resume auto", "--checkpoint-dir");
  EXPECT_ERROR(ArgumentError, Trainer{from(config, "/none")}, "--resume", "/none");
  config.checkpoint_dir = "/dev/null/below";
  EXPECT_ERROR(IoError, train(config), "--checkpoint-dir", "/dev/null/below");
}

// Other data ------------------------------------------------------------------------------------------------

struct OtherData {
  const char* name;
  std::vector<std::string> says;
  std::function<std::unique_ptr<Dataset>(const InMemoryDataset&)> make;
};

std::unique_ptr<Dataset> with_labels_and_names(const InMemoryDataset& data, std::vector<std::int64_t> labels,
                                               std::vector<std::string> names) {
  const InMemoryDataset plain(data.spec(), {data.pixels().begin(), data.pixels().end()}, std::move(labels));
  return std::make_unique<InMemoryDataset>(plain, std::move(names));
}

const std::vector<std::string> kNames{"ant", "bee", "cat", "dog", "eel"};

// As many images of the same size and classes, but not the ones that the run was trained on.
TEST(ResumeOnOtherData, IsRefusedAndNamesWhatDiffers) {
  const std::unique_ptr<InMemoryDataset> images = synthetic(kSmallSpec, 160, 1);
  const std::vector<std::int64_t> labels(images->labels().begin(), images->labels().end());
  const std::vector<OtherData> others{
      {"a class renamed",
       {"classes", "cow", "cat"},
       [&](const InMemoryDataset& data) {
         return with_labels_and_names(data, labels, {"ant", "bee", "cow", "dog", "eel"});
       }},
      {"two classes exchanged",
       {"classes", "bee, ant", "ant, bee"},
       [&](const InMemoryDataset& data) {
         return with_labels_and_names(data, labels, {"bee", "ant", "cat", "dog", "eel"});
       }},
      {"labels exchanged",
       {"training data"},
       [&](const InMemoryDataset& data) {
         std::vector<std::int64_t> other = labels;
         std::reverse(other.begin(), other.end());
         return with_labels_and_names(data, other, kNames);
       }},
      {"other images",
       {"training data"},
       [&](const InMemoryDataset&) {
         return with_labels_and_names(*synthetic(kSmallSpec, 160, 3), labels, kNames);
       }},
      {"another order", {"training data"}, [&](const InMemoryDataset& data) {
         std::vector<std::int64_t> order(160);
         for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i) ^ 1;
         const std::shared_ptr<const Dataset> source = with_labels_and_names(data, labels, kNames);
         return std::make_unique<Subset>(source, order);
       }}};
  for (const int ranks : {1, 2}) {
    const TempDir folder;
    TrainerConfig config = small_config();
    config.checkpoint_dir = folder.path();
    const auto train = [&](const Dataset& data, std::int64_t epochs) {
      TrainerConfig of = config;
      of.epochs = epochs;
      of.resume = epochs > 1 ? "auto" : "";
      const auto on_rank = [&](dist::Transport* transport) {
        Perceptron model;
        Trainer trainer(of, transport);
        trainer.fit(
            model, data,
            *with_labels_and_names(*synthetic(kSmallSpec, 50, 2), std::vector<std::int64_t>(50, 1), kNames));
      };
      if (ranks == 1) return on_rank(nullptr);
      dist::run_ranks(ranks, [&](dist::Transport& transport) { on_rank(&transport); });
    };
    const auto original = with_labels_and_names(*images, labels, kNames);
    train(*original, 1);
    for (const OtherData& other : others) {
      SCOPED_TRACE(other.name);
      EXPECT_TRUE(
          names(test::message_of<ArgumentError>([&] { train(*other.make(*images), 2); }), other.says));
    }
    EXPECT_NO_THROW(train(*original, 2));
  }
}

}  // namespace athanor::resume_files_test
