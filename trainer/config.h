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
#include <string_view>
#include <utility>
#include <vector>

#include "data/image/transform.h"
#include "data/label_kind.h"
#include "data/loader.h"
#include "dist/bucket_layout.h"
#include "dist/collectives/communicator.h"
#include "kernels/augment.h"
#include "kernels/step_rules.h"
#include "optim/optimizer.h"
#include "optim/precision.h"
#include "optim/schedule.h"
#include "trainer/flags/recipe.h"
#include "trainer/task_loss.h"
#include "trainer/test_views.h"

namespace athanor {

/// Whether a metric is to be minimised or maximised.
enum class Goal : std::uint8_t { minimum, maximum };

/// --early-stop METRIC:PATIENCE[:min|max], which also keeps the best weights; and --monitor METRIC[:min|max],
/// which only does that: it has no patience. Both end the run at a value that is not finite.
struct EarlyStop {
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  std::string metric;         ///< val_loss, val_accuracy, train_loss, or a task's own: val_psnr
  std::int64_t patience = 0;  ///< number of consecutive validations without a better value
  std::optional<Goal> goal = {};
  double min_delta = 0;                   ///< minimum improvement
  std::optional<double> stop_at = {};     ///< target: training ends at this value or a better one
  std::optional<double> diverge_at = {};  ///< training ends at a worse value

  /// `goal`, else minimum for names ending in "loss", "error", "mae" or "rmse", and maximum for "accuracy",
  /// "mAP", "f1_micro", "f1_macro" or "r2". Throws ArgumentError on other names.
  Goal goal_or_default() const;
  const char* flag() const { return patience == kNever ? "--monitor" : "--early-stop"; }
};

/// --freeze PREFIX[:EPOCHS]: a part of the network that is not trained.
struct Freeze {
  static constexpr std::int64_t kAlways = std::numeric_limits<std::int64_t>::max();

  std::string prefix;             ///< a module's dotted name: "features", "layer1.0"
  std::int64_t epochs = kAlways;  ///< of the run, after which it is trained
};

/// Training images of one size from an epoch on, 0 being the first.
struct SizeFrom {
  ImageSize size = {};
  std::int64_t epoch = 0;
  bool operator==(const SizeFrom&) const = default;
};

/// --freeze-bn: what batch norms keep during a run.
enum class FreezeNorms : std::uint8_t {
  none,
  statistics,  ///< they normalise by their running statistics, which stay as they are
  all,         ///< scales and shifts stay, too
};

/// --class-weights: factors of training losses. None: 1 for all.
struct ClassWeights {
  bool balanced = false;                                ///< all classes have equal total weight
  std::vector<std::pair<std::string, double>> of = {};  ///< by name; 1 for other classes
};

/// --sampler: how often an epoch has each training sample. LoaderOptions::weights.
enum class Sampler : std::uint8_t {
  none,      ///< once
  balanced,  ///< drawn with replacement, all classes equally often
  weights,   ///< drawn with replacement, in proportion to its field "weight"
};

/// "none", "balanced" or "weights", as `--sampler` writes it.
constexpr std::string_view name_of(Sampler sampler) {
  switch (sampler) {
    case Sampler::none: return "none";
    case Sampler::balanced: return "balanced";
    case Sampler::weights: return "weights";
  }
  return "?";
}

/// What ranks share: nothing (a single rank); gradients; or also masters and optimizer state.
enum class Strategy : std::uint8_t { automatic, single, ddp, zero1 };

/// "single", "ddp", "zero1" or "auto", as `--strategy` writes it.
constexpr std::string_view name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::automatic: return "auto";
    case Strategy::single: return "single";
    case Strategy::ddp: return "ddp";
    case Strategy::zero1: return "zero1";
  }
  return "?";
}

/// A limit on an epoch's batches: a number, or a share of at least one batch.
struct BatchLimit {
  std::int64_t count = -1;  ///< -1: use `share`
  double share = 1;

  std::int64_t of(std::int64_t batches) const {
    if (count >= 0) return std::min(count, batches);
    return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(batches)));
  }
};

/// A question that a run answers instead of training, without changing anything.
enum class Question : std::uint8_t { none, learning_rate, batch_size };

/// --graph: whether a GPU's work of a step is captured as CUDA graphs (step_graphs.h). Automatic: where it
/// can be, and the network is made of the library's modules alone.
enum class GraphMode : std::uint8_t { automatic, on, off };

/// Where images of different sizes are prepared. Automatic: --decode on the CPU, whose pixels are the same
/// everywhere; --resize-on the GPU, if the run is on one.
enum class ImageWork : std::uint8_t { automatic, cpu, gpu };

/// How detailed the final report on time is.
enum class Profile : std::uint8_t { none, simple, advanced, trace };

