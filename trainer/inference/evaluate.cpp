#include "trainer/inference/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "autograd/grad_mode.h"
#include "autograd/loss.h"
#include "autograd/packed_model.h"
#include "autograd/shape.h"
#include "data/defects.h"
#include "data/detail/batch_plan.h"
#include "data/preprocess.h"
#include "data/relabelled.h"
#include "kernels/context.h"
#include "kernels/conv_choices.h"
#include "tensor/base/cores.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/state_dict.h"
#include "trainer/frozen_weights.h"
#include "trainer/inference/label_results.h"
#include "trainer/inference/value_results.h"
#include "trainer/metric_sums.h"
#include "trainer/metrics/loss_and_accuracy.h"
#include "trainer/metrics/top_k.h"
#include "trainer/readable.h"

namespace athanor {
namespace {

/// The data with the model's numbers of its classes, which are matched by name.
std::shared_ptr<const Dataset> in_classes_of(const ModelInfo& model, const Dataset& data) {
  try {
    return with_classes(std::shared_ptr<const Dataset>(std::shared_ptr<void>(), &data), model.class_names);
  } catch (const ArgumentError& error) {
    detail::fail<>("evaluate: images must have the model's classes, but {}", error.what());
  }
}

/// Tells what cannot be matched.
void tell_classes(const ModelInfo& model, const Dataset& data,
                  const std::function<void(const std::string&)>& note) {
  const std::vector<std::string>&names = model.class_names, own = data.class_names();
  if (!note || names.empty()) return;
  if (own.empty()) {
    return note(
        fmt::format("the images have no class names: label 0 is taken for '{}', and so on to {} for '{}'",
                    printable(names.front()), names.size() - 1, printable(names.back())));
  }
  std::vector<std::string> missing;
  for (const std::string& name : names)
    if (std::find(own.begin(), own.end(), name) == own.end()) missing.push_back(printable(name));
  if (missing.empty()) return;
  const std::size_t shown = std::min<std::size_t>(missing.size(), 3);
  note(fmt::format("{} of the model's {} classes have no images here ('{}'{}): figures are over the others",
                   missing.size(), names.size(), fmt::join(missing.begin(), missing.begin() + shown, "', '"),
                   missing.size() > shown ? ", ..." : ""));
}

LoaderOptions loading(const ModelInfo& model, const EvaluateOptions& options) {
  LoaderOptions loader;
  if (model.batch_size > 0) loader.batch_size = model.batch_size;
  loader.workers = options.workers;
  loader.device = options.device;
  loader.epochs = 1;
  loader.bad_samples = options.bad_samples;
  loader.on_warning = options.on_note;
  return loader;
}

/// The rows of a batch that one of several ranks had.
Batch part_of(const Batch& batch, std::int64_t first, std::int64_t count) {
  Batch part = batch;
  part.images = narrow(batch.images, 0, first, count);
  if (batch.labels.defined()) part.labels = narrow(batch.labels, 0, first, count);
  part.samples = narrow(batch.samples, 0, first, count);
  part.fields = {};  // drops masks and other fields
  for (std::size_t i = 0; batch.fields && i < batch.fields->size(); ++i) {
    if ((*batch.fields)[i].name != kLabelsField) continue;
    part.fields = std::make_shared<const std::vector<FieldSpec>>(1, (*batch.fields)[i]);
    part.more[0] = narrow(batch.more[i], 0, first, count);
  }
  return part;
}

/// The samples of rows that begin at sample `first`; -1 for one that another sample replaces.
Tensor own_samples(const Tensor& read, std::int64_t first) {
  const Tensor own = Tensor::empty(read.shape(), {DType::i64});
  std::int64_t next = first, *to = own.data<std::int64_t>();
  for (const double sample : read.to_vector()) {
    *to++ = static_cast<std::int64_t>(sample) == next ? next : -1;
    ++next;
  }
  return own;
}

/// What of the images was not as it should be.
void tell_defects(const LoaderStats& stats, std::int64_t images, const EvaluateOptions& options) {
  if (!options.on_note) return;
  if (stats.skipped > 0)
    options.on_note(fmt::format("{} of {} images cannot be read, and do not count; the first: {}",
                                with_commas(stats.skipped), with_commas(images), stats.first_skipped));
  if (stats.harmless > 0) options.on_note(harmless_note(stats.harmless, stats.first_harmless));
}

/// In its scope convolutions run as they ran in the model's run.
class ConvChoicesOf {
 public:
  explicit ConvChoicesOf(const ModelInfo& model) : before_(conv_choices()) {
    set_conv_choices(model.conv_choices);
  }
  ~ConvChoicesOf() { set_conv_choices(before_); }
  ConvChoicesOf(const ConvChoicesOf&) = delete;
  ConvChoicesOf& operator=(const ConvChoicesOf&) = delete;

