#include "trainer/loggers/progress.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "kernels/implementations.h"
#include "tensor/base/printable.h"
#include "trainer/detail/terminal.h"
#include "trainer/readable.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

using terminal::quoted;

constexpr int kIndent = 8;  // of lines below an epoch
constexpr int kStar = 2;    // behind a row

/// A column of the table of epochs. Where the terminal is narrow, those of the least `keep` are left out.
struct Column {
  const char* head;
  int width, keep;
  bool of_classes = false;  ///< only for a classifier
};
constexpr int kAlways = 7;
constexpr Column kTable[] = {{"epoch", 5, kAlways}, {"train loss", 13, 4},    {"train acc", 12, 2, true},
                             {"val loss", 12, 5},   {"val acc", 12, 6, true}, {"images/s", 12, 1},
                             {"time", 12, 3}};

template <class... Args> void print(std::FILE* out, fmt::format_string<Args...> format, Args&&... args) {
  if (!out) return;
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), out);
}

std::string percent(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.2f} %", 100 * share);
}

/// "1 step", "1,234 steps".
std::string counted(std::int64_t count, const char* what) {
  return fmt::format("{} {}{}", with_commas(count), what, count == 1 ? "" : "s");
}

std::string describe(const Augment& augment) {
  std::string text;
  if (augment.pad > 0) text += fmt::format(", shifts up to {} px", augment.pad);
  if (augment.resized_crop) text += ", resized crops";
  if (augment.flip) text += augment.alternate_flip ? ", alternating flips" : ", flips";
  if (augment.vertical_flip) text += ", vertical flips";
  if (augment.rotation > 0) text += fmt::format(", rotation up to {}°", augment.rotation);
  if (augment.blur > 0) text += ", blur";
  if (augment.colour.any()) text += ", colours";
  if (augment.rand_augment) text += ", rand-augment";
  if (augment.trivial_augment) text += ", trivial-augment";
  if (augment.cutout > 0) text += fmt::format(", cutout {}", augment.cutout);
  if (augment.random_erasing > 0) text += ", erasing";
  if (augment.mixup > 0) text += fmt::format(", mixup {}", augment.mixup);
  if (augment.cutmix > 0) text += fmt::format(", cutmix {}", augment.cutmix);
  return text;
}

/// What flags or a recipe say of training and validation, beside what the lines of every run show.
std::string chosen(const TrainerConfig& config) {
  static constexpr std::pair<std::string_view, const char*> kShown[] = {
      {"--loss", "loss"},
      {"--label-smoothing", "label smoothing"},
      {"--class-weights", "class weights"},
      {"--clip-norm", "gradients clipped to"},
      {"--dropout", "dropout"},
      {"--drop-path", "drop path"},
      {"--layer-decay", "layer decay"},
      {"--repeated-aug", "repeated augmentation"},
      {"--sampler", "sampler"},
      {"--ema", "EMA"},
      {"--resize", "resize"},
      {"--crop-share", "crop share"},
      {"--interpolation", "interpolation"},
      {"--val-image-size", "validation size"},
      {"--tta", "test-time augmentation"},
  };
  std::string text;
  for (const auto& [name, what] : kShown) {
    const auto is_it = [&, name = name](const FlagValue& flag) {
      return flag.name == name && flag.from != "default";
    };
    const auto flag = std::find_if(config.flags.begin(), config.flags.end(), is_it);
    if (flag != config.flags.end()) text += fmt::format(", {} {}", what, flag->value);
  }
  return text;
}

/// "0.2162"; "-" if not measured.
std::string loss(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.4f}", value);
}

/// The loss, or else the first measured value.
std::string running(const Metrics& metrics) {
  if (std::isnan(metrics.loss) && !metrics.others.empty())
    return fmt::format("{} {:.4f}", metrics.others[0].name, metrics.others[0].value);
  return fmt::format("loss {:.4f}", metrics.loss);
}

/// "train_psnr 21.4, val_psnr 22.07"; of many the first, those of validation before others, those of single
/// classes last, and no thresholds: metrics.jsonl has all.
std::string listed(std::vector<NamedValue> values) {
  constexpr std::size_t kMost = 6;
  std::erase_if(values, [](const NamedValue& one) { return is_threshold(one.name); });
  const std::size_t all = values.size();
  if (all > kMost) {
    std::stable_sort(values.begin(), values.end(), [](const NamedValue& a, const NamedValue& b) {
      const auto rank = [](const std::string& name) {
        return std::pair(is_of_class(name), !name.starts_with("val_"));
      };
      return rank(a.name) < rank(b.name);
    });
    values.resize(kMost);
  }
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format("{}{} {:.4g}", text.empty() ? "" : ", ", name, value);
  return all > kMost ? fmt::format("{}, and {} more", text, all - kMost) : text;
}

