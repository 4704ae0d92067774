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
    {"-a", "--model"},
    {"--arch", "--model"},
    {"--num-epochs", "--epochs"},
    {"--n-epochs", "--epochs"},
    {"--num-train-epochs", "--epochs"},
    {"-b", "--batch-size"},
    {"--bs", "--batch-size"},
    {"--batch", "--batch-size"},
    {"--train-batch-size", "--batch-size"},
    {"-vb", "--val-batch-size"},
    {"--eval-batch-size", "--val-batch-size"},
    {"--test-batch-size", "--val-batch-size"},
    {"--validation-batch-size", "--val-batch-size"},
    {"--gradient-accumulation-steps", "--accumulate"},
    {"--grad-accum-steps", "--accumulate"},
    {"--grad-accumulation", "--accumulate"},
    {"--clip-grad", "--clip-norm"},
    {"--clip-grad-norm", "--clip-norm"},
    {"--grad-clip", "--clip-norm"},
    {"--gradient-clip", "--clip-norm"},
    {"--max-grad-norm", "--clip-norm"},
    {"--max-norm", "--clip-norm"},
    {"--random-seed", "--seed"},
    {"--manual-seed", "--seed"},
    {"--seed-everything", "--seed"},
    {"--opt", "--optimizer"},
    {"--optim", "--optimizer"},
    {"--learning-rate", "--lr"},
    {"--initial-lr", "--lr"},
    {"--init-lr", "--lr"},
    {"--lr0", "--lr"},
    {"--sched", "--schedule"},
    {"--scheduler", "--schedule"},
    {"--lr-sched", "--schedule"},
    {"--lr-schedule", "--schedule"},
    {"--lr-scheduler", "--schedule"},
    {"--lr-scheduler-type", "--schedule"},
    {"--warmup-epochs", "--warmup", "e"},
    {"--lr-warmup-epochs", "--warmup", "e"},
    {"--warmup-steps", "--warmup"},
    {"--warmup-iters", "--warmup"},
    {"--num-warmup-steps", "--warmup"},
    {"--lr-min", "--min-lr"},
    {"--eta-min", "--min-lr"},
    {"--smoothing", "--label-smoothing"},
    {"--label-smoothing-factor", "--label-smoothing"},
    {"--drop", "--dropout"},
    {"--drop-out", "--dropout"},
    {"--drop-rate", "--dropout"},
    {"--dropout-rate", "--dropout"},
    {"--ema-decay", "--ema"},
    {"--model-ema-decay", "--ema"},
    {"--check-val-every-n-epoch", "--val-every", "e"},
    {"--val-check-interval", "--val-every", "e", true},  // 0.25: of an epoch; 500: steps
    {"--eval-steps", "--val-every"},
    {"--num-sanity-val-steps", "--sanity-val"},
    {"--terminate-on-nan", "--detect-anomaly"},
    {"--data-root", "--data-dir"},
    {"--train-dir", "--train"},
    {"--traindir", "--train"},
    {"--train-data", "--train"},
    {"--val-dir", "--val"},
    {"--valdir", "--val"},
    {"--val-data", "--val"},
    {"--validation-dir", "--val"},
    {"--test-dir", "--test"},
    {"--test-data", "--test"},
    {"--imgsz", "--image-size"},
    {"--img", "--image-size"},
    {"--img-size", "--image-size"},
    {"--input-size", "--image-size"},
    {"--resolution", "--image-size"},
    {"--train-crop-size", "--image-size"},
    {"-j", "--workers"},
    {"--dataloader-num-workers", "--workers"},
    {"--n-workers", "--workers"},
    {"--gpus", "--devices"},
    {"--num-gpus", "--devices"},
    {"--num-processes", "--devices"},
    {"--nproc-per-node", "--devices"},
    {"--gpu", "--device"},
    {"--sync-batchnorm", "--sync-bn"},
    {"--use-deterministic-algorithms", "--deterministic"},
    {"--ckpt-path", "--resume"},
    {"--resume-from-checkpoint", "--resume"},
    {"--initial-checkpoint", "--pretrained"},
    {"--pretrained-path", "--pretrained"},
    {"--pretrained-weights", "--pretrained"},
    {"--finetune", "--pretrained"},
    {"-e", "--validate-only"},
    {"--eval", "--validate-only"},
    {"--evaluate", "--validate-only"},
    {"--eval-only", "--validate-only"},
    {"--test-only", "--validate-only"},
    {"--default-root-dir", "--run-dir"},
    {"--output", "--run-dir"},
    {"--output-dir", "--run-dir"},
    {"--out-dir", "--run-dir"},
    {"--save-dir", "--run-dir"},
    {"--log-dir", "--run-dir"},
    {"--logdir", "--run-dir"},
    {"--checkpoint-hist", "--keep"},
    {"--save-total-limit", "--keep"},
    {"--save-steps", "--checkpoint-every"},
    {"-p", "--log-every"},
    {"--print-freq", "--log-every"},
    {"--log-freq", "--log-every"},
    {"--log-interval", "--log-every"},
    {"--log-every-n-steps", "--log-every"},
    {"--logging-steps", "--log-every"},
    {"--enable-model-summary", "--summary"},
};

