// A training step on a GPU, kernel by kernel, as the Trainer takes it: images of noise that lie on the
// device, forward, backward and update.
//
//     bench_step [OPTIONS] [MODEL:BATCH[:PRECISION[:OPTIMIZER[:augment]]]...]
//     bench_step           ResNet-50 of 256, ResNet-18 for CIFAR of 512, CifarNet of 2,000, in f16
//     bench_step --help    the options
//
// Of each workload: images/s of steps that the host queues one after the other, and of steps captured as CUDA
// graphs; what the host takes to queue one; waits and allocations, which must be 0; and for each kernel its
// launches, its time by an event before and after each, and the bytes and FLOPs of its account (athanor
// plan). In the emulator there are launches and bytes, and no times.
//
// Ends with 0; 1 if a steady step waits or allocates, or --require-vendor finds no call of cuDNN or cuBLASLt;
// 2 on wrong arguments; 3 without a GPU.

#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/step/measure.h"
#include "bench/step/report.h"
#include "bench/support/device_roof.h"
#include "kernels/cuda/vendor.h"
#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"
#include "tensor/stream.h"

namespace athanor::bench {
namespace {

struct Arguments {
  std::vector<std::string> workloads;
  std::string json, graph = "both", fused = "on";
  StepOptions options;
  std::int64_t image_size = 0;
  int plans = 0;
  bool require_vendor = false;
};

void declare(CLI::App& app, Arguments& to) {
  app.add_option("workload", to.workloads, "MODEL:BATCH[:f32|tf32|bf16|f16[:sgd|adam|adamw|muon[:augment]]]");
  app.add_option("--json", to.json, "writes the results to this file, anew whenever a phase has its own");
  app.add_option("--graph", to.graph, "steps captured as CUDA graphs: on (no others), off or both")
      ->check(CLI::IsMember({"on", "off", "both"}));
  app.add_option("--steps", to.options.phases.steady, "steady steps")->check(CLI::Range(1, 100'000));
  app.add_option("--timed-steps", to.options.phases.launches, "steps with an event around each launch")
      ->check(CLI::Range(1, 1000));
  app.add_option("--image-size", to.image_size, "pixels a side, instead of the model's")
      ->check(CLI::PositiveNumber);
  app.add_option("--plans", to.plans, "measures up to so many plans of each signature instead")
      ->check(CLI::Range(1, 1000));
  app.add_option("--profile-launch", to.options.profile_launch,
                 "for ncu --profile-from-start off: the launch of this kernel with the most bytes");
  app.add_option("--fused", to.fused, "off: each layer by kernels of its own")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_flag("--require-vendor", to.require_vendor, "fails if no call of cuDNN or cuBLASLt ran");
}

void write(const std::string& path, const nlohmann::json& json) {
  if (!path.empty()) write_atomically(path, json.dump(1) + "\n");
}

/// What is wrong with a result; empty: nothing.
std::vector<std::string> complaints(const StepResult& result, bool require_vendor) {
  std::vector<std::string> all;
  const auto about = [&](const StepRates& rates, const char* how) {
    if (rates.syncs != 0 || rates.allocations != 0)
      all.push_back(
          fmt::format("{}: {} steps {} must not wait or allocate, but had {} waits and {} allocations",
                      result.workload.name(), rates.steps, how, rates.syncs, rates.allocations));
  };
  if (result.plain) about(*result.plain, "queued");
  if (result.graph) about(*result.graph, "as graphs");
  if (require_vendor && result.vendor.calls == 0)
    all.push_back(fmt::format("{}: no call of cuDNN or cuBLASLt ran; are both libraries found?",
                              result.workload.name()));
  return all;
}

int run(const Arguments& arguments) {
  const Device device{DeviceType::cuda, 0};
  const DeviceInfo& info = device_info(device);
  const bool emulated = cuda_is_emulated();
  if (emulated) std::printf("emulated on the CPU: correct, not fast, so there are no times\n");
  const double copy_roof = emulated || arguments.plans > 0 ? 0 : device_copy_roof(device).per_second;
  nlohmann::json all{{"device", info.name},
                     {"sm", info.sm()},
                     {"emulated", emulated},
                     {"has_vendor", cuda::has_vendor()},
                     {"steps", nlohmann::json::array()},
                     {"plans", nlohmann::json::array()}};
  if (copy_roof > 0) all["copy_roof_gb_s"] = copy_roof * 1e-9;
  write(arguments.json, all);
  std::vector<StepWorkload> workloads;
  for (const std::string& text : arguments.workloads) workloads.push_back(step_workload(text));
  if (workloads.empty()) workloads = default_step_workloads();
  int code = 0;
  for (StepWorkload& workload : workloads) {
    workload.image_size = arguments.image_size;
    nlohmann::json& results = all[arguments.plans > 0 ? "plans" : "steps"];
    results.push_back(nullptr);
    const auto keep = [&](nlohmann::json so_far) {
      results.back() = std::move(so_far);
      write(arguments.json, all);
    };
    if (arguments.plans > 0) {
      const auto keep_plans = [&](const std::vector<PlanTimes>& so_far) { keep(json_of(workload, so_far)); };
      const std::vector<PlanTimes> plans = measure_plans(workload, arguments.plans, device, keep_plans);
      std::printf("%s\n", text_of(workload, plans).c_str());
      keep_plans(plans);
    } else {
      StepOptions options = arguments.options;
      options.on_phase = [&](const StepResult& so_far) { keep(json_of(so_far, copy_roof)); };
      const StepResult result = measure_step(workload, options, device);
      std::printf("%s\n", text_of(result, copy_roof).c_str());
      for (const std::string& complaint : complaints(result, arguments.require_vendor)) {
        std::fprintf(stderr, "bench_step: %s\n", complaint.c_str());
        code = 1;
      }
    }
    std::fflush(stdout);
  }
  return code;
}

}  // namespace
}  // namespace athanor::bench

int main(int argc, char** argv) {
  using namespace athanor;
  bench::Arguments arguments;
  CLI::App app{"times the steps of training on a GPU"};
  bench::declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // 0: --help
  }
  arguments.options.plain = arguments.graph != "on";
  arguments.options.graph = arguments.graph != "off";
  arguments.options.fused = arguments.fused == "on";
  try {
    if (cuda_device_count() == 0) {
      std::fprintf(stderr, "bench_step: %s\n", why_no_cuda().c_str());
      return 3;
    }
    return bench::run(arguments);
  } catch (const ArgumentError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_step: %s\n", error.what());
    return 3;
  }
}
