// The distribution of a network's gradients, and which of them f16 can represent. Trains for some steps in
// f32, then computes the gradients of one batch in f32, in f16, and in f16 with a loss scale. Prints the
// losses by rounding, and writes the number of gradients per power of two.
//
//   build/cpu/bin/gradient_histogram --out gradients.json
//   docs/figures/draw.py . gradient_histogram --from gradients.json

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "athanor.h"
#include "kernels/cpu/context.h"
#include "tensor/base/nearest.h"
#include "trainer/readable.h"

namespace athanor::examples {
namespace {

constexpr std::int64_t kBatch = 64;

// Flags ----------------------------------------------------------------------------------------------------

struct Options {
  std::string model;  // empty: resnet20 if CIFAR-10 is available, else digits_cnn
  std::filesystem::path data_dir, out = "gradient_histogram.json";
  std::int64_t steps = 200;
  std::uint64_t seed = 0;
  double loss_scale = 65536;
};

template <class T> T number(const std::string& flag, const std::string& text, const char* what) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  ATH_CHECK(error == std::errc() && end == text.data() + text.size(), "{}: must be {}, but got '{}'", flag,
            what, text);
  return value;
}

Options parse(int argc, const char* const* argv) {
  Options options;
  const char* folder = std::getenv("ATHANOR_DATA_DIR");
  options.data_dir = folder ? folder : "data-cache";
  CLI::App app("Finds where the gradients of a network lie and which of them f16 can hold.",
               "gradient_histogram");
  app.allow_extras();
  std::vector<std::string> names{"--help"};
  const auto flag = [&](const char* name, const char* shown, const std::string& help, auto read) {
    names.emplace_back(name);
    app.add_option(
           name, [read](const CLI::results_t& texts) { return read(texts.at(0)), true; }, help)
        ->type_name(shown)
        ->take_last();
  };
  const std::vector<std::string> models = nn::model_names();
  flag("--model", "NAME",
       fmt::format("one of {} [resnet20 if there is CIFAR-10, else digits_cnn]", fmt::join(models, " ")),
       [&](const std::string& text) {
         ATH_CHECK(std::find(models.begin(), models.end(), text) != models.end(),
                   "--model: must be one of {}, but got '{}'{}", fmt::join(models, " "), text,
                   did_you_mean(text, models));
         options.model = text;
       });
  flag("--data-dir", "DIR", "folder that holds cifar10/ [$ATHANOR_DATA_DIR, else data-cache]",
       [&](const std::string& text) { options.data_dir = text; });
  flag("--steps", "N", "training steps before the gradients are recorded [200]",
       [&](const std::string& text) {
         options.steps = number<std::int64_t>("--steps", text, "a whole number");
         ATH_CHECK(options.steps >= 0, "--steps: must be at least 0, but got {}", text);
       });
  flag("--seed", "N", "random seed of weights and order [0]", [&](const std::string& text) {
    options.seed = number<std::uint64_t>("--seed", text, "a whole number of at least 0");
  });
  flag("--loss-scale", "S", "factor that the loss is multiplied with [65536]", [&](const std::string& text) {
    options.loss_scale = number<double>("--loss-scale", text, "a number");
    ATH_CHECK(options.loss_scale >= 0x1p-60 && options.loss_scale <= 0x1p60,
              "--loss-scale: must be in [2^-60, 2^60], but got {}", text);
  });
  flag("--out", "FILE", "file for the histograms, as JSON [gradient_histogram.json]",
       [&](const std::string& text) { options.out = text; });
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw HelpRequested(app.help());
  } catch (const CLI::ParseError& error) {
    detail::fail<>("gradient_histogram: {}; see --help", error.what());
  }
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) {
    const std::string name = extras[0].substr(0, extras[0].find('='));
    detail::fail<>("gradient_histogram: there is no flag '{}'{}; see --help", name,
                   did_you_mean(name, names));
  }
  if (options.model.empty())
    options.model = std::filesystem::exists(options.data_dir / "cifar10") ? "resnet20" : "digits_cnn";
  return options;
}

/// The output file, opened before minutes of computation.
std::ofstream open(const std::filesystem::path& path) {
  std::ofstream file(path, std::ios::app);
  if (!file) {
    detail::fail<IoError>("--out: {} must be a file that can be written, but cannot be opened",
                          path.string());
  }
  return file;
}

// Training -------------------------------------------------------------------------------------------------

