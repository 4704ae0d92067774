#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/stream.h"
#include "tests/support/errors.h"
#include "tests/support/parsed_flags.h"
#include "trainer/config.h"

namespace athanor::flags_test {

using test::parse;
using test::refusal;

TEST(Flags, EveryNameAndItsAliasAreRead) {
  const auto config = parse({"--model",
                             "resnet20",
                             "--epochs",
                             "3",
                             "--max-steps",
                             "70",
                             "--batch-size",
                             "32",
                             "--val-batch-size",
                             "99",
                             "--lr",
                             "0.5",
                             "--threads",
                             "2",
                             "--precision",
                             "bf16",
                             "--device",
                             "cpu",
                             "--devices",
                             "1",
                             "--strategy",
                             "single",
                             "--algorithm",
                             "native",
                             "--overlap",
                             "off",
                             "--sync-bn",
                             "--workers",
                             "3",
                             "--prefetch",
                             "6",
                             "--bad-samples",
                             "skip:12",
                             "--order",
                             "pages",
                             "--data-on-device",
                             "--data-dir",
                             "/data",
                             "--seed",
                             "7",
                             "--deterministic",
                             "--accumulate",
                             "4",
                             "--clip-norm",
                             "1.5",
                             "--early-stop",
                             "val_loss:3",
                             "--profile",
                             "simple",
                             "--metrics",
                             "m.jsonl",
                             "--forbid-sync",
                             "--checkpoint-dir",
                             "ck",
                             "--checkpoint-every",
                             "7",
                             "--resume",
                             "auto",
                             "--memory-limit",
                             "2GiB"});
  EXPECT_EQ(config.model, "resnet20");
  EXPECT_EQ(config.epochs, 3);
  EXPECT_EQ(config.max_steps, 70);
  EXPECT_EQ(config.batch_size, 32);
  EXPECT_EQ(config.val_batch_size, 99);
  EXPECT_EQ(config.lr, 0.5);
  EXPECT_EQ(config.threads, 2);
  EXPECT_EQ(config.precision, Precision::bf16);
  EXPECT_EQ(config.data_dir, "/data");
  EXPECT_EQ(config.seed, 7u);
  EXPECT_TRUE(config.deterministic && config.forbid_sync);
  EXPECT_EQ(config.profile, Profile::simple);
  EXPECT_EQ(parse({"--fast-dev-run"}).fast_dev_run, 1);
  EXPECT_TRUE(config.report && !parse({"--report", "off"}).report);
  EXPECT_EQ(config.accumulate, 4);
  EXPECT_EQ(config.clip_norm, 1.5);
  ASSERT_TRUE(config.early_stop);
  EXPECT_EQ(config.early_stop->metric, "val_loss");
  EXPECT_EQ(config.early_stop->patience, 3);
  EXPECT_EQ(config.metrics, "m.jsonl");
  EXPECT_EQ(config.checkpoint_dir, "ck");
  EXPECT_EQ(config.checkpoint_every, 7);
  EXPECT_EQ(config.resume, "auto");
  EXPECT_EQ(config.memory_limit, std::int64_t{2} << 30);
  EXPECT_EQ(config.workers, 3);
  EXPECT_EQ(config.prefetch, 6);
  EXPECT_TRUE(config.bad_samples.skip);
  EXPECT_EQ(config.bad_samples.limit, 12);
  EXPECT_EQ(config.order, Order::page_random);
  EXPECT_TRUE(config.data_on_device);
  EXPECT_TRUE(config.sync_bn);
  EXPECT_EQ(config.collectives.algorithm, dist::Algorithm::native);
  EXPECT_FALSE(config.overlap);
  EXPECT_EQ(parse({}).collectives.algorithm, dist::Algorithm::automatic);
  EXPECT_EQ(parse({"--algorithm=auto"}).collectives.algorithm, dist::Algorithm::automatic);
  EXPECT_EQ(parse({}).workers, LoaderOptions::kAuto);
  EXPECT_EQ(parse({"--workers=auto"}).workers, LoaderOptions::kAuto);
  EXPECT_FALSE(parse({"--bad-samples=strict"}).bad_samples.skip);
  EXPECT_EQ(parse({"--bad-samples=skip"}).bad_samples.limit, -1);
  EXPECT_TRUE(parse({"--bad-samples=list"}).bad_samples.list);

  const auto lightning =
      parse({"--max-epochs=4", "--num-workers=0", "--accumulate-grad-batches=2", "--gradient-clip-val=0.5",
             "--profiler=simple", "--accelerator=cpu", "--precision=bf16-mixed"});
  EXPECT_EQ(lightning.epochs, 4);
  EXPECT_EQ(lightning.workers, 0);
  EXPECT_EQ(lightning.accumulate, 2);
  EXPECT_EQ(lightning.clip_norm, 0.5);
  EXPECT_EQ(lightning.profile, Profile::simple);
  EXPECT_EQ(lightning.precision, Precision::bf16);
  EXPECT_EQ(parse({"--precision", "32"}).precision, Precision::f32);
  EXPECT_EQ(parse({"--precision", "32-true"}).precision, Precision::f32);
  EXPECT_EQ(parse({"--precision", "16"}).precision, Precision::f16);
  EXPECT_EQ(parse({"--precision", "BF16"}).precision, Precision::bf16);
  EXPECT_EQ(parse({"--precision", "16-mixed"}).precision, Precision::f16);
  EXPECT_EQ(parse({"--lr", "1e-3"}).lr, 1e-3);
}

TEST(Flags, MistakesGiveOneHelpfulLine) {
  struct Case {
    std::vector<std::string> arguments, values;
  };
  const std::vector<Case> cases{
      {{"--epoch", "3"}, {"'--epoch'", "'--epochs'"}},
      {{"--lr", "--epochs", "3"}, {"--lr", "--epochs"}},
      {{"--max_epochs", "-1"}, {"--epochs", "-1", "--max-time"}},
      {{"--batchsize=3"}, {"'--batchsize'", "'--batch-size'"}},
      {{"--modle", "lenet5"}, {"'--modle'", "'--model'"}},
      {{"--model", "resnet2"}, {"--model", "'resnet2'", "'resnet20'"}},
      {{"resnet20"}, {"train", "'resnet20'"}},
      {{"--lr", "nan"}, {"--lr", "nan"}},
      {{"--lr", "inf"}, {"--lr", "inf"}},
      {{"--lr", "-0.1"}, {"--lr", "-0.1"}},
      {{"--lr", "0"}, {"--lr", "0"}},
      {{"--lr", "0.1x"}, {"--lr", "'0.1x'"}},
      {{"--lr"}, {"--lr"}},
      {{"--lr", "1", "--lr", "2"}, {"--lr"}},
      {{"--lr=1", "--lr", "1"}, {"--lr"}},
      {{"--epochs", "3", "--max_epochs=4"}, {"--max-epochs"}},
      {{"--fast-dev-run", "--fast-dev-run=2"}, {"--fast-dev-run"}},
      {{"--epochs", "0"}, {"--epochs", "1", "0"}},
      {{"--epochs", "two"}, {"--epochs", "'two'"}},
      {{"--epochs", "99999999999999999999"}, {"--epochs", "99999999999999999999"}},
      {{"--epochs", "3.5"}, {"--epochs", "'3.5'"}},
      {{"--batch-size", "-4"}, {"--batch-size", "1", "-4"}},
      {{"--max-steps", "0"}, {"--max-steps", "0"}},
      {{"--threads", "0"}, {"--threads", "0"}},
      {{"--threads", "5000"}, {"--threads", "1024", "5000"}},
      {{"--seed", "-1"}, {"--seed", "-1"}},
      {{"--clip-norm", "0"}, {"--clip-norm", "0"}},
      {{"--memory-limit", "lots"}, {"--memory-limit", "'lots'"}},
      {{"--memory-limit", "0"}, {"--memory-limit", "0"}},
      {{"--memory-limit", "500X"}, {"--memory-limit", "'500X'"}},
      {{"--memory-limit", "GiB"}, {"--memory-limit", "'GiB'"}},
      {{"--memory-limit", "99999999999T"}, {"--memory-limit", "99999999999"}},
      {{"--precision", "fp8"}, {"--precision", "f32", "tf32", "bf16", "f16", "'fp8'"}},
      {{"--early-stop", "val_loss"}, {"--early-stop", "METRIC:PATIENCE", "'val_loss'"}},
      {{"--early-stop", "val_los:3"}, {"--early-stop", "'val_los'", "'val_loss'"}},
      {{"--early-stop", "val_loss:0"}, {"--early-stop", "1", "0"}},
      {{"--early-stop", "val_loss:lower"}, {"--early-stop", "METRIC:PATIENCE:min", "'val_loss:lower'"}},
      {{"--freeze", "layer1:0"}, {"--freeze", "1", "0"}},
      {{"--freeze", "layer1:soon"}, {"--freeze", "'soon'"}},
      {{"--freeze", ":3"}, {"--freeze", "PREFIX:EPOCHS", "':3'"}},
      {{"--reset-head"}, {"--reset-head", "--pretrained"}},
      {{"--profile", "deep"}, {"--profile", "'deep'"}},
      {{"--report", "maybe"}, {"--report", "'maybe'"}},
      {{"--device", "tpu"}, {"--device", "'tpu'"}},
      {{"--strategy", "horovod"}, {"--strategy", "single", "ddp", "zero1", "'horovod'"}},
      {{"--strategy", "fsdp"}, {"--strategy fsdp", "zero1"}},
      {{"--strategy", "ddp_spawn"}, {"--strategy ddp_spawn", "ddp"}},
      {{"--precision", "16-true"}, {"--precision 16-true", "f16"}},
      {{"--precision", "bf16-true"}, {"--precision bf16-true", "bf16"}},
      {{"--device", "0,1"}, {"--device", "'0,1'", "--devices N"}},
      {{"--devices", "0,1"}, {"--devices", "'0,1'", "CUDA_VISIBLE_DEVICES"}},
      {{"--model", "resnet20d"}, {"--model", "'resnet20d'", "'resnet20'"}},
      {{"--data", "photos"}, {"--data", "'photos'", "--data-dir"}},
      {{"epochs=3"}, {"'epochs=3'", "'--epochs=3'"}},
      {{"--strategy", "dp"}, {"--strategy dp", "ddp"}},
      {{"--strategy", "single", "--devices", "2"}, {"--strategy single", "--devices 2", "ddp", "zero1"}},
      {{"--devices", "0"}, {"--devices", "1", "0"}},
      {{"--devices", "many"}, {"--devices", "'many'"}},
      {{"--checkpoint-dir", "x", "--checkpoint-every", "0"}, {"--checkpoint-every", "1", "0"}},
      {{"--checkpoint-every", "5"}, {"--checkpoint-every", "--checkpoint-dir", "--run-dir"}},
      {{"--resume", "auto"}, {"--resume auto", "--checkpoint-dir", "--run-dir"}},
      {{"--resume", "/none/such"}, {"--resume", "auto", "/none/such"}},
      {{"--resume", "/tmp"}, {"--resume", "/tmp", "--run-dir"}},
      {{"--workers", "-1"}, {"--workers", "0", "-1"}},
      {{"--workers", "many"}, {"--workers", "'many'"}},
      {{"--prefetch", "0"}, {"--prefetch", "1", "0"}},
      {{"--bad-samples", "ignore"}, {"--bad-samples", "strict", "skip", "skip:LIMIT", "list", "'ignore'"}},
      {{"--bad-samples", "skip:x"}, {"--bad-samples", "'x'"}},
      {{"--order", "sorted"}, {"--order", "random", "pages", "'sorted'"}},
      {{"--checkpoint-dir", "x", "--resume", "auto", "--fast-dev-run"}, {"--fast-dev-run", "--resume"}},
      {{"--checkpoint-dir", ""}, {"--checkpoint-dir"}},
      {{"--metrics", ""}, {"--metrics"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.arguments[0] + " " + (c.arguments.size() > 1 ? c.arguments[1] : ""));
    EXPECT_TRUE(test::names(refusal(c.arguments), c.values));
  }
}

// It leaves its answer alone, wherever a run would leave things.
TEST(Flags, AFinderWritesOnlyItsAnswer) {
  const TrainerConfig config = parse({"--find-lr", "--run-dir", "there", "--checkpoint-every", "5",
                                      "--save-top-k", "2", "--monitor", "val_loss", "--metrics", "m.jsonl"});
  EXPECT_EQ(config.question, Question::learning_rate);
  EXPECT_EQ(config.lr_curve, "there/lr_curve.svg");
  EXPECT_TRUE(config.run_dir.empty() && config.run_root.empty() && config.metrics.empty() &&
              config.checkpoint_dir.empty());
  EXPECT_EQ(parse({"--find-lr"}).lr_curve, "");
  EXPECT_EQ(parse({"--find-lr", "--lr-curve", "c.svg"}).lr_curve, "c.svg");
  EXPECT_EQ(parse({"--find-batch-size"}).question, Question::batch_size);
  EXPECT_EQ(parse({}).question, Question::none);
  EXPECT_ERROR(ArgumentError, parse({"--find-lr", "--find-batch-size"}), "--find-lr", "--find-batch-size");
  EXPECT_ERROR(ArgumentError, parse({"--lr-curve", "c.svg"}), "--lr-curve", "--find-lr");
  EXPECT_ERROR(ArgumentError, parse({"--find-lr", "--fast-dev-run"}), "--find-lr", "--fast-dev-run");
  EXPECT_ERROR(ArgumentError, parse({"--find-batch-size", "--checkpoint-dir", "x", "--resume", "auto"}),
               "--find-batch-size", "--resume");
  EXPECT_EQ(parse({"--threads", "auto"}).threads, TrainerConfig::kMeasuredThreads);
}

TEST(Flags, DevicesAndStrategy) {
  EXPECT_EQ(parse({}).devices, 0);
  EXPECT_EQ(parse({}).strategy, Strategy::automatic);
  EXPECT_EQ(parse({"--devices", "4", "--strategy", "zero1"}).devices, 4);
  EXPECT_EQ(parse({"--devices", "4", "--strategy", "zero1"}).strategy, Strategy::zero1);
  EXPECT_EQ(parse({"--devices", "auto"}).devices, TrainerConfig::kAllDevices);
}

TEST(Flags, PretrainedWeightsMustBeThere) {
  EXPECT_ERROR(ArgumentError, parse({"--pretrained", "/nowhere/x"}), "--pretrained", "/nowhere/x");
  EXPECT_ERROR(ArgumentError, parse({"--pretrained", ""}), "--pretrained");
}

TEST(Flags, ImagesHaveFlagsWhereTheyHaveAnySize) {
  EXPECT_ERROR(ArgumentError, parse({"--image-size", "64"}), "train", "'--image-size'");
  TrainerConfig defaults;
  defaults.image_size = 224;
  const char* arguments[] = {"program", "--image-size", "64", "--train", "a", "--val", "b"};
  const TrainerConfig config = parse_flags(7, arguments, defaults);
  EXPECT_EQ(config.image_size, 64);
  EXPECT_EQ(config.train_data, "a");
  EXPECT_EQ(config.val_data, "b");
  EXPECT_EQ(config.decode, ImageWork::automatic);
  EXPECT_EQ(config.resize, ImageWork::automatic);
}

TEST(Flags, ImagesArePreparedOnEither) {
  TrainerConfig defaults;
  defaults.image_size = 224;
  const auto parsed = [&](std::vector<const char*> flags) {
    flags.insert(flags.begin(), {"program", "--device", "cpu"});
    return parse_flags(static_cast<int>(flags.size()), flags.data(), defaults);
  };
  EXPECT_EQ(parsed({"--resize", "CPU", "--decode", "cpu"}).resize, ImageWork::cpu);
  EXPECT_THROW(parsed({"--decode", "on"}), ArgumentError);
  EXPECT_NO_THROW(parsed({"--resize", "auto", "--decode", "auto"}));
  EXPECT_ERROR(ArgumentError, parsed({"--resize", "gpu"}), "--resize gpu", "cpu");
  EXPECT_ERROR(ArgumentError, parsed({"--decode", "gpu"}), "--decode gpu", "cpu");
}

TEST(Flags, AMissingDeviceIsNamed) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a device";
  for (const char* text : {"cuda", "cuda:1", "gpu"}) {
    EXPECT_ERROR(BackendError, parse({"--device", text}), fmt::format("--device {}", text), "--device cpu");
  }
}

TEST(Flags, Tf32NeedsAGpu) {
  EXPECT_ERROR(ArgumentError, parse({"--precision", "tf32", "--device", "cpu"}), "--precision tf32", "cpu",
               "f32", "bf16");
}

TEST(Flags, FreezeMayBeGivenSeveralTimes) {
  const auto config =
      parse({"--freeze", "layer1", "--freeze", "layer2.0:3", "--freeze=fc:1", "--epochs", "4"});
  ASSERT_EQ(config.freeze.size(), 3u);
  EXPECT_EQ(config.freeze[0].prefix, "layer1");
  EXPECT_EQ(config.freeze[0].epochs, Freeze::kAlways);
  EXPECT_EQ(config.freeze[1].prefix, "layer2.0");
  EXPECT_EQ(config.freeze[1].epochs, 3);
  EXPECT_EQ(config.freeze[2].prefix, "fc");
  EXPECT_EQ(config.epochs, 4);
  const auto shown = std::find_if(config.flags.begin(), config.flags.end(),
                                  [](const FlagValue& flag) { return flag.name == "--freeze"; });
  ASSERT_NE(shown, config.flags.end());
  EXPECT_EQ(shown->value, "layer1 layer2.0:3 fc:1");
  EXPECT_TRUE(parse({}).freeze.empty());
  EXPECT_ERROR(ArgumentError, parse({"--freeze", "layer1", "layer2"}), "train", "'layer2'");
}

TEST(Flags, TheNoteOnAnUnrequestedDeviceIsShort) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a device";
  EXPECT_TRUE(test::names(parse({}).device_note, {"CUDA"}));
  EXPECT_LT(parse({}).device_note.size(), 40u);
  EXPECT_EQ(parse({"--device", "auto"}).device_note, parse({}).device_note);
  EXPECT_EQ(parse({"--device", "cpu"}).device_note, "");
}

