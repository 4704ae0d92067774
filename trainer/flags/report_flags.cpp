// Flags about a run's output: its folder, checkpoints, metrics, profile.

#include "trainer/flags/detail/read_flag.h"
#include "trainer/flags/detail/shared_flags.h"

namespace athanor::detail {

using namespace read_flag;

namespace {

constexpr char kProfile[] =
    "simple: show at the end where the time went, by part and by op; advanced: also by layer; trace: write "
    "trace.json for Perfetto to --run-dir [none]";

void add_beginning_flags(FlagTable& flags, TrainerConfig& config);

}  // namespace

void add_report_flags(FlagTable& flags, TrainerConfig& config) {
  flags.group("Checkpoints and reports");
  flags.add("--metrics FILE",
            "append JSON lines: one per logged step and per epoch, one at the end [metrics.jsonl of "
            "--run-dir, else none]",
            config.metrics, path);
  flags.add("--profile,--profiler KIND", kProfile, config.profile, profile);
  flags.add("--progress on|off", "print progress to stdout; off prints errors only [on]", config.progress,
            on_or_off);
  flags.on("--forbid-sync", "fail if a step waits for the device", config.forbid_sync);
  flags.add("--run-dir DIR|none",
            "folder of the run, for its weights, metrics.jsonl, checkpoints/ and pictures in samples/, "
            "unless other flags name places for them [the next of " +
                (config.run_root.empty() ? "runs" : config.run_root.string()) + "/1, 2, ...]",
            config.run_dir, [&config](Text flag, Text text) {
              config.run_root.clear();
              return text == "none" ? "" : path(flag, text);
            });
  flags.add("--report on|off", "report.html in the run's folder: curves, times, mistakes [on]", config.report,
            on_or_off);
  flags.add("--checkpoint-dir DIR",
            "save checkpoints in DIR, and keep the newest [checkpoints/ of --run-dir, else none]",
            config.checkpoint_dir, path);
  flags.add("--checkpoint-every STEPS|Nmin",
            "save every STEPS steps (skipped ones included) or every N minutes, and at the end; SIGUSR1 "
            "saves at once [once per epoch]",
            config.checkpoint_every, [&config](Text flag, Text text) -> std::int64_t {
              if (!text.ends_with("min")) return whole(1)(flag, text);
              config.checkpoint_every_s = 60 * positive(1e-3, 1e7)(flag, text.substr(0, text.size() - 3));
              return 0;
            });
  flags.add("--keep N", "number of newest checkpoints to keep [{}]", config.checkpoint_keep, whole(1));
  flags.add("--save-top-k K", "save after each epoch, and also keep the best K by --monitor [none]",
            config.save_top_k, whole(1));
  flags.on("--async-checkpoints",
           "write checkpoints in the background, from a copy in memory as large as the checkpoint",
           config.async_checkpoints);
  flags.add(
      "--resume auto|FILE",
      "resume from a checkpoint, with the flags of its run; auto: the newest valid one in --checkpoint-dir "
      "or --run-dir, or of the newest unfinished run with these settings; if there is none, start fresh",
      config.resume, path);
  if (!config.models.empty()) add_beginning_flags(flags, config);
}

namespace {

/// Initial weights of a model; a task's networks are initialised by the program.
void add_beginning_flags(FlagTable& flags, TrainerConfig& config) {
  flags.add("--pretrained FILE",
            "initial weights: a run's folder or model, a checkpoint, or safetensors or a .pth of "
            "torchvision's or timm's "
            "model of this name; if the number of classes differs, the last layer starts from random weights "
            "[random]",
            config.pretrained, path);
  flags.on("--reset-head",
           "with --pretrained: the last layer starts from random weights, even if the number of classes is "
           "the same",
           config.reset_head);
  flags.on("--validate-only",
           "train nothing: evaluate the model.safetensors of --pretrained, or of the newest run, on the "
           "validation images, as athanor evaluate does",
           config.validate_only);
}

}  // namespace

}  // namespace athanor::detail