/// SGD in f32 with one cycle of the learning rate; returns the model's state.
StateDict train(const Options& options, const Dataset& data, Loader& loader, const Preprocess& preprocess) {
  const ImageSpec& spec = data.spec();
  const auto model = nn::make_model(options.model, {spec.classes, spec.channels, spec.height}, options.seed);
  ParameterArena arena(model->parameters(), model->buffers());
  Sgd sgd(arena, {.momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true});
  GradientMeter meter(arena);
  StepBuffer step(kCpu, {.seed = options.seed});
  const BoundStep bound(cpu_context(), step);
  const Schedule schedule = schedules::one_cycle(
      {.max_rate = 0.1, .total = std::max<std::int64_t>(options.steps, 1), .rise = 0.25});
  Batch batch;
  for (std::int64_t i = 0; i < options.steps; ++i) {
    if (!loader.next(batch)) {
      loader.start_epoch(loader.epoch() + 1);
      loader.next(batch);
    }
    arena.zero_grad();
    cpu_context().set_random_ops(0);
    const Tensor loss = cross_entropy((*model)(preprocess(batch, loader.epoch(), true)), batch.labels);
    backward(loss);
    meter.measure(step);
    ATH_CHECK(!step->found_inf,
              "training: gradients must be finite, but those of step {} are not; use fewer --steps or "
              "another --model",
              i);
    sgd.set_learning_rates(step, schedule);
    sgd.step(step);
    finish_step(step);
    if ((i + 1) % 50 == 0) fmt::print("step {:4}  loss {:.3f}\n", i + 1, loss.item()), std::fflush(stdout);
  }
  return arena.state_dict();
}

// The gradients of one batch -------------------------------------------------------------------------------

/// Of the parameters, then of all results between them and the loss.
struct Gradients {
  std::vector<Tensor> parameters, activations;
  double loss = 0;
};

/// A handle for a node's result. The values are gone; grad() only needs the node.
Tensor handle_of(const Ref<AutogradState>& node) {
  const Tensor handle = Tensor::empty({0});
  handle.set_autograd(node);
  return handle;
}

/// The results of all ops that `root` depends on, itself included, in an order defined by the graph.
std::vector<Tensor> results_behind(const Tensor& root) {
  std::vector<Tensor> found;
  std::set<const AutogradState*> seen;
  std::vector<Ref<AutogradState>> stack{root.autograd()};
  while (!stack.empty()) {
    const Ref<AutogradState> state = stack.back();
    stack.pop_back();
    if (!state || state->is_leaf() || !seen.insert(state.get()).second) continue;
    found.push_back(handle_of(state));
    const Node& node = static_cast<const Node&>(*state);
    for (int i = 0; i < node.inputs(); ++i) stack.push_back(node.edge(i));
  }
  return found;
}

Gradients take(const Options& options, const ImageSpec& spec, const StateDict& state, const Tensor& images,
               const Tensor& labels, Precision precision, double scale) {
  const auto model = nn::make_model(options.model, {spec.classes, spec.channels, spec.height}, 0);
  model->load_state_dict(state);
  const ParameterArena arena(model->parameters(), model->buffers(), {.precision = precision});
  StepBuffer step(kCpu, {.seed = options.seed});  // the same dropout in each run
  const BoundStep bound(cpu_context(), step);
  cpu_context().set_random_ops(0);
  const Tensor logits = (*model)(cast(images, compute_dtype(precision)));
  const Tensor loss = cross_entropy(logits, labels);
  std::vector<Tensor> wanted;
  for (const Parameter& parameter : arena.parameters()) wanted.push_back(parameter.tensor);
  const auto parameters = static_cast<std::ptrdiff_t>(wanted.size());
  for (const Tensor& result : results_behind(logits)) wanted.push_back(result);
  const Tensor seed = Tensor::from(std::vector<float>{static_cast<float>(scale)}, {});
  const std::vector<Tensor> found = grad(loss, wanted, seed);
  return {
      {found.begin(), found.begin() + parameters}, {found.begin() + parameters, found.end()}, loss.item()};
}

// What became of them --------------------------------------------------------------------------------------

struct Tally {
  std::int64_t all = 0, not_zero = 0, zero = 0, subnormal = 0, overflowed = 0;
  double squares = 0, squared_error = 0;  // of those nonzero in f32 and finite here
};

/// Compares gradients with the exact ones. Gradients always kept in f32 (of a norm's scale and shift) are
/// never subnormal here.
Tally compare(const std::vector<Tensor>& exact, const std::vector<Tensor>& rounded, double scale) {
  Tally tally;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (!exact[i].defined()) continue;
    const std::vector<double> want = exact[i].to_vector(), got = rounded[i].to_vector();
    const double smallest_normal = rounded[i].dtype() == DType::f16 ? 0x1p-14 : 0x1p-126;
    for (std::size_t j = 0; j < want.size(); ++j) {
      ++tally.all;
      if (want[j] == 0) continue;
      ++tally.not_zero;
      if (!std::isfinite(got[j])) {
        ++tally.overflowed;
        continue;
      }
      tally.zero += got[j] == 0;
      tally.subnormal += got[j] != 0 && std::fabs(got[j]) < smallest_normal;
      const double error = got[j] / scale - want[j];
      tally.squares += want[j] * want[j];
      tally.squared_error += error * error;
    }
  }
  return tally;
}