TEST(Flags, DataDirComesFromTheFlagThenTheEnvironment) {
  setenv("ATHANOR_DATA_DIR", "/from/env", 1);
  EXPECT_EQ(parse({}).data_dir, "/from/env");
  EXPECT_EQ(parse({"--data-dir", "/from/flag"}).data_dir, "/from/flag");
  unsetenv("ATHANOR_DATA_DIR");
  EXPECT_EQ(parse({}).data_dir, "data-cache");
}

TEST(Flags, RunsGetAFolderBelowRunsByDefault) {
  ASSERT_TRUE(test::no_runs);
  unsetenv("ATHANOR_RUNS_DIR");
  EXPECT_EQ(parse({}).run_root, "runs/train");
  EXPECT_EQ(parse({}).run_dir, "");
  EXPECT_EQ(parse({"--resume", "auto"}).run_root, "runs/train");
  EXPECT_EQ(parse({"--fast-dev-run"}).run_root, "");
  EXPECT_EQ(parse({"--run-dir", "none"}).run_root, "");
  const TrainerConfig named = parse({"--run-dir", "mine"});
  EXPECT_EQ(named.run_root, "");
  EXPECT_EQ(named.run_dir, "mine");
  EXPECT_EQ(named.metrics, "mine/metrics.jsonl");
  setenv("ATHANOR_RUNS_DIR", "/elsewhere", 1);
  EXPECT_EQ(parse({}).run_root, "/elsewhere/train");
  setenv("ATHANOR_RUNS_DIR", "none", 1);
  EXPECT_EQ(parse({}).run_root, "");
  EXPECT_ERROR(ArgumentError, parse({"--resume", "auto"}), "--resume auto", "--checkpoint-dir", "--run-dir");
}