 private:
  std::string before_;
};

/// "loss 0.0216   top-1 98.89 %"
std::string figures(double loss, double top1) {
  return fmt::format("loss {:.4f}   top-1 {:.2f} %", loss, 100 * top1);
}

/// Of a classifier.
class ClassResults final : public Results {
 public:
  ClassResults(const ModelInfo& model, const EvaluateOptions& options)
      : evaluation_(model.images.classes, model.class_names, std::min(options.top, model.images.classes),
                    options.worst) {}
  const Evaluation& evaluation() const { return evaluation_; }

  void add(const Tensor& outputs, const Batch& batch, const Tensor& samples) override {
    evaluation_.add(cross_entropy(outputs, batch.labels, 0, Reduction::none), outputs, batch.labels, samples);
  }
  std::int64_t images() const override { return evaluation_.images(); }
  double score() const override { return 100 * evaluation_.top1(); }
  const char* score_name() const override { return "top-1"; }
  std::string headline(const ModelInfo& model) const override {
    std::string text = figures(evaluation_.loss(), evaluation_.top1());
    if (evaluation_.top() > 1)
      text += fmt::format("   top-{} {:.2f} %", evaluation_.top(), 100 * evaluation_.top_k());
    const bool same = evaluation_.loss() == model.test_loss && evaluation_.top1() == model.test_accuracy;
    if (same) return text + "\nas its run reported";
    if (!std::isfinite(model.test_loss)) return text;
    return text + fmt::format("\nits run reported {}", figures(model.test_loss, model.test_accuracy));
  }
  std::string text(const Evaluated& of) const override { return text_of(evaluation_, of); }
  std::string json(const Evaluated& of) const override { return json_of(evaluation_, of); }
  std::string svg() const override { return svg_of(evaluation_); }

