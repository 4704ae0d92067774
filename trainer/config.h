#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/loader.h"
#include "dist/bucket_layout.h"
#include "dist/collectives/communicator.h"
#include "kernels/augment.h"
#include "kernels/step_rules.h"
#include "optim/optimizer.h"
#include "optim/precision.h"
#include "optim/schedule.h"
#include "trainer/flags/recipe.h"

namespace athanor {

/// Whether less of a metric is better, or more.
enum class Goal : std::uint8_t { minimum, maximum };

/// --early-stop METRIC:PATIENCE[:min|max], and --monitor METRIC[:min|max], which keeps the best weights and
/// never stops.
struct EarlyStop {
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  std::string metric;         ///< val_loss, val_accuracy, train_loss, or what a task logs: val_psnr
  std::int64_t patience = 0;  ///< validations in a row without a better value
  std::optional<Goal> goal = {};
  double min_delta = 0;                   ///< a better value is one that is better by more than this
  std::optional<double> stop_at = {};     ///< as good as this is good enough: training ends
  std::optional<double> diverge_at = {};  ///< worse than this is hopeless: training ends

  /// As said; else less of what ends in "loss" or "error" is better, and more of what ends in "accuracy".
  /// Throws ArgumentError on other names.
  Goal goal_or_default() const;
  const char* flag() const { return patience == kNever ? "--monitor" : "--early-stop"; }
};

/// --freeze PREFIX[:EPOCHS]: a part of the network that does not train (freezing.h).
struct Freeze {
  static constexpr std::int64_t kAlways = std::numeric_limits<std::int64_t>::max();

  std::string prefix;             ///< a module's dotted name: "features", "layer1.0"
  std::int64_t epochs = kAlways;  ///< of the run, after which it trains
};

/// What several ranks share: nothing, because there is one; gradients; or also masters and optimizer state.
enum class Strategy : std::uint8_t { automatic, single, ddp, zero1 };

constexpr std::string_view name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::automatic: return "auto";
    case Strategy::single: return "single";
    case Strategy::ddp: return "ddp";
    case Strategy::zero1: return "zero1";
  }
  return "?";
}

/// A part of an epoch's batches: so many, or a share of them, at least one.
struct BatchLimit {
  std::int64_t count = -1;  ///< -1: `share`
  double share = 1;

  std::int64_t of(std::int64_t batches) const {
    if (count >= 0) return std::min(count, batches);
    return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(batches)));
  }
};

/// What a run is asked in place of training: it answers, leaves everything as it was, and trains nothing.
enum class Question : std::uint8_t { none, learning_rate, batch_size };

/// What is said at the end of where the time went.
enum class Profile : std::uint8_t { none, simple, advanced, trace };

/// A flag of the program's own, as it was set.
struct OwnFlag {
  std::string name;  ///< "--temperature"
  std::string value;
};

/// A flag that all programs share, or one of the program's own, as config.json tells of it.
struct FlagValue {
  std::string name;      ///< "--epochs"
  std::string value;     ///< as it was given; else the default, in the words of --help
  std::string from;      ///< "flag", "default", a recipe's file, or the name of a variable of the environment
  bool is_list = false;  ///< several values, with spaces between them
};

/// What a Trainer does. A program sets its defaults, and parse_flags() lets the user change them.
struct TrainerConfig {
  std::string program = "athanor";  ///< for messages
  std::string model = {};           ///< a name nn::make_model() knows, where the program asks for one
  /// The names --model accepts; empty: the program has one model of its own.
  std::vector<std::string> models = {};
  std::string phase = {};                 ///< Trainer::phase(); empty: the run has one
  std::vector<std::string> command = {};  ///< the program's arguments, for config.json
  /// The program that predicts with its models, to be named at the end: itself, where it has tool_main().
  /// Empty: `athanor`, if it lies beside.
  std::filesystem::path tool = {};
  std::vector<FlagValue> flags = {};  ///< what parse_flags() made of them
  /// Settings of the run beside those below: a run that goes on must have the same.
  std::vector<OwnFlag> own_flags = {};