TEST(Flags, MonitorKeepsTheBestWeightsAndNeverStops) {
  const TrainerConfig config = parse({"--monitor", "val_accuracy"});
  ASSERT_TRUE(config.early_stop);
  EXPECT_EQ(config.early_stop->metric, "val_accuracy");
  EXPECT_EQ(config.early_stop->patience, EarlyStop::kNever);
  EXPECT_EQ(config.early_stop->goal_or_default(), Goal::maximum);
  EXPECT_EQ(parse({"--monitor", "val_psnr:max"}).early_stop->goal, Goal::maximum);
  EXPECT_ERROR(ArgumentError, parse({"--monitor", "val_psnr"}), "--monitor", "val_psnr", "val_psnr:min",
               "val_psnr:max");
  EXPECT_ERROR(ArgumentError, parse({"--monitor", "val_los"}), "--monitor", "val_loss", "val_accuracy",
               "train_loss", "'val_los'", "'val_loss'");
  const TrainerConfig both = parse({"--monitor", "val_accuracy", "--early-stop", "val_loss:3"});
  ASSERT_TRUE(both.early_stop && both.monitor);
  EXPECT_EQ(both.early_stop->metric, "val_loss");
  EXPECT_EQ(both.early_stop->patience, 3);
  EXPECT_EQ(both.monitor->metric, "val_accuracy");
  EXPECT_FALSE(parse({"--monitor", "val_loss", "--early-stop", "val_loss:3"}).monitor);
  EXPECT_ERROR(ArgumentError, parse({"--monitor", "val_x:max", "--early-stop", "val_x:3:min"}), "--monitor",
               "--early-stop", "val_x");
  EXPECT_EQ(parse({"--keep", "7"}).checkpoint_keep, 7);
}