 private:
  Evaluation evaluation_;
};

/// For each output of the model the place of its label in the data, matched by name where both have names.
std::vector<std::int64_t> columns_of(const ModelInfo& model, const Dataset& data) {
  std::vector<std::int64_t> columns(static_cast<std::size_t>(model.images.classes));
  std::iota(columns.begin(), columns.end(), 0);
  const std::vector<std::string>&names = model.class_names, own = data.class_names();
  if (names.empty() || own.empty()) return columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto at = std::find(own.begin(), own.end(), names[i]);
    ATH_CHECK(at != own.end(), "evaluate: images must have the model's labels {}, but have {}",
              list_names(names), list_names(own));
    columns[i] = at - own.begin();
  }
  return columns;
}

void check_labels(const ModelInfo& model, const Dataset& data) {
  const std::int64_t outputs = model.images.classes;
  const std::vector<FieldSpec> fields = data.fields();
  const auto at = std::find_if(fields.begin(), fields.end(),
                               [](const FieldSpec& field) { return field.name == kLabelsField; });
  ATH_CHECK(
      at != fields.end(),
      "evaluate: images must have labels for {} with {} outputs, such as columns of a table, but have none",
      name_of(model.task), outputs);
  ATH_CHECK(at->kind == FieldKind::values && at->shape == Shape{outputs},
            "evaluate: images must have a label for each of the model's {} outputs, but have {}", outputs,
            at->shape);
}

void check_classes(const ModelInfo& model, const Dataset& data) {
  const auto is_label = [](const FieldSpec& field) { return field.name == "label"; };
  const std::vector<FieldSpec> fields = data.fields();
  ATH_CHECK(data.spec().classes > 0 && std::any_of(fields.begin(), fields.end(), is_label),
            "evaluate: images must have labels, but have none");
  ATH_CHECK(data.spec().classes <= model.images.classes,
            "evaluate: there must be at most {} classes, as in the model, but there are {}",
            model.images.classes, data.spec().classes);
}

/// Adds what the network with the model's weights says of all the images. These are the weights of the run,
/// whose half precisions may not hold the mean of values; a quantized network has its own.
void measure(nn::Module& network, const ModelFile& model, const Dataset& data, const EvaluateOptions& options,
             Results& results) {
  const ModelInfo& info = model.info;
  if (options.bad_samples.list) check_all(data, usable_cpus());
  const Precision precision =
      info.is_quantized() ? Precision::f32 : options.precision.value_or(info.precision);
  ATH_CHECK(!info.is_quantized() || options.precision.value_or(precision) == precision,
            "evaluate: {} computes in {}, and has no other precision", model.path.string(), info.quantized);
  std::optional<FrozenWeights> weights;
  if (info.is_quantized()) {
    network.to(options.device);
  } else {
    network.load_state_dict(model.weights);
    weights.emplace(network.parameters(), network.buffers(), precision, options.device);
  }
  network.eval();
  PackedModel packed;
  if (weights && options.precision && options.device.is_cpu()) weights->keep_unrounded(packed);
  const Preprocess preprocess(info.images, info.pixels, compute_dtype(precision), options.device);
  const TestTimeAugmentation views(options.tta.value_or(info.tta), info.images.height, info.images.width,
                                   options.device);
  Loader loader(data, loading(info, options));
  const InferenceMode inference = options.precision ? InferenceMode(packed) : InferenceMode();
  const ConvChoicesOf choices(info);
  loader.start_epoch(0);
  std::int64_t before = 0;  // samples of earlier batches
  for (Batch batch; loader.next(batch);) {
    const std::int64_t samples = batch.size();
    for (int rank = 0; rank < info.ranks; ++rank) {
      const auto rows = detail::BatchPlan{samples, samples, rank, info.ranks}.rows_of(0);
      if (rows.count == 0) continue;
      const Batch part = preprocess.prepare(part_of(batch, rows.first, rows.count), 0, false);
      results.add(views(network, part["image"]), part, own_samples(part.samples, before + rows.first));
    }
    before += samples;
    if (options.on_progress) options.on_progress(before);
  }
  tell_defects(loader.stats(), data.size(), options);
}

ClassResults measure_classes(nn::Module& network, const ModelFile& model, const Dataset& given,
                             const EvaluateOptions& options) {
  const std::shared_ptr<const Dataset> data = in_classes_of(model.info, given);
  check_images(model.info, *data);
  check_classes(model.info, *data);
  tell_classes(model.info, given, options.on_note);
  ClassResults results(model.info, options);
  measure(network, model, *data, options, results);
  return results;
}

/// The predicted class of a row of logits, and its probability.
std::pair<std::int64_t, double> answer_of(std::span<const double> row) {
  if (std::any_of(row.begin(), row.end(), [](double logit) { return std::isnan(logit); }))
    return {Evaluation::kNone, std::numeric_limits<double>::quiet_NaN()};
  const auto largest = std::max_element(row.begin(), row.end());  // the first of equal ones
  double sum = 0;
  for (const double logit : row) sum += std::exp(logit - *largest);
  return {largest - row.begin(), 1 / sum};
}

}  // namespace