/// "cat 0.41, dog 0.6": the thresholds of several labels; of many the first.
std::string thresholds_in(const std::vector<NamedValue>& values, const std::vector<std::string>& classes) {
  constexpr std::size_t kMost = 8;
  std::string text;
  std::size_t count = 0;
  for (const auto& [name, value] : values) {
    if (!is_threshold(name) || std::isnan(value)) continue;
    if (count++ >= kMost) continue;
    const std::string number = name.substr(name.rfind('/') + 1);  // of the class
    const std::size_t at = std::stoul(number);
    text += fmt::format("{}{} {:.3g}", text.empty() ? "" : ", ", at < classes.size() ? classes[at] : number,
                        value);
  }
  return count > kMost ? fmt::format("{}, and {} more", text, count - kMost) : text;
}

/// The command of the tool that predicts with the run's model, in the form this program was called; empty if
/// there is none next to it.
std::string tool_of(const TrainerConfig& config) {
  if (!config.tool.empty()) return quoted(config.tool.string());
  const std::filesystem::path program = config.command.empty() ? "" : config.command[0];
  const std::filesystem::path tool = program.parent_path() / "athanor";
  std::error_code ignored;
  return program.has_parent_path() && std::filesystem::exists(tool, ignored) ? quoted(tool.string()) : "";
}

}  // namespace

int Progress::columns() const {
  return columns_ > 0 ? columns_ : terminal::columns_of(out_);
}

void Progress::flush() const {
  if (out_) std::fflush(out_);
}

void Progress::say(const std::string& text, int indent) {
  const std::string line = std::string(static_cast<std::size_t>(indent), ' ') + printable(text);
  print(out_, "{}\n", line_.live() ? terminal::wrapped(line, columns(), indent, true) : line);
}

void Progress::on_fit_begin(Trainer&, const FitInfo& info) {
  const TrainerConfig& config = info.config;
  steps_per_epoch_ = info.steps_per_epoch;
  total_steps_ = info.total_steps;
  done_before_ = info.attempted;
  idle_ = !info.nothing_to_do.empty();
  table_begun_ = false;
  best_accuracy_ = -1;
  last_wall_s_ = 0;
  classifies_ = info.classifies;
  class_names_ = info.class_names;
  say(fmt::format("{}{}: device {}{}, {}{}{}, precision {}, strategy {}, {}, seed {}", config.program,
                  config.phase.empty() ? "" : ", phase " + config.phase, config.device.str(),
                  config.device_note.empty() ? "" : fmt::format(" ({})", config.device_note),
                  counted(info.threads, "thread"),
                  config.threads != 0              ? ""
                  : config.local_ranks > 1         ? " per rank (auto: all cores)"
                  : std::getenv("OMP_NUM_THREADS") ? " (OMP_NUM_THREADS)"
                                                   : " (auto: all cores)",
                  config.device.is_cpu() ? ", " + cpu_implementations() : "", name_of(config.precision),
                  info.strategy, info.data_source, config.seed));
  say(fmt::format(
      "{} with {} parameters{}; {} images to train on, {} to test, {}x{}x{}{}",
      config.model.empty() ? "a model" : config.model, with_commas(info.parameters),
      info.frozen_parameters == 0 ? "" : fmt::format(", and {} frozen", with_commas(info.frozen_parameters)),
      with_commas(info.train_samples), info.val_samples > 0 ? with_commas(info.val_samples) : "none",
      info.spec.height, info.spec.width, info.spec.channels,
      classifies_ ? fmt::format(", {} classes", info.spec.classes) : ""));
  const std::string epochs = counted(config.epochs, "epoch");
  const bool whole = total_steps_ == config.epochs * steps_per_epoch_;
  say(fmt::format("{}, batch {}{}{}{}{}",
                  whole ? fmt::format("{} of {}", epochs, counted(steps_per_epoch_, "step"))
                        : fmt::format("{} (of {} of {})", counted(total_steps_, "step"), epochs,
                                      with_commas(steps_per_epoch_)),
                  config.batch_size,
                  info.ranks > 1
                      ? fmt::format(" ({} on each rank)", (config.batch_size + info.ranks - 1) / info.ranks)
                      : "",
                  config.accumulate > 1 ? fmt::format(" x {}", config.accumulate) : "",
                  info.own_rates ? "" : ", " + describe_recipe(config, info.own_optimizers),
                  describe(config.augment) +
                      (config.views > 1 ? fmt::format(", {} views", config.views) : "") + chosen(config)));
  if (!config.run_dir.empty()) say(fmt::format("the run's folder: {}", config.run_dir.string()));
  if (!info.summary.empty()) print(out_, "\n{}", info.summary);
  print(out_, "\n");
  if (!info.unused.empty()) say("not used: " + text_of(info.unused));
  if (!info.own_rates) {
    const std::string note = too_short_for_schedule(config, total_steps_, steps_per_epoch_);
    if (!note.empty()) say("note: " + note);
  }
  for (const std::string& note : info.notes) say(note);
  if (idle_) {
    say("nothing to do: " + info.nothing_to_do);
  } else {
    if (!info.notes.empty()) print(out_, "\n");
    if (config.question == Question::none) begin_table();
  }
  flush();
  started_ = std::chrono::steady_clock::now();
}

