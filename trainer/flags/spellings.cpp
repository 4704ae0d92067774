#include "trainer/flags/detail/spellings.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

namespace athanor {
namespace {

/// Another trainer's flag with the same values as ours.
struct Same {
  std::string_view theirs, ours;
  std::string_view behind = {};  ///< appended to the value
  bool only_fractions = false;   ///< appended only to a value with a decimal point
};
constexpr Same kSame[] = {
    {"--gpus", "--devices"},
    {"--opt", "--optimizer"},
    {"--sched", "--schedule"},
    {"--scheduler", "--schedule"},
    {"--lr-scheduler", "--schedule"},
    {"--smoothing", "--label-smoothing"},
    {"--bs", "--batch-size"},
    {"--train-batch-size", "--batch-size"},
    {"--eval-batch-size", "--val-batch-size"},
    {"--validation-batch-size", "--val-batch-size"},
    {"--learning-rate", "--lr"},
    {"--drop", "--dropout"},
    {"--clip-grad", "--clip-norm"},
    {"--max-norm", "--clip-norm"},
    {"--gradient-accumulation-steps", "--accumulate"},
    {"--grad-accum-steps", "--accumulate"},
    {"--img-size", "--image-size"},
    {"--input-size", "--image-size"},
    {"--sync-batchnorm", "--sync-bn"},
    {"--ckpt-path", "--resume"},
    {"--resume-from-checkpoint", "--resume"},
    {"--initial-checkpoint", "--pretrained"},
    {"--default-root-dir", "--run-dir"},
    {"--output", "--run-dir"},
    {"--output-dir", "--run-dir"},
    {"--warmup-epochs", "--warmup", "e"},
    {"--warmup-steps", "--warmup"},
    {"--check-val-every-n-epoch", "--val-every", "e"},
    {"--log-interval", "--log-every"},
    {"--log-every-n-steps", "--log-every"},
    {"--num-sanity-val-steps", "--sanity-val"},
    {"--random-seed", "--seed"},
    {"--nproc-per-node", "--devices"},
    {"--checkpoint-hist", "--keep"},
    {"--eval", "--validate-only"},
    {"--seed-everything", "--seed"},
    {"--enable-model-summary", "--summary"},
    {"--arch", "--model"},
    {"--val-check-interval", "--val-every", "e", true},  // 0.25: of an epoch; 500: steps
};

/// A value with another name here.
struct SameValue {
  std::string_view flag, theirs, ours;
};
constexpr SameValue kSameValues[] = {
    {"--devices", "-1", "auto"},  {"--resume", "last", "auto"},    {"--profile", "", "simple"},
    {"--profiler", "", "simple"}, {"--fast-dev-run", "true", "1"}, {"--fast-dev-run", "True", "1"},
};

/// A flag without equivalent, and advice.
struct Answer {
  std::string_view theirs, instead;
};
constexpr Answer kAnswers[] = {
    {"--amp", "use --precision bf16 or --precision f16"},
    {"--fp16", "use --precision f16"},
    {"--bf16", "use --precision bf16"},
    {"--half", "use --precision f16"},
    {"--model-ema", "use --ema DECAY, as in --ema 0.999"},
    {"--swa", "use --ema DECAY, which keeps a running average of the weights"},
    {"--reprob", "use --augment random-erasing:P"},
    {"--aa", "use --augment rand-augment"},
    {"--auto-augment", "use --augment rand-augment"},
    {"--hflip", "use --augment flip"},
    {"--mixup", "use --augment mixup:ALPHA"},
    {"--mixup-alpha", "use --augment mixup:ALPHA"},
    {"--cutmix", "use --augment cutmix:ALPHA"},
    {"--cutmix-alpha", "use --augment cutmix:ALPHA"},
    {"--color-jitter", "use --augment color-jitter"},
    {"--cutout", "use --augment cutout:PIXELS"},
    {"--opt-betas", "use --betas B1,B2"},
    {"--gradient-clip-algorithm", "use --clip-norm X or --clip-value X"},
    {"--drop-path", "leave it out: the models have their own"},
    {"--layer-decay", "leave it out: all layers have one learning rate"},
    {"--log-wandb", "use --logger json,csv,tensorboard"},
    {"--num-classes", "leave it out: the data set says how many classes there are"},
    {"--in-chans", "leave it out: the data set says how many channels there are"},
    {"--num-nodes", "start the program on all machines with mpirun or srun"},
    {"--nnodes", "start the program on all machines with mpirun or srun"},
    {"--distributed-backend",
     "leave it out: GPUs communicate through NCCL, CPUs through MPI; --algorithm chooses how they sum"},
    {"--dist-backend",
     "leave it out: GPUs communicate through NCCL, CPUs through MPI; --algorithm chooses how they sum"},
    {"--local-rank", "leave it out: --devices N starts the ranks; mpirun and srun number theirs"},
    {"--auto-lr-find", "use --find-lr"},
    {"--auto-scale-batch-size", "use --find-batch-size"},
    {"--auto-select-gpus", "use --devices N"},
    {"--tpu-cores", "leave it out: only CPUs and NVIDIA GPUs are supported"},
    {"--no-cuda", "use --device cpu"},
    {"--cuda", "use --device cuda"},
    {"--cpu", "use --device cpu"},
    {"--patience", "use --early-stop METRIC:PATIENCE"},
    {"--early-stopping", "use --early-stop METRIC:PATIENCE, as in --early-stop val_loss:10"},
    {"--early-stopping-patience", "use --early-stop METRIC:PATIENCE"},
    {"--decay-epochs", "use --schedule step:EPOCHS"},
    {"--decay-rate", "use --schedule step:EPOCHS:FACTOR"},
    {"--step-size", "use --schedule step:EPOCHS"},
    {"--gamma", "use --schedule step:EPOCHS:FACTOR"},
    {"--milestones", "use --schedule multistep:EPOCH,EPOCH"},
    {"--cooldown-epochs", "leave it out; --schedule cosine decays over the whole run"},
    {"--no-progress-bar", "use --progress off"},
    {"--enable-progress-bar", "use --progress off to turn it off"},
    {"--enable-checkpointing", "use --run-dir none to save nothing"},
    {"--save-every", "use --checkpoint-every STEPS"},
    {"--channels-last", "leave it out: images are always stored channels last"},
    {"--torchcompile", "leave it out: fused functions are always used"},
    {"--compile", "leave it out: fused functions are always used"},
    {"--pin-mem", "use --pin-memory on, which is the default"},
    {"--split-bn",
     "leave it out: batch-norm statistics come from each rank's images, or with --sync-bn from all"},
    {"--tta", "leave it out: validation uses each image once"},
};

bool is(std::span<const std::string> known, const std::string& flag) {
  return std::find(known.begin(), known.end(), flag) != known.end();
}

/// Replaces underscores: "--max_epochs" becomes "--max-epochs".
std::string dashed(std::string name) {
  std::replace(name.begin() + 2, name.end(), '_', '-');
  return name;
}

const Same* twin_of(std::string_view flag) {
  const auto found =
      std::find_if(std::begin(kSame), std::end(kSame), [&](const Same& one) { return one.theirs == flag; });
  return found == std::end(kSame) ? nullptr : &*found;
}

/// Our name of a flag, and the suffix for its value.
struct OurName {
  std::string flag;
  std::string_view behind = {};
  bool only_fractions = false;
};
OurName name_here(const std::string& theirs, std::span<const std::string> known) {
  if (is(known, theirs)) return {theirs};
  if (const std::string name = dashed(theirs); is(known, name)) return {name};
  const Same* const twin = twin_of(dashed(theirs));
  if (twin && is(known, std::string(twin->ours)))
    return {std::string(twin->ours), twin->behind, twin->only_fractions};
  return {theirs};
}

/// Our form of the flag's value; nullopt if it is the same.
std::optional<std::string> value_here(const OurName& name, const std::string& theirs) {
  for (const SameValue& one : kSameValues) {
    if (one.flag == name.flag && one.theirs == theirs) return std::string(one.ours);
  }
  const bool number = !theirs.empty() && theirs.find_first_not_of("0123456789") == std::string::npos;
  if (name.flag == "--fast-dev-run" && number) return theirs;  // ours takes the value after '='
  const bool fraction = theirs.find('.') != std::string::npos;
  if (!name.behind.empty() && !theirs.empty() && (fraction || !name.only_fractions))
    return theirs + std::string(name.behind);
  return std::nullopt;
}

}  // namespace

std::vector<std::string> translate_flags(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& known) {
  std::vector<std::string> ours;
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    if (!at->starts_with("--") || at->size() < 3) {
      ours.push_back(*at);
      continue;
    }
    const std::size_t equals = at->find('=');
    const bool joined = equals != std::string::npos;
    const bool apart = !joined && at + 1 != arguments.end() && !(at + 1)->starts_with("--");
    const std::string theirs = at->substr(0, equals);
    const std::string value = joined ? at->substr(equals + 1) : apart ? *(at + 1) : "";
    const OurName name = name_here(theirs, known);
    if (theirs == "--gpus" && is(known, "--device")) {  // implies a GPU
      ours.emplace_back(value == "0" ? "--device=cpu" : "--device=cuda");
      if (value == "0") {
        at += apart ? 1 : 0;
        continue;
      }
    }
    const std::optional<std::string> here = value_here(name, value);
    ours.push_back(here ? name.flag + "=" + *here : joined ? name.flag + at->substr(equals) : name.flag);
    if (here && apart) ++at;
  }
  return ours;
}

std::string flag_advice(const std::string& flag) {
  if (!flag.starts_with("--") || flag.size() < 3) return {};
  const std::string name = dashed(flag);
  for (const Answer& answer : kAnswers) {
    if (answer.theirs == name) return std::string(answer.instead);
  }
  return {};
}

}  // namespace athanor
