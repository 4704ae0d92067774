#include "trainer/loggers/tensorboard.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>

#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "data/formats/detail/record_frame.h"
#include "optim/arena.h"
#include "tensor/base/counters.h"
#include "trainer/config.h"
#include "trainer/loggers/loggers.h"
#include "trainer/samples.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

// Field numbers.
enum Event { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum Value { kTag = 1, kSimpleValue = 2, kImage = 4, kHisto = 5 };
enum Image { kHeight = 1, kWidth = 2, kColourSpace = 3, kEncoded = 4 };
enum Histo { kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7 };

constexpr std::string_view kPrefix = "events.out.tfevents.", kSuffix = ".athanor";

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Name of the newest of our event files; empty if there is none.
std::string newest_in(const fs::path& folder) {
  std::string newest;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix) && name > newest) newest = name;
  }
  return newest;
}

/// Length of an incomplete record at the end.
std::size_t unfinished(const std::string& file) {
  std::span<const std::byte> rest = std::as_bytes(std::span(file));
  while (const auto data = detail::framed_record(rest))
    rest = rest.subspan(data->size() + detail::kRecordHead + detail::kRecordTail);
  return rest.size();
}

/// On the host, in f32.
Tensor on_host(const Tensor& values) {
  const NoGrad no_grad;
  return cast(contiguous(values.detach()).to(kCpu), DType::f32);
}

}  // namespace

Histogram histogram_of(std::span<const float> values, double scale) {
  Histogram all{.min = std::numeric_limits<double>::infinity(),
                .max = -std::numeric_limits<double>::infinity()};
  for (const float value : values) {
    const double x = value * scale;
    if (!std::isfinite(x)) continue;
    all.min = std::min(all.min, x);
    all.max = std::max(all.max, x);
    all.sum += x;
    all.sum_of_squares += x * x;
    ++all.count;
  }
  if (all.count == 0) return {};
  const double width = (all.max - all.min) / Histogram::kBins;
  for (int i = 0; i < Histogram::kBins; ++i) all.ends[i] = all.min + width * (i + 1);
  all.ends[Histogram::kBins - 1] = all.max;
  for (const float value : values) {
    const double x = value * scale;
    if (!std::isfinite(x)) continue;
    const double bin = width > 0 ? std::ceil((x - all.min) / width) - 1 : Histogram::kBins - 1;
    ++all.counts[static_cast<int>(std::clamp(bin, 0.0, Histogram::kBins - 1.0))];
  }
  return all;
}

void TensorBoardLog::on_fit_begin(Trainer&, const FitInfo& info) {
  next_scale_.reset();
  scale_ = 0;
  attempted_ = info.attempted;
  const std::string before = info.resumed_from.empty() ? "" : newest_in(log_folder(info.config));
  const std::string fresh = fmt::format("{}{}{}", kPrefix, static_cast<std::int64_t>(now_s()), kSuffix);
  open_log(file_, info, before.empty() ? fresh : before);
  if (!file_) return;
  const std::string all = file_->content();
  if (const std::size_t half = unfinished(all); half > 0) file_->remove_last(half);
  begin_event(0);
  event_.bytes(kFileVersion, "brain.Event:2");
  frame_event();
  if (all.empty()) file_->append(record_);
  file_->begin_with(record_);
  part_.clear();
  part_.integer(1, 1);  // the status: start of a session
  begin_event(info.attempted + 1);
  event_.message(kSessionLog, part_);
  end_event();
}

void TensorBoardLog::begin_event(std::int64_t step) {
  event_.clear();
  event_.number(kWallTime, now_s());
  event_.integer(kStep, step);
}

void TensorBoardLog::frame_event() {
  record_.clear();
  detail::frame_record(std::as_bytes(std::span(event_.text())),
                       [this](std::span<const std::byte> bytes) { record_.append(detail::text_of(bytes)); });
}

void TensorBoardLog::end_event() {
  frame_event();
  file_->append(record_);
}