std::string Progress::row(const std::vector<std::string>& cells) const {
  const int room = line_.live() ? columns() - kStar : std::numeric_limits<int>::max();
  for (int least = 1;; ++least) {
    std::string text;
    for (std::size_t i = 0; i < std::size(kTable); ++i) {
      const bool shown = kTable[i].keep >= least && (classifies_ || !kTable[i].of_classes);
      if (shown) text += fmt::format("{:>{}}", cells[i], kTable[i].width);
    }
    if (terminal::width_of(text) <= room || least == kAlways) return text;
  }
}

void Progress::begin_table() {
  if (table_begun_) return;
  table_begun_ = true;
  std::vector<std::string> heads;
  for (const Column& column : kTable) heads.emplace_back(column.head);
  const std::string head = row(heads);
  if (classifies_) print(out_, "{:>{}}\n", "* best val acc so far", terminal::width_of(head));
  print(out_, "{}\n", head);
}

void Progress::on_step_end(Trainer& trainer, const StepInfo& step) {
  if (!line_.due()) return;
  const double trained_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count() -
      trainer.times().tuning;
  const double per_step =
      trained_s / static_cast<double>(std::max<std::int64_t>(step.attempted - done_before_, 1));
  const double done =
      static_cast<double>(step.attempted) / static_cast<double>(std::max<std::int64_t>(total_steps_, 1));
  const std::int64_t last =
      std::min(steps_per_epoch_, std::max(total_steps_ - (step.epoch - 1) * steps_per_epoch_, step.step));
  const terminal::ProgressParts line{
      .epoch = fmt::format("{:>5}", step.epoch),
      .done = done,
      .step = fmt::format("step {}/{}", step.step, last),
      .loss = running(trainer.running_metrics()),
      .speed = rate(static_cast<double>(step.samples) / std::max(step.epoch_s, 1e-9)) + " images/s",
      .left =
          duration(per_step * static_cast<double>(std::max<std::int64_t>(total_steps_ - step.attempted, 0))) +
          " left"};
  line_.show(terminal::fit(line, columns()));
}

// Within an epoch; validation at its end is in its row.
void Progress::on_validated(Trainer&, const EpochReport& report) {
  if (report.whole) return;
  line_.clear();
  begin_table();
  std::string line =
      fmt::format("step {}: val loss {}", with_commas(report.steps.attempted()), loss(report.val_loss));
  if (classifies_) line += fmt::format(", val acc {}", percent(report.val_accuracy));
  if (!report.others.empty()) line += ", " + listed(report.others);
  say(line, kIndent);
  flush();
}

void Progress::on_epoch_end(Trainer&, const EpochReport& report) {
  line_.clear();
  begin_table();
  const bool best = classifies_ && std::isfinite(report.val_loss) && report.val_accuracy > best_accuracy_;
  if (best) best_accuracy_ = report.val_accuracy;
  const std::string speed = rate(report.images_per_s), time = duration(report.wall_s - last_wall_s_);
  const std::string line =
      row({fmt::to_string(report.epoch), loss(report.train_loss), percent(report.train_accuracy),
           loss(report.val_loss), percent(report.val_accuracy), speed, time});
  print(out_, "{}{}\n", line, best ? " *" : "");
  last_wall_s_ = report.wall_s;
  if (!report.others.empty()) say(listed(report.others), kIndent);
  say(report.bottleneck.line, kIndent);
  for (const std::string& note : report.notes) say(note, kIndent);
  flush();
}

void Progress::on_note(Trainer&, const std::string& note) {
  line_.clear();
  say(note, kIndent);
  flush();
}

void Progress::on_answer(Trainer&, const AnswerText& text) {
  const std::string lines = text(line_.live() ? columns() : terminal::kColumns);
  print(out_, "{}", lines);
  flush();
}

// Its message follows, which must have a line of its own.
void Progress::on_exception(Trainer&, const std::exception&) {
  line_.clear();
  flush();
}

