#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "examples/athanor_tool/account.h"
#include "examples/athanor_tool/rank_bytes.h"
#include "nn/models/model.h"
#include "optim/optimizer.h"
#include "tensor/base/error.h"
#include "tensor/base/nearest.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/flags/recipe.h"
#include "trainer/readable.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {
namespace {

struct PlanOptions {
  std::string model, precision = "f32", optimizer = "sgd", gpu, image_size;
  std::int64_t batch_size = 64;
  int devices = 2;
  bool accumulate = false, json = false;
  nn::ModelOptions size;
  dist::BucketOptions buckets;
};

bool is_muon(const PlanOptions& options) {
  return options.optimizer == "muon";
}

StatesOf states_of(const std::string& optimizer) {
  std::vector<std::string> names;
  for (const OptimizerEntry& entry : optimizer_table()) names.emplace_back(entry.name);
  ATH_CHECK(std::find(names.begin(), names.end(), optimizer) != names.end(),
            "--optimizer: must be sgd (with momentum), adam, adamw or muon, but got '{}'{}", optimizer,
            did_you_mean(optimizer, names));
  return [=](const Parameter& parameter) {
    return optimizer == "sgd" || (optimizer == "muon" && selectors::matrices()(parameter)) ? 1 : 2;
  };
}

OptimizerKind kind_of(const PlanOptions& options) {
  (void)states_of(options.optimizer);  // refuses unknown ones
  return std::ranges::find(optimizer_table(), options.optimizer, &OptimizerEntry::name)->kind;
}

struct Plan {
  RankBytes bytes;
  std::int64_t sent = 0, parameters = 0;
  std::size_t buckets = 0;
};

Plan plan(const PlanOptions& options, Precision precision, bool sharded) {
  const auto model = nn::make_model(options.model, options.size, 0);
  dist::BucketOptions buckets = options.buckets;
  buckets.whole_parameters = sharded && entry_of(kind_of(options)).whole_parameters;
  const ParameterArena arena(model->parameters(), model->buffers(),
                             dist::bucketed({.precision = precision, .f32_gradients = options.accumulate},
                                            options.devices, buckets));
  const dist::BucketLayout layout(arena, options.devices);
  return {bytes_per_rank(arena, layout, states_of(options.optimizer), sharded),
          sent_per_step(arena, layout, sharded), arena.numel(), layout.buckets().size()};
}

std::string megabytes(std::int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / 1e6);
}

/// --gpu: the account of a step on one GPU.
void account(const PlanOptions& options, Precision precision) {
  const Gpu& gpu = gpu_named(options.gpu);
  ATH_CHECK(options.batch_size >= 1 && options.batch_size <= 65536,
            "--batch-size: must be in [1, 65536], but got {}", options.batch_size);
  ATH_CHECK(precision != Precision::bf16 || gpu.bf16,
            "--precision: {} has no tensor cores for bf16; use f16, or another --gpu", gpu.title);
  const StepPlan step{.model = options.model,
                      .size = options.size,
                      .batch_size = options.batch_size,
                      .accumulate = options.accumulate ? 2 : 1,
                      .precision = precision,
                      .optimizer = kind_of(options)};
  const StepAccount found = account_for_step(step, gpu);
  fmt::print("{}{}", options.json ? json_of(found, step, gpu) : text_of(found, step, gpu),
             options.json ? "\n" : "");
}

void plan(PlanOptions& options) {
  if (!options.image_size.empty()) {
    const ImageSize size = read_flag::image_size("--image-size", options.image_size);
    options.size.image_size = size.height;
    options.size.image_width = size.width;
  }
  const auto precision = precision_named(options.precision);
  ATH_CHECK(precision, "--precision: must be f32, tf32, bf16 or f16, but got '{}'", options.precision);
  ATH_CHECK(options.devices >= 1 && options.devices <= 65536, "--devices: must be in [1, 65536], but got {}",
            options.devices);
  const auto at_least_one = [](const char* flag, std::int64_t value) {
    ATH_CHECK(value >= 0, "{}: must be at least 1, but got {}", flag, value);  // 0: not given
  };
  at_least_one("--classes", options.size.classes);
  if (!options.gpu.empty()) return account(options, *precision);
  ATH_CHECK(!options.json, "--json: needs --gpu, whose account it prints; try --gpu h200");
  const Plan of_ddp = plan(options, *precision, false), of_zero1 = plan(options, *precision, true);
  const RankBytes &ddp = of_ddp.bytes, &zero1 = of_zero1.bytes;
  fmt::print("{}: {} parameters, {}, {}, {} rank{}, {} bucket{}\n\n", options.model,
             with_commas(of_ddp.parameters), name_of(*precision), options.optimizer, options.devices,
             options.devices == 1 ? "" : "s", of_ddp.buckets, of_ddp.buckets == 1 ? "" : "s");
  fmt::print("MB per rank    {:>12} {:>12}\n", "ddp", "zero1");
  const auto row = [](const char* what, std::int64_t a, std::int64_t b) {
    fmt::print("{:<14} {:>12} {:>12}\n", what, megabytes(a), megabytes(b));
  };
  row("weights", ddp.weights, zero1.weights);
  row("gradients", ddp.gradients, zero1.gradients);
  row("masters", ddp.masters, zero1.masters);
  row("optimizer", ddp.optimizer, zero1.optimizer);
  row("buffers", ddp.buffers, zero1.buffers);
  row("communication", ddp.comm, zero1.comm);
  row("all", ddp.total(), zero1.total());
  row("sent per step", of_ddp.sent, of_zero1.sent);
  const std::int64_t spared = ddp.total() - zero1.total();
  fmt::print("\nActivations{} add the same to both. ", is_muon(options) ? " and Muon's workspace" : "");
  if (zero1_pays(ddp, zero1)) {
    fmt::print("zero1 saves {} MB per rank ({:.0f} %).\n", megabytes(spared),
               100 * static_cast<double>(spared) / static_cast<double>(ddp.total()));
  } else {
    fmt::print("zero1 is not worth it: it saves only {} MB per rank; use ddp.\n", megabytes(spared));
  }
}

void add_plan(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("plan", "memory per rank, or with --gpu the predicted time of a step");
  const auto options = std::make_shared<PlanOptions>();
  command->add_option("model", options->model, "name of the model, as for --model")->required();
  command->add_option("--devices", options->devices, "ranks that share the work [2]");
  command->add_option("--precision", options->precision, "of the weights: f32, tf32, bf16 or f16 [f32]");
  command->add_option("--optimizer", options->optimizer, "sgd (with momentum), adam, adamw or muon [sgd]");
  command->add_flag("--accumulate", options->accumulate, "f32 gradients; with --gpu, a step of two batches");
  command->add_option("--classes", options->size.classes, "outputs of the last layer [the model's own]");
  command->add_option("--image-size", options->image_size,
                      "side of an image in pixels, or HEIGHTxWIDTH [the model's own]");
  command->add_option("--gpu", options->gpu, "GPU to predict a step for: h200, h100, a100, ...");
  command->add_option("--batch-size", options->batch_size, "images per step on that GPU [64]");
  command->add_flag("--json", options->json, "with --gpu: print the account as JSON");
  command->callback([options] { plan(*options); });
}

const Command plan_command("plan", add_plan);

}  // namespace
}  // namespace athanor::tool