void TensorBoardLog::write(std::int64_t step) {
  begin_event(step);
  event_.message(kSummary, summary_);
  end_event();
  summary_.clear();
}

void TensorBoardLog::add_scalar(std::string_view folder, std::string_view name, double value) {
  if (std::isnan(value)) return;  // not measured
  tag_.assign(folder);
  tag_ += name;
  value_.clear();
  value_.bytes(kTag, tag_);
  value_.number(kSimpleValue, static_cast<float>(value));
  add_value(value_);
}

void TensorBoardLog::on_step_begin(Trainer& trainer, const StepInfo&) {
  if (!next_scale_) next_scale_ = trainer.state().loss_scale;
}

void TensorBoardLog::on_step_result(Trainer&, const StepReport& report) {
  attempted_ = report.attempted;
  scale_ = next_scale_.value_or(report.loss_scale);
  next_scale_ = report.loss_scale;
}

void TensorBoardLog::on_step_log(Trainer&, const StepLog& step) {
  if (!file_) return;
  for_each_value(step, [this](std::string_view name, double value) { add_scalar("step/", name, value); });
  add_scalar("step/", "skipped", step.report.result == StepResult::applied ? 0 : 1);
  write(step.report.attempted);
}

void TensorBoardLog::on_validated(Trainer&, const EpochReport& report) {
  if (!file_ || report.whole) return;  // on_epoch_end() writes it
  for_each_value(report, [this](std::string_view name, double value) {
    if (name.starts_with("val_")) add_scalar("", name, value);
  });
  write(report.steps.attempted());
}

void TensorBoardLog::on_epoch_end(Trainer& trainer, const EpochReport& report) {
  if (!file_) return;
  for_each_value(report, [this](std::string_view name, double value) { add_scalar("", name, value); });
  add_scalar("", "epoch", static_cast<double>(report.epoch));
  write(report.steps.attempted());
  add_histograms(trainer);
}

// Between epochs, when weights are complete, and gradients are still those of the last step.
void TensorBoardLog::add_histograms(Trainer& trainer) {
  const AllowSync allow;
  for (const auto& arena : trainer.arenas()) {
    for (int i = 0; i < arena->size(); ++i) {
      const Parameter& parameter = arena->parameters()[static_cast<std::size_t>(i)];
      add_histogram("weights/" + parameter.name, parameter.tensor, 1);
      if (scale_ > 0 && !arena->shards().sharded() && arena->has_gradient(i))
        add_histogram("gradients/" + parameter.name, arena->gradient(i), 1 / scale_);
    }
  }
}

void TensorBoardLog::add_histogram(const std::string& tag, const Tensor& values, double scale) {
  const Tensor host = on_host(values);
  const Histogram histogram =
      histogram_of({host.data<float>(), static_cast<std::size_t>(host.numel())}, scale);
  if (histogram.count == 0) return;
  part_.clear();
  part_.number(kMin, histogram.min);
  part_.number(kMax, histogram.max);
  part_.number(kNum, static_cast<double>(histogram.count));
  part_.number(kSum, histogram.sum);
  part_.number(kSumSquares, histogram.sum_of_squares);
  part_.numbers(kBucketLimit, histogram.ends);
  part_.numbers(kBucket, histogram.counts);
  value_.clear();
  value_.bytes(kTag, tag);
  value_.message(kHisto, part_);
  add_value(value_);
  write(attempted_);  // one event each: a large model's together would need much memory
}

void TensorBoardLog::on_picture(Trainer&, const Picture& picture) {
  if (!file_) return;
  part_.clear();
  part_.integer(kHeight, picture.height);
  part_.integer(kWidth, picture.width);
  part_.integer(kColourSpace, picture.channels);
  part_.bytes(kEncoded, detail::text_of(picture.png));
  value_.clear();
  value_.bytes(kTag, fmt::format("pictures/{}", picture.name));
  value_.message(kImage, part_);
  add_value(value_);
  write(attempted_);
}

}  // namespace athanor