// Here, as a page of a run shows an evaluation without what measures one.
void Evaluation::add(const Tensor& losses, const Tensor& logits, const Tensor& labels,
                     const Tensor& samples) {
  const std::int64_t n = samples.shape().rank() == 1 ? samples.dim(0) : -1;
  ATH_CHECK(
      losses.shape() == Shape{n} && labels.shape() == Shape{n} && logits.shape() == (Shape{n, classes()}),
      "evaluation: must get losses [N], logits [N, {}] and labels [N], but got {}, {} and {}", classes(),
      losses.shape(), logits.shape(), labels.shape());
  const Tensor here[]{losses.detach().to(kCpu), logits.detach().to(kCpu), labels.to(kCpu)};
  const std::vector<double> loss = here[0].to_vector(), all = here[1].to_vector(), is = here[2].to_vector(),
                            index = samples.to_vector();
  std::vector<std::int64_t> counted;
  for (std::size_t i = 0; i < loss.size(); ++i) {
    if (index[i] < 0) continue;
    const auto label = static_cast<std::int64_t>(is[i]);
    ATH_CHECK(label >= 0 && label < classes(), "evaluation: a label must be in [0, {}), but is {}", classes(),
              label);
    const auto [predicted, probability] =
        answer_of(std::span(all).subspan(i * figures_.size(), figures_.size()));
    count(label, predicted, 1);
    if (predicted != label)
      keep({static_cast<std::int64_t>(index[i]), label, predicted, loss[i], probability});
    counted.push_back(static_cast<std::int64_t>(i));
  }
  const Tensor rows = Tensor::from(counted, {std::ssize(counted)});
  const auto of_rows = [&](const Tensor& x) { return index_select(x, 0, rows); };
  if (!sums_) sums_ = std::make_shared<MetricSums>(kCpu);
  sums_->add("loss", LossAndAccuracy(), of_rows(here[0]), of_rows(here[1]), of_rows(here[2]));
  sums_->add("top", TopKAccuracy(top_), of_rows(here[1]), of_rows(here[2]));
  const Metrics now = sums_->mean(sums_->read());
  loss_ = now.loss;
  top_k_ = now.value_of("top");
}

void check_images(const ModelInfo& model, const Dataset& data) {
  const ImageSpec &takes = model.images, &has = data.spec();
  ATH_CHECK(data.size() > 0, "there must be images, but there are none");
  ATH_CHECK(takes.height == has.height && takes.width == has.width && takes.channels == has.channels,
            "images must be {}x{}x{}, as the model expects, but are {}x{}x{}", takes.height, takes.width,
            takes.channels, has.height, has.width, has.channels);
}

Evaluation evaluate(const ModelFile& model, const Dataset& data, const EvaluateOptions& options) {
  return evaluate(*make_network(model), model, data, options);
}

Evaluation evaluate(nn::Module& network, const ModelFile& model, const Dataset& data,
                    const EvaluateOptions& options) {
  return measure_classes(network, model, data, options).evaluation();
}

std::unique_ptr<Results> evaluate_task(nn::Module& network, const ModelFile& model, const Dataset& data,
                                       const EvaluateOptions& options) {
  const ModelInfo& info = model.info;
  if (info.task == LabelKind::classes)
    return std::make_unique<ClassResults>(measure_classes(network, model, data, options));
  check_images(info, data);
  check_labels(info, data);
  std::unique_ptr<Results> results;
  if (info.task == LabelKind::multilabel)
    results = std::make_unique<LabelResults>(info, columns_of(info, data), options.worst);
  else
    results = std::make_unique<ValueResults>(info, columns_of(info, data), options.worst);
  measure(network, model, data, options, *results);
  return results;
}

std::string summary_of(const ModelInfo& model, const Results& results, const Evaluated& of) {
  const std::string measured = of.precision.empty() ? "" : fmt::format(", measured in {}", of.precision);
  return fmt::format("{}: {} of {}, {}, {}{}\n{}: {} images\n\n{}\n\n{}", printable(of.model),
                     model.model.empty() ? "a network" : printable(model.model), printable(model.program),
                     model.is_quantized() ? model.quantized : name_of(model.precision),
                     printable(model.weights), measured, printable(of.data), with_commas(results.images()),
                     results.headline(model), results.text(of));
}

}  // namespace athanor