/// A value with another name here.
struct SameValue {
  std::string_view flag, theirs, ours;
};
constexpr SameValue kSameValues[] = {
    {"--devices", "-1", "auto"},
    {"--resume", "last", "auto"},
    {"--resume", "True", "auto"},
    {"--profile", "", "simple"},
    {"--profiler", "", "simple"},
    {"--fast-dev-run", "true", "1"},
    {"--fast-dev-run", "True", "1"},
    {"--seed", "True", "0"},
    {"--logger", "True", "json"},
    {"--logger", "False", "none"},
    {"--schedule", "cosineannealinglr", "cosine"},
    {"--schedule", "onecycle", "one-cycle"},
    {"--schedule", "onecyclelr", "one-cycle"},
    {"--schedule", "reducelronplateau", "plateau"},
    {"--strategy", "ddp_find_unused_parameters_true", "ddp"},
    {"--strategy", "ddp_find_unused_parameters_false", "ddp"},
    {"--strategy", "deepspeed_stage_1", "zero1"},
};

/// A flag without equivalent, and advice. A '*' at the end stands for any text; the first match counts.
struct Answer {
  std::string_view theirs, instead;
};
constexpr std::string_view kLoss =
    "leave it out: classifiers minimise cross-entropy (--label-smoothing, --class-weights); a Task of your "
    "own has any loss";
constexpr std::string_view kImages =
    "name images without a flag, as in train_images photos, or with --train and --val; --data-dir holds "
    "mnist/ "
    "and cifar10/";
constexpr std::string_view kAmp = "use --precision bf16 or --precision f16";
constexpr std::string_view kEma = "use --ema DECAY, as in --ema 0.999";
constexpr std::string_view kErasing = "use --augment random-erasing:P";
constexpr std::string_view kPolicy = "use --augment rand-augment:OPERATIONS:MAGNITUDE";
constexpr std::string_view kMixup = "use --augment mixup:ALPHA";
constexpr std::string_view kCutmix = "use --augment cutmix:ALPHA";
constexpr std::string_view kColour =
    "use --augment color-jitter:BRIGHTNESS:CONTRAST:SATURATION:HUE, as in color-jitter:0.4:0.4:0.4:0.1";
constexpr std::string_view kNoAugment = "leave it out: --augment has no such transform; see --help augment";
constexpr std::string_view kCrop = "use --augment resized-crop:MINAREA";
constexpr std::string_view kPreparing =
    "leave it out: validation takes the central --image-size pixels of images that are 8/7 as large";
constexpr std::string_view kNormalised = "leave it out: the program sets the mean and deviation of pixels";
constexpr std::string_view kBetas = "use --betas B1,B2";
constexpr std::string_view kStep = "use --schedule step:EPOCHS:FACTOR, as in --schedule step:30:0.1";
constexpr std::string_view kMultistep = "use --schedule multistep:EPOCH,EPOCH:FACTOR";
constexpr std::string_view kPlateau = "use --schedule plateau:PATIENCE:FACTOR";
constexpr std::string_view kRates = "leave it out: --schedule and --warmup have no such setting";
constexpr std::string_view kOneRate = "leave it out: all layers have one learning rate";
constexpr std::string_view kScaleLr = "use --lr, with --scale-lr linear:256 if it is for batch size 256";
constexpr std::string_view kStop = "use --early-stop METRIC:PATIENCE, as in --early-stop val_loss:10";
constexpr std::string_view kValidation = "use --val-every N for steps, or Ne for epochs; 1e is the default";
constexpr std::string_view kLoggers = "leave it out: --logger writes json, csv and tensorboard";
constexpr std::string_view kLaunch =
    "leave it out: --devices N starts the ranks; on several machines, mpirun or srun does";