  std::int64_t epochs = 10;
  std::int64_t max_steps = -1;                                  ///< attempted steps; -1: no limit
  double max_time_s = std::numeric_limits<double>::infinity();  ///< of training, looked at after each step
  std::int64_t batch_size = 64;     ///< of one backward pass, of all ranks together
  std::int64_t val_batch_size = 0;  ///< 0: the larger of batch_size and 256
  std::int64_t validated_at_once() const {
    return val_batch_size > 0 ? val_batch_size : std::max<std::int64_t>(batch_size, 256);
  }
  std::int64_t accumulate = 1;  ///< backward passes per step
  double lr = 0.1;              ///< the schedule's highest rate
  double clip_norm = 0;         ///< of all gradients together; 0: no clipping
  double clip_value = 0;        ///< of each gradient; 0: no clipping
  double skip_outliers = 0;     ///< skips steps whose gradient norm is so many deviations off; 0: none
  double ema_decay = 0;         ///< of a running average of the weights, which is validated; 0: none
  std::optional<EarlyStop> early_stop = {};

  static constexpr int kAllDevices = -1;
  int devices = 0;  ///< ranks on this machine; 0: one, or as many as were started; kAllDevices: one per GPU
  Strategy strategy = Strategy::automatic;  ///< automatic: ddp where there are several ranks
  bool sync_bn = false;                     ///< batch norms over the samples of all ranks
  bool overlap = true;  ///< gradients and weights travel while passes compute; no bit depends on it
  int local_ranks = 1;  ///< that share this machine's cores; see run_on_ranks()
  /// For records of a rank that cannot go on; empty: checkpoint_dir, or here.
  std::filesystem::path flight_dir = {};
  std::string ranks_note = {};  ///< who has started them, or why there is one
  static constexpr int kMeasuredThreads = -1;
  /// 0: as many as there are cores, divided among the ranks of this machine; kMeasuredThreads: one or as many
  /// as that, whichever makes the first steps faster.
  int threads = 0;
  Precision precision = Precision::f32;
  /// Unset: dynamic from 65536 for f16, else 1 for ever.
  std::optional<LossScaling> loss_scaling = {};
  bool f32_gradients = false;  ///< in a half precision, too; always where batches are accumulated
  Device device = kCpu;
  std::string device_note = {};  ///< which GPU it is, or why it is that device
  std::uint64_t seed = 0;
  int workers = LoaderOptions::kAuto;  ///< threads that read data; 0: the training thread itself
  bool pin_memory = true;              ///< of batches on their way to a GPU
  bool persistent_workers = true;      ///< those threads outlive the epoch
  bool fused = true;                   ///< activations and residual sums are computed along the way
  bool progress = true;                ///< tell on stdout how it goes
  int prefetch = 4;                    ///< batches there is memory for, of training and of validation
  BadSamples bad_samples = {};         ///< what becomes of samples that cannot be read
  Order order = Order::random;         ///< of the training set's samples
  bool data_on_device = false;         ///< keeps data sets that are in memory on the device
  bool deterministic = false;
  bool forbid_sync = false;  ///< waiting for the device inside a step is an error
  /// So many steps, and batches of validation, to try everything: nothing is left behind; 0: a real run.
  std::int64_t fast_dev_run = 0;
  TrainingLength val_every = {1, true};  ///< and at the end of the run
  BatchLimit limit_train_batches = {},
             limit_val_batches = {};  ///< of each epoch; of each validation, may be 0
  std::int64_t overfit_batches = 0;   ///< the same few batches in every epoch, unshuffled; 0: all, shuffled
  std::int64_t sanity_val = 0;  ///< batches of validation before training, to find out whether they work
  /// The first gradient that is not finite, at the lowest loss scale, is an error that names its op; else
  /// such steps are skipped, and patience_at_floor of them in a row are that error.
  bool stop_on_nan = false;
  std::int64_t synthetic_images = 0;  ///< made-up images in place of the data set's; 0: none
  std::int64_t memory_limit = 0;      ///< bytes of tensors; 0: none
  Profile profile = Profile::none;
  Question question = Question::none;
  std::filesystem::path lr_curve = {};  ///< where the answer on the learning rate is drawn, as SVG; empty: no
  /// The run's own folder (run_folder.h): its weights, metrics.jsonl, checkpoints/ and samples/ are in it,
  /// unless they are named; empty: none, or one below run_root.
  std::filesystem::path run_dir = {};
  /// Where run_dir is empty, the run makes itself the next folder below this one; with resume = "auto" it
  /// goes on in that of the newest run that had the same settings and was not finished. Empty: none.
  std::filesystem::path run_root = {};
  std::filesystem::path checkpoint_dir = {};  ///< checkpoints are saved there; empty: none
  /// Attempted steps, or seconds of training; neither: once per epoch. At the end in any case.
  std::int64_t checkpoint_every = 0;
  double checkpoint_every_s = std::numeric_limits<double>::infinity();
  bool saves_each_epoch() const {
    return save_top_k > 0 || (checkpoint_every == 0 && std::isinf(checkpoint_every_s));
  }
  std::int64_t checkpoint_keep = 3;  ///< the newest ones
  std::int64_t save_top_k = 0;       ///< kept besides: the best ones by early_stop's metric
  bool async_checkpoints = false;    ///< training goes on while a copy is written
  std::string resume = {};  ///< "auto": the newest in checkpoint_dir, if any; a checkpoint; empty: begin
  std::filesystem::path pretrained = {};  ///< weights to begin with, see nn/pretrained.h; empty: random ones
  bool validate_only = false;             ///< evaluate.h: train nothing, measure what a run has left
  bool reset_head = false;                ///< the last layer begins with random weights all the same
  std::vector<Freeze> freeze = {};        ///< parts of the network that do not train
  std::filesystem::path metrics = {};     ///< JSON lines are appended there; empty: none
  /// --logger: which files of run_dir steps and epochs are written to (loggers.h).
  bool log_json = true, log_csv = false, log_tensorboard = false;
  std::int64_t log_every = 50;  ///< attempted steps: of those, loggers are told one by one
  bool summary = false;         ///< layers, with their shapes and costs, are shown before training (layers.h)
  bool report = true;           ///< report.html in run_dir, where there is one
  std::filesystem::path data_dir = {};  ///< --data-dir, else ATHANOR_DATA_DIR, else "data-cache"