void print_row(const char* what, const Tally (&tallies)[2], std::int64_t Tally::*count) {
  fmt::print("  {:<28}", what);
  for (const Tally& tally : tallies) {
    const double share = 100.0 * static_cast<double>(tally.*count) /
                         static_cast<double>(std::max<std::int64_t>(tally.not_zero, 1));
    fmt::print("{:>14} {:>6.2f} %", with_commas(tally.*count), share);
  }
  fmt::print("\n");
}

void print(const char* title, const Tally (&tallies)[2]) {
  fmt::print("{}\n", title);
  print_row("became zero", tallies, &Tally::zero);
  print_row("subnormal: fewer bits", tallies, &Tally::subnormal);
  print_row("overflowed", tallies, &Tally::overflowed);
  fmt::print("  {:<28}", "error of all together");
  for (const Tally& tally : tallies) {
    if (tally.overflowed > 0)
      fmt::print("{:>23}", "-");
    else
      fmt::print("{:>21.2f} %", 100 * std::sqrt(tally.squared_error / std::max(tally.squares, 1e-300)));
  }
  fmt::print("\n");
}

/// Number of gradients per power of two: "-3" counts those with 2^-3 <= |scale * gradient| < 2^-2.
nlohmann::json panel(const std::vector<Tensor>& gradients, const char* title, double scale) {
  std::map<int, std::int64_t> octaves;
  std::int64_t all = 0;
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    all += gradient.numel();
    for (const double value : gradient.to_vector()) {
      if (value != 0 && std::isfinite(value)) ++octaves[std::ilogb(value * scale)];
    }
  }
  nlohmann::json counts;
  for (const auto& [octave, count] : octaves) counts[std::to_string(octave)] = count;
  return {{"title", title},
          {"note", fmt::format("{} gradients, {}", with_commas(all),
                               scale == 1 ? "the loss as it is" : fmt::format("the loss times {}", scale))},
          {"octaves", counts}};
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  open(options.out);
  const bool on_digits = options.model == "digits_cnn";
  const auto data = on_digits ? digits(Split::train) : cifar10(options.data_dir / "cifar10", Split::train);
  const char* source = on_digits ? "handwritten digits" : "CIFAR-10";
  const Preprocess preprocess(data->spec(), measure(*data), DType::f32, kCpu);
  Loader loader(*data, {.batch_size = kBatch, .shuffle = true, .drop_last = true, .seed = options.seed});
  const StateDict state = train(options, *data, loader, preprocess);

  Batch batch;
  loader.start_epoch(loader.epoch() + 1);
  loader.next(batch);
  const Tensor images = preprocess(batch, 0, false);
  const auto gradients = [&](Precision precision, double scale) {
    return take(options, data->spec(), state, images, batch.labels, precision, scale);
  };
  const Gradients exact = gradients(Precision::f32, 1);
  const auto tally = [&](double scale) {
    const Gradients half = gradients(Precision::f16, scale);
    return std::array{compare(exact.parameters, half.parameters, scale),
                      compare(exact.activations, half.activations, scale)};
  };
  const auto plain = tally(1), scaled = tally(options.loss_scale);

  fmt::print("\n{} after {} steps on {}; one batch of {}, loss {:.3f}\n\n{:<30}{:>23}{:>23}\n", options.model,
             options.steps, source, kBatch, exact.loss, "gradients", "of parameters", "of activations");
  fmt::print("  {:<28}{:>14}{:>23}\n", "all", with_commas(plain[0].all), with_commas(plain[1].all));
  print_row("not zero in f32", {plain[0], plain[1]}, &Tally::not_zero);
  print("f16, the loss as it is", {plain[0], plain[1]});
  print(fmt::format("f16, the loss times {}", options.loss_scale).c_str(), {scaled[0], scaled[1]});

  nlohmann::json figure{
      {"subtitle", fmt::format("{} after {} steps on {}, the gradients of one batch of {} images in f32",
                               options.model, options.steps, source, kBatch)}};
  for (const double scale : {1.0, options.loss_scale}) {
    figure["panels"].push_back(panel(exact.parameters, "Parameters", scale));
    figure["panels"].push_back(panel(exact.activations, "Activations", scale));
  }
  std::ofstream file(options.out, std::ios::trunc);
  file << figure << std::endl;
  if (!file) detail::fail<IoError>("--out: {} cannot be written", options.out.string());
  fmt::print("\n{}\n", options.out.string());
  return kExitDone;
}

}  // namespace
}  // namespace athanor::examples

int main(int argc, char** argv) {
  return athanor::run_main(argc, argv, athanor::examples::run);
}