constexpr std::string_view kBackend =
    "leave it out: GPUs communicate through NCCL, CPUs through MPI; --algorithm chooses how they sum";
constexpr std::string_view kBuckets = "leave it out: every strategy sets its buckets and its order by itself";
constexpr std::string_view kFused = "leave it out: fused functions are always used";
constexpr std::string_view kStored = "leave it out: images are always stored channels last";
constexpr std::string_view kBatchNorm = "leave it out: the models have their own settings of batch norm";
constexpr std::string_view kModels = "leave it out: the models have their own";
constexpr std::string_view kWeights =
    "use --pretrained FILE for initial weights, or --resume FILE to continue a run";
constexpr std::string_view kRunDir = "use --run-dir DIR; without, runs are numbered";
constexpr std::string_view kEachEpoch = "leave it out: --resume continues at the step that was saved";
constexpr std::string_view kBest = "use --monitor METRIC, which keeps the weights of the best validation";
constexpr std::string_view kDetection = "leave it out: it is for detection, and these models classify";
constexpr std::string_view kLimit = "use --limit-train-batches SHARE, as in --limit-train-batches 0.1";
constexpr std::string_view kTestLimit = "leave it out: --test evaluates all of its images";
constexpr Answer kAnswers[] = {
    // Precision, device and ranks.
    {"--amp*", kAmp},
    {"--mixed-precision", kAmp},
    {"--model-dtype", kAmp},
    {"--dtype", "use --precision P, as in --precision bf16"},
    {"--fp16*", "use --precision f16"},
    {"--half", "use --precision f16"},
    {"--bf16*", "use --precision bf16"},
    {"--tf32", "use --precision tf32"},
    {"--no-cuda", "use --device cpu"},
    {"--use-cpu", "use --device cpu"},
    {"--cpu", "use --device cpu"},
    {"--cuda", "use --device cuda"},
    {"--use-cuda", "use --device cuda"},
    {"--mps", "leave it out: only CPUs and NVIDIA GPUs are supported"},
    {"--tpu-cores", "leave it out: only CPUs and NVIDIA GPUs are supported"},
    {"--ipus", "leave it out: only CPUs and NVIDIA GPUs are supported"},
    {"--auto-select-gpus", "use --devices N"},
    {"--num-nodes", "start the program on all machines with mpirun or srun"},
    {"--nnodes", "start the program on all machines with mpirun or srun"},
    {"--node-rank", "start the program on all machines with mpirun or srun"},
    {"--distributed-backend", kBackend},
    {"--dist-backend", kBackend},
    {"--backend", kBackend},
    {"--local-rank", kLaunch},
    {"--rank", kLaunch},
    {"--world-size", kLaunch},
    {"--dist-url", kLaunch},
    {"--multiprocessing-distributed", kLaunch},
    {"--master-*", kLaunch},
    {"--no-ddp-bb", kBuckets},
    {"--use-distributed-sampler", kBuckets},
    {"--replace-sampler-ddp", kBuckets},
    {"--synchronize-step", "use --sync-each-step on"},
    {"--sync-bn-*", "use --sync-bn"},
    {"--split-bn",
     "leave it out: batch-norm statistics come from each rank's images, or with --sync-bn from all"},
    {"--dist-bn",
     "leave it out: validation uses the running statistics of rank 0, which --sync-bn takes from all"},
    {"--bn-*", kBatchNorm},
    {"--channels-last", kStored},
    {"--torchcompile*", kFused},
    {"--torch-compile*", kFused},
    {"--torchscript", kFused},
    {"--compile", kFused},
    {"--fuser", kFused},
    {"--fast-norm", kFused},
    {"--gradient-checkpointing",
     "leave it out; if memory is short, use a smaller --batch-size with --accumulate"},
    {"--grad-checkpointing",
     "leave it out; if memory is short, use a smaller --batch-size with --accumulate"},
    {"--cudnn-benchmark", "leave it out: a GPU always measures which code is fastest"},
    // The model and its weights.
    {"--num-classes", "leave it out: the data set says how many classes there are"},
    {"--nc", "leave it out: the data set says how many classes there are"},
    {"--classes", "leave it out: the data set says how many classes there are"},
    {"--in-chans", "leave it out: the data set says how many channels there are"},
    {"--drop-*", kModels},
    {"--head-init-*", kModels},
    {"--model-kwargs", kModels},
    {"--gp", kModels},
    {"--weights", kWeights},
    {"--load*", kWeights},
    {"--checkpoint", kWeights},
    {"--ckpt", kWeights},
    {"--from-scratch", "leave it out: weights are random without --pretrained"},
    {"--no-resume-opt", "use --pretrained FILE, which takes the weights alone"},
    {"--start-epoch", kEachEpoch},
    {"--model-ema*", kEma},
    {"--use-ema", kEma},
    {"--swa", "use --ema DECAY, which keeps a running average of the weights"},
    {"--stochastic-weight-avg", "use --ema DECAY, which keeps a running average of the weights"},
    // The optimizer, its rate and the loss.
    {"--loss", kLoss},
    {"--loss-fn", kLoss},
    {"--loss-function", kLoss},
    {"--criterion", kLoss},
    {"--bce-*", kLoss},
    {"--jsd-loss", kLoss},
    {"--focal*", kLoss},
    {"--kd-*", "leave it out: the program distill trains with a teacher"},
    {"--opt-betas", kBetas},
    {"--beta1", kBetas},
    {"--beta2", kBetas},
    {"--adam-*", kBetas},
    {"--opt-eps", "leave it out: the optimizers have a fixed eps"},
    {"--opt-kwargs", "use --momentum, --nesterov, --betas and --weight-decay"},
    {"--clip-mode", "use --clip-norm X or --clip-value X"},
    {"--gradient-clip-algorithm", "use --clip-norm X or --clip-value X"},
    {"--norm-weight-decay", "leave it out: --decay matrices, the default, spares norms and biases"},
    {"--bias-weight-decay", "leave it out: --decay matrices, the default, spares norms and biases"},
    {"--warmup-momentum", kRates},
    {"--layer-decay", kOneRate},
    {"--warmup-bias-lr", kOneRate},
    {"--base-lr", kScaleLr},
    {"--blr", kScaleLr},
    {"--lr-base*", kScaleLr},
    {"--nbs", kScaleLr},
    {"--lrf", "use --min-lr RATE, the lowest rate itself, not its share of --lr"},
    {"--cos-lr", "use --schedule cosine"},
    {"--cosine", "use --schedule cosine"},
    {"--decay-epochs", kStep},
    {"--decay-rate", kStep},
    {"--step-size", kStep},
    {"--gamma", kStep},
    {"--lr-step-size", kStep},
    {"--lr-gamma", kStep},
    {"--milestones", kMultistep},
    {"--lr-milestones", kMultistep},
    {"--decay-milestones", kMultistep},
    {"--patience-epochs", kPlateau},
    {"--cooldown-epochs", "leave it out; --schedule cosine decays over the whole run"},
    {"--warmup-ratio", "use --warmup N, or Ne for epochs, which may be a fraction such as 0.5e"},
    {"--warmup-*", "leave it out: --warmup N begins near 0"},
    {"--lr-warmup-*", "leave it out: --warmup N begins near 0"},
    {"--lr-noise*", kRates},
    {"--lr-cycle-*", kRates},
    {"--lr-k-decay", kRates},
    {"--sched-on-updates", "leave it out: schedules follow steps"},
    // Length and validation.
    {"--min-epochs", "leave it out: without --early-stop, a run has all of its --epochs"},
    {"--min-steps", "leave it out: without --early-stop, a run has all of its --epochs"},
    {"--epoch-repeats", "use more --epochs"},
    {"--time", "use --max-time TIME"},
    {"--patience", kStop},
    {"--early-stopping*", kStop},
    {"--eval-interval", kValidation},
    {"--eval-every", kValidation},
    {"--eval-freq", kValidation},
    {"--eval-strategy", kValidation},
    {"--evaluation-strategy", kValidation},
    {"--val-interval", kValidation},
    {"--val-freq", kValidation},
    {"--eval-metric", kBest},
    {"--load-best-model-at-end", kBest},
    {"--metric-for-best-model", kBest},
    {"--limit-test-batches", kTestLimit},
    {"--limit-predict-batches", kTestLimit},
    {"--fraction", kLimit},
    {"--train-percent-check", kLimit},
    {"--val-percent-check", "use --limit-val-batches SHARE, as in --limit-val-batches 0.1"},
    {"--tta", "leave it out: validation uses each image once"},
    {"--auto-lr-find", "use --find-lr"},
    {"--auto-scale-batch-size", "use --find-batch-size"},
    {"--per-device-train-batch-size", "use --batch-size N, the images of all devices together"},
    {"--per-device-eval-batch-size", "use --val-batch-size N"},
    {"--do-train", "leave it out: the program trains"},
    {"--do-eval", "leave it out: each epoch ends with a validation; --validate-only does nothing else"},
    // Data and augmentation.
    {"--data-path", kImages},
    {"--dataset*", kImages},
    {"--dataroot", kImages},
    {"--root", kImages},
    {"--train-split", kImages},
    {"--class-map", kImages},
    {"--input-key", kImages},
    {"--target-key", kImages},
    {"--dummy", "use --data synthetic"},
    {"--cache", "use --data-on-device for data sets in memory; files stay in the system's cache"},
    {"--cache-*", "use --data-on-device for data sets in memory; files stay in the system's cache"},
    {"--pin-mem", "use --pin-memory on, which is the default"},
    {"--no-prefetcher", "use --prefetch 1"},
    {"--prefetch-factor", "use --prefetch N, the number of batches"},
    {"--use-multi-epochs-loader", "use --persistent-workers on, which is the default"},
    {"--reload-dataloaders-every-n-epochs", "leave it out: the data set stays open"},
    {"--no-shuffle", "leave it out: training images are always shuffled"},
    {"--shuffle", "leave it out: training images are always shuffled"},
    {"--mean", kNormalised},
    {"--std", kNormalised},
    {"--crop-pct", kPreparing},
    {"--crop-mode", kPreparing},
    {"--val-resize-size", kPreparing},
    {"--val-crop-size", kPreparing},
    {"--resize-size", kPreparing},
    {"--crop-size", "use --image-size PIXELS"},
    {"--interpolation", "leave it out: images are resized bilinearly"},
    {"--train-interpolation", "leave it out: images are resized bilinearly"},
    {"--train-crop-mode", kCrop},
    {"--scale", kCrop},
    {"--ratio", kCrop},
    {"--no-aug", "use --augment none"},
    {"--no-augment", "use --augment none"},
    {"--hflip", "use --augment flip"},
    {"--fliplr", "use --augment flip"},
    {"--horizontal-flip", "use --augment flip"},
    {"--reprob", kErasing},
    {"--remode", kErasing},
    {"--recount", kErasing},
    {"--resplit", kErasing},
    {"--random-erase", kErasing},
    {"--random-erasing", kErasing},
    {"--erasing", kErasing},
    {"--aa", kPolicy},
    {"--auto-augment", kPolicy},
    {"--rand-augment", kPolicy},
    {"--randaugment", kPolicy},
    {"--ra-magnitude", kPolicy},
    {"--mixup*", kMixup},
    {"--cutmix*", kCutmix},
    {"--cutout*", "use --augment cutout:PIXELS"},
    {"--color-jitter*", kColour},
    {"--hsv-*", kColour},
    {"--ra-*", kNoAugment},
    {"--aug-*", kNoAugment},
    {"--vflip", kNoAugment},
    {"--flipud", kNoAugment},
    {"--degrees", kNoAugment},
    {"--rotate", kNoAugment},
    {"--rotation", kNoAugment},
    {"--translate", kNoAugment},
    {"--shear", kNoAugment},
    {"--perspective", kNoAugment},
    {"--bgr", kNoAugment},
    {"--grayscale*", kNoAugment},
    {"--gaussian-blur*", kNoAugment},
    {"--augmix*", kNoAugment},
    {"--trivial-augment", kNoAugment},
    {"--multi-scale", kNoAugment},
    {"--mosaic", kDetection},
    {"--close-mosaic", kDetection},
    {"--copy-paste*", kDetection},
    {"--overlap-mask", kDetection},
    {"--mask-ratio", kDetection},
    {"--single-cls", kDetection},
    {"--rect", kDetection},
    {"--iou", kDetection},
    {"--conf", kDetection},
    {"--max-det", kDetection},
    {"--box", kDetection},
    {"--cls", kDetection},
    {"--dfl", kDetection},
    // Output.
    {"--project", kRunDir},
    {"--name", kRunDir},
    {"--experiment", kRunDir},
    {"--exp-name", kRunDir},
    {"--run-name", kRunDir},
    {"--weights-save-path", kRunDir},
    {"--exist-ok", "leave it out: a new run never writes into the folder of another"},
    {"--overwrite-output-dir", "leave it out: a new run never writes into the folder of another"},
    {"--save-period", "use --checkpoint-every STEPS"},
    {"--save-every", "use --checkpoint-every STEPS"},
    {"--save-freq", "use --checkpoint-every STEPS"},
    {"--save-interval", "use --checkpoint-every STEPS"},
    {"--recovery-interval", "use --checkpoint-every STEPS"},
    {"--save", "leave it out: a run saves its weights; --run-dir none saves nothing"},
    {"--no-save", "use --run-dir none"},
    {"--nosave", "use --run-dir none"},
    {"--save-images", "leave it out: report.html shows the worst mistakes"},
    {"--save-best*", kBest},
    {"--enable-checkpointing", "use --run-dir none to save nothing"},
    {"--checkpoint-callback", "use --run-dir none to save nothing"},
    {"--plots", "leave it out: report.html has the curves"},
    {"--verbose", "leave it out; --progress off prints errors only"},
    {"--quiet", "use --progress off"},
    {"--no-progress-bar", "use --progress off"},
    {"--enable-progress-bar", "use --progress off to turn it off"},
    {"--progress-bar-refresh-rate", "use --progress off to turn it off"},
    {"--barebones", "use --run-dir none --progress off"},
    {"--weights-summary", "use --summary"},
    {"--track-grad-norm", "leave it out: each step's gradient norm is in metrics.jsonl"},
    {"--log-wandb", kLoggers},
    {"--wandb*", kLoggers},
    {"--report-to", kLoggers},
    {"--tensorboard", "use --logger json,tensorboard"},
    {"--use-tensorboard", "use --logger json,tensorboard"},
    {"--callbacks", "leave it out: --early-stop, --monitor, --save-top-k and --ema are flags"},
    {"--plugins", "leave it out: --precision and --strategy name what there is"},
    {"-c", "use --recipe FILE, with NAME = \"VALUE\" in each line"},
    {"--config", "use --recipe FILE, with NAME = \"VALUE\" in each line"},
    {"--cfg", "use --recipe FILE, with NAME = \"VALUE\" in each line"},
    {"--hyp", "use --recipe FILE, with NAME = \"VALUE\" in each line"},
    {"--worker-seeding", "leave it out: --seed gives the same images for any number of workers"},
};