  // Of programs whose images have any size: with image_size 0 there are no such flags.
  std::int64_t image_size = 0;                           ///< pixels a side that they are brought to
  std::filesystem::path train_data = {}, val_data = {};  ///< where they are; empty: below data_dir
  std::filesystem::path photos = {};     ///< both in one place: of each class val_split are validated on
  double val_split = 0.2;                ///< in (0, 1)
  std::filesystem::path test_data = {};  ///< what is measured once, at the end; empty: nothing

  dist::CommunicatorOptions collectives{.algorithm = dist::Algorithm::automatic};  ///< of several ranks
  dist::BucketOptions buckets = {};
  /// Of bytes / 255, for each channel; empty: measured on the training set, which reads all of it.
  std::vector<double> pixel_mean = {}, pixel_stddev = {};
  std::int64_t patience_at_floor = 16;  ///< overflows in a row at the lowest loss scale that are an error

  // The recipe (recipe.h).
  std::filesystem::path recipe = {};  ///< the file that some of the flags are from; empty: none
  OptimizerKind optimizer_kind = OptimizerKind::sgd;
  double momentum = 0.9;              ///< of sgd and muon
  bool nesterov = true;               ///< where there is momentum
  double beta1 = 0.9, beta2 = 0.999;  ///< of adam and adamw
  double weight_decay = 5e-4;
  Decay decay = Decay::matrices;  ///< what weight_decay applies to: matrices and filters only, or all
  ScheduleOptions schedule_options = {};
  std::optional<TrainingLength> warmup = {};  ///< unset: none, but for one cycle, which rises for a quarter
  double min_lr = 0;
  LrScaling lr_scaling = LrScaling::none;
  std::int64_t lr_scaling_batch = 256;  ///< that lr was chosen for
  double label_smoothing = 0;
  std::optional<double> dropout = {};  ///< of all the model's dropout layers; unset: the model's own
  /// What each class's part of training losses is multiplied by: so that the sums of all classes weigh the
  /// same, samples / (classes * samples of the class).
  bool balanced_classes = false;
  Augment augment = {};
  std::int64_t views = 1;  ///< of each image, changed apart from one another: Batch::view()
  /// The program's own learning rate over `steps` steps with the highest rate `lr`; unset: schedule_options.
  std::function<Schedule(double lr, std::int64_t steps)> schedule = {};
  /// The program's own optimizer; unset: optimizer_kind.
  std::function<std::unique_ptr<Optimizer>(ParameterArena&)> optimizer = {};
};

/// What --help asks for: text for stdout, not an error.
class HelpRequested : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The flags every training program shares, over `defaults`; and what the environment says beside them
/// (ATHANOR_DATA_DIR, ATHANOR_DIST_DEBUG). Throws ArgumentError: one line that says which
/// flag, what it must be, and what to do; and HelpRequested.
TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig defaults);

/// With metrics and checkpoint_dir in run_dir, where there is one and they are not set.
TrainerConfig in_run_dir(TrainerConfig config);

/// Checks what flags and programs may set. Throws ArgumentError.
void check(const TrainerConfig& config);
void check(const EarlyStop& options);

}  // namespace athanor
