// How far the rules of ConvImpl::automatic are from the best implementation, over every convolution of a
// model: its passes in one training step, each implementation in turn.
//
//     bench_conv_choices [--json FILE] [MODEL:BATCH[:DTYPE]...]     those of bench/peers, f32 and bf16
//
// Prints a row for each pass of each shape: the shortest time of each implementation, and the rule's divided
// by the best. Ends with each model's sums and its worst row. FILE gets the rows, and the machine's roofs.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "autograd/engine.h"
#include "autograd/loss.h"
#include "bench/support/roof.h"
#include "kernels/conv_choices.h"
#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "kernels/implementations.h"
#include "nn/models/model.h"
#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"

namespace athanor::bench {
namespace {

struct Workload {
  std::string model;
  std::int64_t batch = 0;
  DType dtype = DType::f32;
};

Workload workload_from(const std::string& text) {
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  Workload of{text.substr(0, first)};
  if (first != std::string::npos) of.batch = std::atoll(text.substr(first + 1).c_str());
  const auto dtype = second == std::string::npos ? DType::f32 : dtype_named(text.substr(second + 1));
  ATH_CHECK(of.batch > 0 && dtype, "bench_conv_choices: must be MODEL:BATCH[:DTYPE], but is '{}'", text);
  of.dtype = *dtype;
  return of;
}

std::vector<Workload> default_workloads() {
  std::vector<Workload> all;
  for (const char* text : {"digits_cnn:64", "lenet5:64", "lenet5:512", "resnet20:128", "resnet18_cifar:64",
                           "cifarnet:500", "resnet50:16", "mobilenet_v2:16"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      all.push_back(workload_from(text));
      all.back().dtype = dtype;
    }
  }
  return all;
}

Tensor cast(const Tensor& x, DType dtype) {
  const Tensor y = Tensor::empty(x.shape(), {dtype});
  kernels::copy(cpu_context(), x, y);
  return y;
}

/// The measurements of one training step.
std::vector<ConvTimes> measure(const Workload& of) {
  const nn::ModelOptions options = nn::model_options(of.model);
  const auto network = nn::make_model(of.model, options, 1);
  if (of.dtype != DType::f32) network->to(of.dtype);
  const std::int64_t side = options.image_size;
  std::vector<float> pixels(static_cast<std::size_t>(of.batch * side * side * options.in_channels));
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = std::sin(static_cast<float>(i % 10007));
  const Tensor images = cast(Tensor::from(pixels, {of.batch, side, side, options.in_channels}), of.dtype);
  std::vector<ConvTimes> found;
  set_conv_choices("");
  const MeasureConvs measure([&found](const ConvTimes& times) { found.push_back(times); });
  network->train();
  const Tensor logits = (*network)(images);
  backward(cross_entropy(logits, Tensor::zeros({of.batch}, {DType::i64})));
  return found;
}

/// FLOPs of the definition, and bytes of x, w and y, each once.
struct Cost {
  double flops = 0, bytes = 0;
};
Cost cost_of(const ConvTimes& times) {
  std::istringstream words(times.conv);
  std::string pass, in, out;
  int threads = 0;
  double z[16];
  words >> pass >> in >> out >> threads;
  for (double& size : z) words >> size;
  const double images = z[0], outputs = images * z[7] * z[8] * z[4];
  const double filter = z[5] * z[6] * z[3] / z[15];
  const auto size = static_cast<double>(size_of(dtype_named(in).value()));
  return {2 * outputs * filter, size * (images * z[1] * z[2] * z[3] + z[4] * filter + outputs)};
}

double best_of(const ConvTimes& times) {
  double best = times.seconds.front().second;
  for (const auto& timed : times.seconds) best = std::min(best, timed.second);
  return best;
}

/// Rule over best, of one row or of sums.
struct Account {
  double rule_s = 0, best_s = 0, worst = 1;
  std::string worst_conv;

  void add(const ConvTimes& times) {
    const double rule = times.seconds.front().second, best = best_of(times);
    rule_s += rule;
    best_s += best;
    if (rule / best <= worst) return;
    worst = rule / best;
    worst_conv = times.conv;
  }
};

std::string_view name_in_row(std::string_view implementation) {
  return implementation == "automatic" ? "rule" : implementation;
}

nlohmann::json json_of(const std::string& workload, const ConvTimes& times) {
  const Cost cost = cost_of(times);
  nlohmann::json row{
      {"workload", workload}, {"conv", times.conv}, {"flops", cost.flops}, {"bytes", cost.bytes}};
  for (const auto& [name, seconds] : times.seconds) row["seconds"][std::string(name_in_row(name))] = seconds;
  return row;
}

void print_row(const ConvTimes& times) {
  std::string row = fmt::format("  {:<90}", times.conv);
  for (const auto& [name, seconds] : times.seconds)
    row += fmt::format(" {} {:.1f}", name_in_row(name), seconds * 1e6);
  const double rule = times.seconds.front().second;
  std::printf("%s us, %.0f GFLOP/s, %.2f\n", row.c_str(), cost_of(times).flops / rule * 1e-9,
              rule / best_of(times));
}

int run(const std::vector<Workload>& workloads, const char* json_file) {
  const double peak = fma_peak(), copies = copy_roof(1 << 28);
  const int threads = cpu_context().threads();
  std::printf("%s, threads: %d, %.0f GFLOP/s in f32, copies at %.1f GB/s\n", cpu_implementations().c_str(),
              threads, peak * 1e-9, copies * 1e-9);
  nlohmann::json all{{"implementations", cpu_implementations()},
                     {"threads", threads},
                     {"flops_per_s", peak},
                     {"bytes_per_s", copies},
                     {"rows", nlohmann::json::array()}};
  std::vector<std::string> sums;
  for (const Workload& of : workloads) {
    const std::string name = fmt::format("{}:{}:{}", of.model, of.batch, of.dtype);
    std::printf("\n%s\n", name.c_str());
    Account account;
    for (const ConvTimes& times : measure(of)) {
      print_row(times);
      account.add(times);
      all["rows"].push_back(json_of(name, times));
      std::fflush(stdout);
    }
    sums.push_back(fmt::format("{:<26} {:>10.2f} {:>10.2f} {:>7.3f} {:>7.3f}  {}", name, account.rule_s * 1e3,
                               account.best_s * 1e3, account.rule_s / account.best_s, account.worst,
                               account.worst_conv));
  }
  std::printf("\n%-26s %10s %10s %7s %7s  %s\n", "each shape once", "rules, ms", "best, ms", "ratio", "worst",
              "of");
  for (const std::string& sum : sums) std::printf("%s\n", sum.c_str());
  if (json_file) write_atomically(json_file, all.dump(1) + "\n");
  return 0;
}

}  // namespace
}  // namespace athanor::bench

int main(int argc, char** argv) try {
  using namespace athanor::bench;
  const char* json_file = nullptr;
  std::vector<Workload> workloads;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--json" && i + 1 < argc)
      json_file = argv[++i];
    else
      workloads.push_back(workload_from(argv[i]));
  }
  return run(workloads.empty() ? default_workloads() : workloads, json_file);
} catch (const athanor::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