bool is(std::span<const std::string> known, const std::string& flag) {
  return std::find(known.begin(), known.end(), flag) != known.end();
}

/// With dashes and without the sections of LightningCLI: "--trainer.max_epochs" becomes "--max-epochs".
std::string dashed(std::string name) {
  if (!name.starts_with("--")) return name;
  const std::size_t dot = name.rfind('.');
  if (dot != std::string::npos) name.erase(2, dot - 1);
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

bool implies_gpus(const std::string& flag) {
  return flag == "--gpus" || flag == "--num-gpus";
}

/// Whether it may be another tool's flag: a word that begins with "--", or a short one of the table.
bool is_flag(const std::string& word) {
  return (word.starts_with("--") && word.size() > 2) || (word.starts_with("-") && twin_of(word));
}

}  // namespace

std::vector<std::string> translate_flags(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& known,
                                         const std::vector<std::string>& switches) {
  std::vector<std::string> ours;
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    if (!is_flag(*at)) {
      ours.push_back(*at);
      continue;
    }
    const std::size_t equals = at->find('=');
    const bool joined = equals != std::string::npos;
    const bool apart = !joined && at + 1 != arguments.end() && !(at + 1)->starts_with("--");
    const std::string theirs = at->substr(0, equals);
    const std::string value = joined ? at->substr(equals + 1) : apart ? *(at + 1) : "";
    const OurName name = name_here(theirs, known);
    if (implies_gpus(dashed(theirs)) && is(known, "--device")) {
      ours.emplace_back(value == "0" ? "--device=cpu" : "--device=cuda");
      if (value == "0") {
        at += apart ? 1 : 0;
        continue;
      }
    }
    const std::optional<std::string> here = value_here(name, value);
    if (!here && is(switches, name.flag) &&
        (value == "True" || value == "true" || value == "False" || value == "false")) {
      if (value == "True" || value == "true") ours.push_back(name.flag);
      at += apart ? 1 : 0;
      continue;
    }
    ours.push_back(here ? name.flag + "=" + *here : joined ? name.flag + at->substr(equals) : name.flag);
    if (here && apart) ++at;
  }
  return ours;
}

std::string flag_advice(const std::string& flag) {
  const std::string name = dashed(flag);
  for (const Answer& answer : kAnswers) {
    const bool open = answer.theirs.ends_with('*');
    const std::string_view start = answer.theirs.substr(0, answer.theirs.size() - (open ? 1 : 0));
    if (open ? name.starts_with(start) : name == start) return std::string(answer.instead);
  }
  return {};
}

}  // namespace athanor