/// A custom flag of the program, with its value.
struct OwnFlag {
  std::string name;  ///< "--temperature"
  std::string value;
};

/// A shared or custom flag, as config.json records it.
struct FlagValue {
  std::string name;      ///< "--epochs"
  std::string value;     ///< as given; else the default, in the words of --help
  std::string from;      ///< "flag", "default", a recipe file, or an environment variable
  bool is_list = false;  ///< several values, separated by spaces
};

/// The configuration of a Trainer. A program sets its defaults; parse_flags() lets the user change them. A
/// member with a flag has at least one row in flags/settings_table.cpp, which names, reads, prints and
/// compares it.
struct TrainerConfig {
  // The program ---------------------------------------------------------------------------------------------
  std::string program = "athanor";        ///< for messages
  std::string model = {};                 ///< a name for nn::make_model(), if the program uses it
  std::vector<std::string> models = {};   ///< the names --model accepts; empty: the program has a fixed model
  std::string phase = {};                 ///< Trainer::phase(); empty: a single phase
  std::vector<std::string> command = {};  ///< the program's arguments, for config.json
  /// The program for predictions, named at the end of a run: itself, if it has tool_main(). Empty: `athanor`,
  /// if it is in the same folder.
  std::filesystem::path tool = {};
  std::vector<FlagValue> flags = {};    ///< as set by parse_flags()
  std::vector<OwnFlag> own_flags = {};  ///< further settings of the run: a resumed run must have the same

  // Training ------------------------------------------------------------------------------------------------
  std::int64_t epochs = 10;
  std::int64_t max_steps = -1;                                  ///< attempted steps; -1: no limit
  double max_time_s = std::numeric_limits<double>::infinity();  ///< of training, checked after each step
  std::int64_t batch_size = 64;                                 ///< of one backward pass, over all ranks
  std::int64_t val_batch_size = 0;                              ///< 0: the larger of batch_size and 256
  std::int64_t validated_at_once() const {
    return val_batch_size > 0 ? val_batch_size : std::max<std::int64_t>(batch_size, 256);
  }
  std::int64_t accumulate = 1;  ///< backward passes per step
  double lr = 0.1;              ///< the schedule's highest rate
  double clip_norm = 0;         ///< of all gradients together; 0: no clipping
  double clip_value = 0;        ///< of each gradient; 0: no clipping
  double skip_outliers = 0;     ///< maximum deviations of a step's gradient norm, else skipped; 0: off
  double ema_decay = 0;         ///< of a running average of the weights, used for validation; 0: none
  std::int64_t ema_every = 1;   ///< applied steps from one update of that average to the next
  std::optional<EarlyStop> early_stop = {};
  /// Keeps the best weights in place of early_stop, which then only stops; --monitor alone is an early_stop
  /// without patience.
  std::optional<EarlyStop> monitor = {};
  /// By which of them weights, checkpoints and --schedule plateau are judged.
  const std::optional<EarlyStop>& judged_by() const { return monitor ? monitor : early_stop; }
  std::vector<Freeze> freeze = {};  ///< parts of the network that are not trained
  FreezeNorms freeze_norms = FreezeNorms::none;
  std::uint64_t seed = 0;

  // Ranks ---------------------------------------------------------------------------------------------------
  static constexpr int kAllDevices = -1;
  int devices = 0;  ///< ranks on this machine; 0: one, or those started; kAllDevices: one per GPU
  Strategy strategy = Strategy::automatic;  ///< automatic: ddp if there are several ranks
  bool sync_bn = false;                     ///< batch norms use the samples of all ranks
  bool overlap = true;                      ///< overlap communication with computation; results do not change
  int max_restarts = 0;  ///< of the ranks of `devices`, after one was lost; needs resume = "auto"
  int local_ranks = 1;   ///< that share this machine's cores; see run_on_ranks()
  /// For flight records of a failing rank; empty: checkpoint_dir, or the current folder.
  std::filesystem::path flight_dir = {};
  std::string ranks_note = {};  ///< which launcher started them, or why there is one
  dist::CommunicatorOptions collectives{.algorithm = dist::Algorithm::automatic};
  dist::BucketOptions buckets = {};

  // Device and precision ------------------------------------------------------------------------------------
  static constexpr int kMeasuredThreads = -1;
  /// 0: the number of cores, divided among the ranks of this machine; kMeasuredThreads: one or that number,
  /// whichever makes the first steps faster.
  int threads = 0;
  Precision precision = Precision::f32;
  std::optional<LossScaling> loss_scaling = {};  ///< unset: dynamic from 65536 for f16, else constant 1
  bool f32_gradients = false;  ///< also in a half precision; always when accumulating batches
  Device device = kCpu;
  std::string device_note = {};            ///< which GPU it is, or why this device
  std::int64_t memory_limit = 0;           ///< bytes of tensors; 0: none
  GraphMode graph = GraphMode::automatic;  ///< capture a step's work on a GPU
  bool fused = true;                       ///< fuse activations and residual sums
  bool inference_mode = true;              ///< validation records no graph
  bool empty_cache = false;                ///< return cached memory to the system after each step
  bool sync_each_step = false;             ///< wait for the device after each step
  bool deterministic = false;
  bool benchmark = false;    ///< measure on the CPU which implementation of each convolution is fastest
  bool forbid_sync = false;  ///< waiting for the device inside a step is an error

