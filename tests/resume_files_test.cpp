#include <csignal>
#include <filesystem>

#include <gtest/gtest.h>

#include "optim/adam.h"
#include "support/resumed_run.h"
#include "tensor/error.h"
#include "trainer/checkpoints/checkpoint.h"

namespace athanor {
namespace {

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
  EXPECT_TRUE(has_note(resumed, "skipped: checkpoint: " + file(6).string() + " is damaged"));
  EXPECT_TRUE(has_note(resumed, "resumed from " + file(4).string()));
  expect_same_end(resumed, straight);
  EXPECT_NO_THROW(load_checkpoint(file(6)));  // written anew on the way
}

TEST_F(ResumeFiles, AutoStartsFreshAndSaysSo) {
  const RecordedRun straight = train(test::resume_config());
  const TrainerConfig config = from(saving(test::resume_config(), 0), "auto");
  const RecordedRun fresh = train(config);
  ASSERT_EQ(fresh.notes.size(), 1u);
  expect_one_line(fresh.notes[0], {"no checkpoint in " + folder().string(), "starting fresh"});
  expect_same_end(fresh, straight);
  for (const auto& entry : std::filesystem::directory_iterator(folder())) test::write_file(entry.path(), "x");
  const RecordedRun again = train(config);
  EXPECT_EQ(again.notes.size(), 3u);
  EXPECT_TRUE(has_note(again, "no valid checkpoint in"));
  expect_same_end(again, straight);
}

TEST_F(ResumeFiles, KeepsTheNewestThree) {
  TrainerConfig config = saving(test::resume_config(), 2);
  config.checkpoint_keep = TrainerConfig{}.checkpoint_keep;
  train(config);
  EXPECT_EQ(files(), 3u);
  EXPECT_TRUE(std::filesystem::exists(file(6)) && std::filesystem::exists(file(8)) &&
              std::filesystem::exists(file(10)));
}

TEST_F(ResumeFiles, AFolderWithAnotherRunInItIsRefused) {
  const TrainerConfig config = saving(test::resume_config(), 4);
  train(config);
  expect_one_line(message_of([&] { train(config); }),
                  {"--checkpoint-dir: " + folder().string(), "up to step 10", "--resume auto"});
  expect_one_line(message_of([&] { train(from(config, file(4).string())); }),
                  {"--resume: " + file(4).string(), file(10).string()});
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
  for (const std::string& missing : whole.names()) {
    StateDict state;
    for (const StateDict::Entry& entry : whole) {
      if (entry.name != missing) state.set(entry.name, entry.value);
    }
    const std::string last = missing.substr(missing.rfind('.') + 1);
    expect_one_line(refusal(state), {"--resume: " + broken.string(), last, "missing"});
  }
  for (const char* extra :
       {"model.fc.weight", "optimizer.momentum.fc", "run.luck", "step.luck", "settings.luck",
        "callbacks.early_stopping_val_loss.luck", "callbacks.other.value", "luck"}) {
    StateDict state = whole;
    state.set(extra, std::int64_t{1});
    const std::string last = std::string(extra).substr(std::string(extra).rfind('.') + 1);
    expect_one_line(refusal(state), {"--resume: " + broken.string(), last, "unknown entries"});
  }
  // Of another kind, shape, dtype or range.
  const auto changed = [&](const std::string& name, const StateDict::Value& value) {
    StateDict state;
    for (const StateDict::Entry& entry : whole)
      state.set(entry.name, entry.name == name ? value : entry.value);
    return refusal(state);
  };
  expect_one_line(changed("run.epoch", 1.0), {"'epoch' must be an integer"});
  expect_one_line(changed("run.epoch", std::int64_t{-1}), {"must be at least 0"});
  expect_one_line(changed("run.epoch", std::int64_t{3}), {"epoch must be at most 2"});
  expect_one_line(changed("run.epoch_samples", std::int64_t{7}), {"7 delivered"});
  expect_one_line(changed("run.ended_by", std::string("x")), {"'ended_by'"});
  for (const double seconds : {std::nan(""), -1.0, 1e300})
    expect_one_line(changed("run.elapsed_s", seconds), {"'elapsed_s' must be"});
  expect_one_line(changed("run.validated", std::int64_t{2}), {"'validated' must be 0 or 1"});
  expect_one_line(changed("step.growth_counter", std::int64_t{1} << 40), {"'growth_counter' must fit"});
  expect_one_line(changed("model.norm.weight", Tensor::zeros({5})), {"norm.weight", "[6]", "[5]"});
  expect_one_line(changed("model.norm.weight", Tensor::zeros({6}, {DType::f64, kCpu})),
                  {"norm.weight", "f64"});
}

TEST_F(ResumeFiles, OtherSettingsAreNamedAsTheUserKnowsThem) {
  train(saving(test::resume_config(), 0));
  struct Case {
    const char* says;
    std::function<void(TrainerConfig&)> change;
  };
  const std::vector<Case> cases{
      {"--seed is 1 and was 0;", [](auto& c) { c.seed = 1; }},
      {"--order is pages and was random;", [](auto& c) { c.order = Order::page_random; }},
      {"--precision is bf16 and was f32;", [](auto& c) { c.precision = Precision::bf16; }},
      {"--val-batch-size is 5 and was not given;", [](auto& c) { c.val_batch_size = 5; }},
      {"--sync-bn is given and was not given;", [](auto& c) { c.sync_bn = true; }},
      {"--clip-norm is 1 and was not given;", [](auto& c) { c.clip_norm = 1; }},
      {"--clip-value is 1 and was not given;", [](auto& c) { c.clip_value = 1; }},
      {"--skip-outliers is 3 and was not given;", [](auto& c) { c.skip_outliers = 3; }},
      {"--ema is 0.5 and was not given;", [](auto& c) { c.ema_decay = 0.5; }},
      {"--loss-scale is 8 and was not given;", [](auto& c) { c.loss_scaling = LossScaling::fixed(8); }},
      {"--loss-scale is 'dynamic from ", [](auto& c) { c.loss_scaling = LossScaling{}; }},
      {"--grad-dtype f32 is given and was not given;", [](auto& c) { c.f32_gradients = true; }},
      {"--early-stop is not given and was val_loss:3;", [](auto& c) { c.early_stop.reset(); }},
      {"--early-stop is val_loss:2 and was val_loss:3;", [](auto& c) { c.early_stop->patience = 2; }},
      {"--momentum is 0.5 and was 0.9;", [](auto& c) { c.momentum = 0.5; }},
      {"--weight-decay is 0 and was 0.0005;", [](auto& c) { c.weight_decay = 0; }},
      {"--weight-decay is '0.0005 of all' and was 0.0005;", [](auto& c) { c.decay = Decay::all; }},
      {"--label-smoothing is 0.1 and was 0;", [](auto& c) { c.label_smoothing = 0.1; }},
      {"--augment is 'pad 0, flip true, cutout 0' and was 'pad 1,", [](auto& c) { c.augment.pad = 0; }},
      {"--augment is 'pad 1 reflected,", [](auto& c) { c.augment.padding = Padding::reflect; }},
      {"--model is other and was not given;", [](auto& c) { c.model = "other"; }},
      {"but the learning rate, at five steps, is '0.2 0.2 0.2 0.2 0.2' and was '",
       [](auto& c) { c.schedule = [](double lr, std::int64_t) { return schedules::constant(lr); }; }},
      {"--optimizer is adam and was sgd;",
       [](auto& c) { c.optimizer = [](ParameterArena& arena) { return std::make_unique<Adam>(arena); }; }},
      // What follows from another flag is not said beside it.
      {"but --batch-size is 16 and was 8 (the learning rate schedule depends on it);",
       [](auto& c) { c.batch_size = 16; }},
      {"but --accumulate is 1 and was 2 (the learning rate schedule depends on it);",
       [](auto& c) { c.accumulate = 1; }},
      {"but --epochs is 1 and was 2 (the learning rate schedule depends on it);",
       [](auto& c) { c.epochs = 1; }},
      {"but the number of steps (--max-steps) is 7 and was 10 (the learning rate schedule depends on it);",
       [](auto& c) { c.max_steps = 7; }},
      {"but --lr is 0.1 and was 0.2 (the learning rate schedule depends on it); restore what differs, or "
       "start a new run from these weights with --pretrained FILE and another --checkpoint-dir",
       [](auto& c) { c.lr = 0.1; }},
      {"--seed is 1 and was 0, --epochs is 1 and was 2 (",
       [](auto& c) {
         c.seed = 1;
         c.epochs = 1;
       }},
  };
  for (const Case& c : cases) {
    TrainerConfig config = from(test::resume_config(), file(10).string());
    c.change(config);
    const std::string message = message_of([&] { train(config); });
    expect_one_line(message, {"--resume: " + file(10).string() + ": settings must match ", c.says});
    EXPECT_EQ(message.find("schedule_steps"), std::string::npos) << message;
  }
  // The one flag that is written only where it is given.
  std::filesystem::remove_all(folder());
  TrainerConfig joined = test::resume_config();
  joined.sync_bn = true;
  train(saving(joined, 0));
  expect_one_line(message_of([&] { train(from(test::resume_config(), file(10).string())); }),
                  {"--sync-bn is not given and was given;"});
  EXPECT_NO_THROW(train(from(joined, file(10).string())));
  std::filesystem::remove_all(folder());
  train(saving(test::resume_config(), 0));
  // Other data, of the same size.
  const auto data = synthetic(test::kResumeSpec, 75, 9), held_out = synthetic(test::kResumeSpec, 31, 2);
  const TrainerConfig config = from(test::resume_config(), file(10).string());
  Trainer trainer(config);
  ResumeNet model;
  expect_one_line(
      message_of([&] { trainer.fit(model, *data, *held_out); }),
      {"the number of validation images is 31 and was 30", "the images' mean and deviation is 'mean "});
  // Another model.
  ResumeNet wide(7);
  expect_one_line(message_of([&] { train(config, wide); }),
                  {"--resume: ", "conv.weight", "[7, 3, 3, 1]", "[6, 3, 3, 1]"});
}

TEST_F(ResumeFiles, FlagsThatDoNotFitTogetherAreRefused) {
  TrainerConfig config = test::resume_config();
  config.checkpoint_every = 5;
  expect_one_line(message_of([&] { Trainer{config}; }), {"--checkpoint-every", "--checkpoint-dir"});
  config.checkpoint_every = 0;
  expect_one_line(message_of([&] { Trainer{from(config, "auto")}; }), {"--resume auto", "--checkpoint-dir"});
  expect_one_line(message_of([&] { Trainer{from(config, "/none")}; }), {"--resume", "there is no /none"});
  config.checkpoint_dir = "/dev/null/below";
  expect_one_line(message_of([&] { train(config); }), {"--checkpoint-dir: /dev/null/below"});
}

}  // namespace
}  // namespace athanor
