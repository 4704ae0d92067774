// Flags for questions before a run.

#include "trainer/flags/detail/read_flag.h"
#include "trainer/flags/detail/shared_flags.h"

namespace athanor::detail {

using namespace read_flag;

void add_finder_flags(FlagTable& flags, TrainerConfig& config) {
  flags.group("Finders");
  const auto ask = [&](const char* name, Question question, const char* help) {
    flags.ask(name, help, [&config, question] { config.question = question; });
  };
  ask("--find-lr", Question::learning_rate,
      "suggest --lr: take 100 steps with rates from 1e-7 to 10, and find where the loss falls fastest; "
      "trains nothing");
  flags.add("--lr-curve FILE",
            "chart that --find-lr draws [lr_curve.svg in --run-dir, else next to the runs]", config.lr_curve,
            path);
  ask("--find-batch-size", Question::batch_size,
      "suggest --batch-size: find the largest that fits in memory, and the fastest; trains nothing");
}

void leave_nothing_behind(TrainerConfig& config) {
  config.run_dir.clear();
  config.run_root.clear();
  config.checkpoint_dir.clear();
  config.checkpoint_every = 0;
  config.checkpoint_every_s = std::numeric_limits<double>::infinity();
  config.save_top_k = 0;
  config.log_csv = config.log_tensorboard = false;
}

void fit_to_question(const FlagTable& flags, TrainerConfig& config) {
  ATH_CHECK(!flags.given("--find-lr") || !flags.given("--find-batch-size"),
            "--find-lr: cannot be combined with --find-batch-size; find the batch size first");
  const bool curve = config.question == Question::learning_rate;
  ATH_CHECK(curve || config.lr_curve.empty(), "--lr-curve: needs --find-lr, which draws it");
  if (config.question == Question::none) return;
  const char* const name = curve ? "--find-lr" : "--find-batch-size";
  ATH_CHECK(config.resume.empty(), "{}: cannot be combined with --resume; use it before a run starts", name);
  ATH_CHECK(config.fast_dev_run == 0 && !config.validate_only,
            "{}: takes its own trial steps; cannot be combined with --fast-dev-run or --validate-only", name);
  const std::filesystem::path folder = config.run_dir.empty() ? config.run_root : config.run_dir;
  if (curve && config.lr_curve.empty() && !folder.empty()) config.lr_curve = folder / "lr_curve.svg";
  leave_nothing_behind(config);
  config.metrics.clear();
  config.profile = Profile::none;
  config.sanity_val = 0;
}

}  // namespace athanor::detail