  // Data ----------------------------------------------------------------------------------------------------
  std::filesystem::path data_dir = {};   ///< --data-dir, else ATHANOR_DATA_DIR, else "data-cache"
  std::int64_t synthetic_images = 0;     ///< synthetic images instead of the data set; 0: none
  int workers = LoaderOptions::kAuto;    ///< loader threads; 0: load in the training thread
  bool pin_memory = true;                ///< for batches copied to a GPU
  bool persistent_workers = true;        ///< loader threads live across epochs
  int prefetch = 4;                      ///< batches in memory, for training and validation each
  BadSamples bad_samples = {};           ///< policy for samples that cannot be read
  Order order = Order::random;           ///< of the training set's samples
  Sampler sampler = Sampler::none;       ///< of the training set
  bool data_on_device = false;           ///< keep in-memory data sets on the device
  bool strict_data = false;              ///< unused parts of sources, and images in both sets, are errors
  std::vector<Unused> unused_data = {};  ///< what the program itself leaves out, beside Dataset::unused()
  /// For bytes / 255, per channel; empty: measured on the training set, which reads all of it.
  std::vector<double> pixel_mean = {}, pixel_stddev = {};

  // Images of any size, if the program accepts them; image_size 0 removes these flags -----------------------
  std::int64_t image_size = 0;   ///< pixels a side, after resizing; or the height, with
  std::int64_t image_width = 0;  ///< the width of images that are not square; 0: image_size
  ImageSize size_of_images() const { return {image_size, image_width > 0 ? image_width : image_size}; }
  /// Progressive sizes of training images, in the order of epochs from 0 on, the last being
  /// size_of_images(); empty: that size in all epochs.
  std::vector<SizeFrom> image_sizes = {};
  ImageSize val_image_size = {};  ///< of validation, and of what the saved model takes; empty: image_size
  ImageSize validated_image_size() const {
    return val_image_size.height > 0 ? val_image_size : size_of_images();
  }
  ResizeMode resize = ResizeMode::crop;
  double crop_share = kUsualCropShare;  ///< of ResizeMode::crop, see central_crop()
  int padding = kUsualPadding;          ///< of ResizeMode::pad, a byte
  Resampling interpolation = Resampling::bilinear;
  ImageWork decode = ImageWork::automatic;     ///< of plain JPEG files
  ImageWork resize_on = ImageWork::automatic;  ///< the same bits on both
  std::filesystem::path train_data = {};       ///< the training images' folder; empty: below data_dir
  std::filesystem::path val_data = {};         ///< the validation images'; likewise
  std::string fields = {};                     ///< OpenOptions::fields of all of these
  std::filesystem::path photos = {};           ///< folder for both: val_split of each class is for validation
  double val_split = 0.2;                      ///< in (0, 1)
  std::filesystem::path test_data = {};        ///< measured once, at the end; empty: none

  // Validation and limits -----------------------------------------------------------------------------------
  TestViews tta = TestViews::none;       ///< views of an image, averaged in validation
  TrainingLength val_every = {1, true};  ///< also at the end of the run
  BatchLimit limit_train_batches = {};   ///< of each epoch
  BatchLimit limit_val_batches = {};     ///< of each validation; may be 0
  std::int64_t overfit_batches = 0;  ///< the same few batches in every epoch, unshuffled; 0: all, shuffled
  std::int64_t sanity_val = 0;       ///< validation batches before training, to detect errors early
  /// Number of steps, and of validation batches, of a trial run that leaves nothing behind; 0: a real run.
  std::int64_t fast_dev_run = 0;
  /// Fails at the first non-finite gradient at the lowest loss scale, naming its op. Otherwise such steps are
  /// skipped, and max_overflows_at_floor of them in a row are an error.
  bool stop_on_nan = false;
  std::int64_t max_overflows_at_floor = 16;