TEST(Flags, ProgramsWithoutAChoiceOfModelsLoadNone) {
  TrainerConfig defaults;
  defaults.program = "dcgan";
  const std::vector<const char*> argv{"dcgan", "--pretrained", "x"};
  EXPECT_ERROR(ArgumentError, parse_flags(3, argv.data(), defaults), "dcgan", "'--pretrained'");
}

TEST(Flags, EachIsStoredWithItsSource) {
  setenv("ATHANOR_DATA_DIR", "/from/env", 1);
  const TrainerConfig config = parse({"--deterministic", "--max-epochs", "8"});
  const auto flag = [&](const std::string& name) {
    const auto at = std::find_if(config.flags.begin(), config.flags.end(),
                                 [&](const FlagValue& one) { return one.name == name; });
    return at == config.flags.end() ? std::string("none") : at->value + " by " + at->from;
  };
  EXPECT_EQ(flag("--epochs"), "8 by flag") << "under its first name";
  EXPECT_EQ(flag("--deterministic"), "true by flag");
  EXPECT_EQ(flag("--sync-bn"), "false by default");
  EXPECT_EQ(flag("--data-dir"), "/from/env by ATHANOR_DATA_DIR");
  EXPECT_EQ(flag("--precision"), "f32 by default");
  EXPECT_EQ(flag("--max-steps"), "no limit by default");
  EXPECT_EQ(flag("--dist-timeout"), "300 by default");
  unsetenv("ATHANOR_DATA_DIR");
}

TEST(Flags, ComparingCallsComesFromTheEnvironment) {
  for (const auto& [value, wanted] : {std::pair{"", false}, {"0", false}, {"1", true}}) {
    setenv("ATHANOR_DIST_DEBUG", value, 1);
    EXPECT_EQ(parse({}).collectives.compare_calls, wanted) << value;
  }
  setenv("ATHANOR_DIST_DEBUG", "yes", 1);
  EXPECT_FALSE(TrainerConfig().collectives.compare_calls);  // made before anybody catches what goes wrong
  EXPECT_ERROR(ArgumentError, parse({}), "ATHANOR_DIST_DEBUG", "0", "1", "'yes'");
  unsetenv("ATHANOR_DIST_DEBUG");
  EXPECT_FALSE(parse({}).collectives.compare_calls);
}

}  // namespace athanor::flags_test