StateDict Progress::state_dict(const Trainer&) const {
  StateDict state;
  state.set("best_accuracy", best_accuracy_);
  state.set("last_wall_s", last_wall_s_);
  return state;
}

void Progress::load_state_dict(const Trainer&, const StateDict& state) {
  if (state.empty()) return;  // of a run that showed none
  const double best_accuracy = state.real("best_accuracy"), last_wall_s = state.real("last_wall_s");
  state.require_all_used("progress");
  best_accuracy_ = best_accuracy;
  last_wall_s_ = last_wall_s;
}

std::string Progress::result_of(const FitReport& report) const {
  if (classifies_)
    return std::isnan(report.test_accuracy) ? "not validated"
                                            : "test accuracy " + percent(report.test_accuracy);
  if (std::isnan(report.test_loss)) return report.others.empty() ? "trained" : listed(report.others);
  return fmt::format("test loss {}{}", loss(report.test_loss),
                     report.others.empty() ? "" : ", " + listed(report.others));
}

// The run's files, and the next command: on separate lines, which are not wrapped.
void Progress::say_product(const TrainerConfig& config, const FitReport& report) {
  if (report.model.empty()) return;
  const std::string model = report.model.string(), last = report.last_model.string();
  const auto figure = [&](double loss_of, double accuracy, const std::vector<NamedValue>& others) {
    if (classifies_) return percent(accuracy) + ", ";
    if (!std::isnan(loss_of) && (config.task == LabelKind::classes || others.empty()))
      return fmt::format("loss {}, ", loss(loss_of));
    return others.empty() ? "" : fmt::format("{} {:.4g}, ", others[0].name, others[0].value);
  };
  if (last.empty()) {
    print(out_, "\nsaved   {}\n", printable(model));
  } else {
    const std::size_t width = std::max(model.size(), last.size());
    print(out_, "\nsaved   {:<{}}   {}{}\n", printable(model), width,
          figure(report.test_loss, report.test_accuracy, report.others), report.weights);
    print(out_, "        {:<{}}   {}last step\n", printable(last), width,
          figure(report.last.loss, report.last.accuracy, report.last.others));
  }
  if (config.report)
    print(out_, "report  {}\n", printable((report.model.parent_path() / "report.html").string()));
  const bool is_known = classifies_ || config.task != LabelKind::classes;
  if (!is_known || config.model.empty()) return;  // only the program can use it
  const std::string tool = tool_of(config);
  if (!tool.empty())
    print(out_, "next    {} predict {} IMAGE...\n", printable(tool),
          printable(quoted(report.model.parent_path().string())));
}

void Progress::on_fit_end(Trainer& trainer, const FitReport& report) {
  line_.clear();
  if (report.signal != 0) {
    print(out_, "\n");
    say(fmt::format(
        "ended by SIG{} after {}{}", ::sigabbrev_np(report.signal), counted(report.steps.attempted(), "step"),
        report.checkpoint.empty()
            ? ""
            : fmt::format("; saved in {}: continue with --resume auto", report.checkpoint.string())));
  } else if (!trainer.why_stopped().empty() && !idle_) {
    print(out_, "\n");
    say((report.stopped_by == StoppedBy::diverged ? "diverged: " : "stopped: ") + trainer.why_stopped());
  }
  print(out_, "\n");
  say(fmt::format("{}   in {}, {} images/s, {}{}, peak {}, weights {:016x}", result_of(report),
                  duration(report.wall_s), rate(report.images_per_s), counted(report.steps.applied, "step"),
                  report.steps.skipped() ? fmt::format(" and {} skipped", report.steps.skipped()) : "",
                  byte_size(static_cast<double>(report.peak_bytes)), report.weights_hash));
  if (const std::string found = thresholds_in(report.others, class_names_); !found.empty())
    say("thresholds: " + found);
  if (const std::string vendor = describe(report.vendor); !vendor.empty()) say(vendor);
  say_product(trainer.config(), report);
  if (trainer.config().profile != Profile::none) {
    const Times& t = trainer.times();
    print(out_, "\nwhere the time went\n");
    const auto row = [&](const char* what, double seconds) {
      print(out_, "  {:<12} {:>9.3f} s  {:>5.1f} %\n", what, seconds,
            100 * seconds / std::max(report.wall_s, 1e-9));
    };
    for (const TimesPart& part : kTimesParts) {
      if (t.*part.seconds > 0) row(part.name, t.*part.seconds);
    }
    row("other", report.wall_s - t.step() - t.validation - t.saving);
    if (t.tuning > 0) print(out_, "  {:<12} {:>9.3f} s  in no other time\n", "tuning", t.tuning);
    print(out_, "{}", trainer.profile());
  }
  flush();
}

}  // namespace athanor