  // The run's folder, checkpoints and reports ---------------------------------------------------------------
  /// The run's folder (run_folder.h): by default it holds weights, metrics.jsonl, checkpoints/ and samples/.
  /// Empty: none, or a new one below run_root.
  std::filesystem::path run_dir = {};
  /// Used if run_dir is empty: the run creates the next folder below this one. With resume = "auto" it
  /// continues in the folder of the newest unfinished run with the same settings. Empty: none.
  std::filesystem::path run_root = {};
  std::filesystem::path checkpoint_dir = {};  ///< folder for checkpoints; empty: none
  /// Interval in attempted steps, or in seconds of training; neither: each epoch. Always at the end.
  std::int64_t checkpoint_every = 0;
  double checkpoint_every_s = std::numeric_limits<double>::infinity();
  bool saves_each_epoch() const {
    return save_top_k > 0 || (checkpoint_every == 0 && std::isinf(checkpoint_every_s));
  }
  std::int64_t checkpoint_keep = 3;  ///< the newest ones
  std::int64_t save_top_k = 0;       ///< additionally keeps the best ones by early_stop's metric
  bool async_checkpoints = false;    ///< training continues while a copy is written
  std::string resume = {};           ///< "auto": newest in checkpoint_dir, if any; a checkpoint; empty: fresh
  std::filesystem::path pretrained = {};  ///< initial weights, see nn/pretrained.h; empty: random ones
  bool pretrained_ema = true;             ///< of weights and their running average in a file, the average
  bool validate_only = false;             ///< evaluate.h: only measure a run's result
  bool reset_head = false;                ///< the last layer starts with random weights
  std::filesystem::path metrics = {};     ///< file to which JSON lines are appended; empty: none
  /// --logger: files in run_dir (loggers.h).
  bool log_json = true, log_csv = false, log_tensorboard = false;
  std::int64_t log_every = 50;  ///< attempted steps between logged steps
  bool summary = false;         ///< show layers with shapes and costs before training (layers.h)
  bool report = true;           ///< report.html in run_dir, if there is one
  bool progress = true;         ///< show progress on stdout
  Profile profile = Profile::none;
  Question question = Question::none;
  std::filesystem::path lr_curve = {};  ///< SVG file for the learning-rate curve of the answer; empty: none

  // The recipe (recipe.h) -----------------------------------------------------------------------------------
  std::filesystem::path recipe = {};  ///< the file that set some of the flags; empty: none
  OptimizerKind optimizer_kind = OptimizerKind::sgd;
  double momentum = 0.9;              ///< of sgd and muon
  bool nesterov = true;               ///< if there is momentum
  double beta1 = 0.9, beta2 = 0.999;  ///< of adam and adamw
  double weight_decay = 5e-4;
  Decay decay = Decay::matrices;  ///< weight_decay applies to matrices and filters only, or to all
  ScheduleOptions schedule_options = {};
  std::optional<TrainingLength> warmup = {};  ///< unset: none, except one cycle, which rises for a quarter
  double min_lr = 0;
  LrScaling lr_scaling = LrScaling::none;
  bool lr_is_fitted = false;            ///< by fit_usual_rate(): the program's lr, which no flag has set
  std::int64_t lr_scaling_batch = 256;  ///< images of the step for which lr was chosen
  LabelKind task = LabelKind::classes;  ///< of a program with --model
  TaskLoss loss = {};                   ///< of that task
  double label_smoothing = 0;
  std::optional<double> dropout = {};  ///< of all dropout layers of the model; unset: the model's own
  /// Of the last block of a model with stochastic depth; linear from 0 in the first. Unset: the model's own.
  std::optional<double> drop_path = {};
  double layer_decay = 1;  ///< factor of learning rates from a block to the one before (nn/layer_decay.h)
  bool sample_weights = false;      ///< training losses are multiplied by the field "weight"
  ClassWeights class_weights = {};  ///< of classes in training losses
  Augment augment = {};
  std::int64_t repeated_aug = 1;  ///< copies of each image in an epoch, which has that share of the images
  std::int64_t views = 1;         ///< of each image, augmented independently: Batch::view()
  /// A custom learning-rate schedule over `steps` steps with maximum `lr`; unset: schedule_options.
  std::function<Schedule(double lr, std::int64_t steps)> schedule = {};
  /// A custom optimizer; unset: optimizer_kind.
  std::function<std::unique_ptr<Optimizer>(ParameterArena&)> optimizer = {};
};

/// Thrown for --help and --version: a text for stdout, not an error.
class HelpRequested : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Parses the flags shared by all training programs, over `defaults`, and the environment (ATHANOR_DATA_DIR,
/// ATHANOR_DIST_DEBUG). Throws ArgumentError, one line with the flag, its valid values and advice; and
/// HelpRequested.
TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig defaults);

/// Sets metrics and checkpoint_dir inside run_dir, if there is one and they are unset.
TrainerConfig in_run_dir(TrainerConfig config);

/// Checks values set by flags or programs. Throws ArgumentError.
void check(const TrainerConfig& config);
void check(const EarlyStop& options);

}  // namespace athanor
