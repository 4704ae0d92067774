#include "examples/athanor_tool/account.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/readable.h"

namespace athanor::tool {
namespace {

using Rows = std::vector<AccountRow>;

std::int64_t images_of(const StepPlan& plan) {
  return plan.accumulate * plan.batch_size;
}

/// One row per kernel and pass of all layers, the longest time first.
Rows by_kernel(const Rows& rows) {
  Rows sums;
  for (const AccountRow& row : rows) {
    const auto same = [&](const AccountRow& sum) {
      return sum.kernel == row.kernel && sum.pass == row.pass && sum.assumed == row.assumed;
    };
    const auto found = std::find_if(sums.begin(), sums.end(), same);
    if (found == sums.end()) {
      sums.push_back(row);
      sums.back().layer.clear();
      continue;
    }
    found->launches += row.launches, found->read += row.read, found->written += row.written;
    found->flops += row.flops, found->seconds += row.seconds;
    if (found->roof != row.roof) found->roof = "several";
  }
  std::stable_sort(sums.begin(), sums.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return sums;
}

std::string amount(double value, double unit) {
  return value == 0 ? "-" : fmt::format("{:.2f}", value / unit);
}

std::string line(const AccountRow& row, std::int64_t counted, std::int64_t assumed, std::size_t layer,
                 std::size_t kernel) {
  return fmt::format("{:<{}}{:<{}}  {:<8}  {:>8}  {:>10}  {:>10}  {:>9}  {:<7}  {:>8}\n", row.layer,
                     layer > 0 ? layer + 2 : 0, row.kernel, kernel, row.pass, row.launches,
                     amount(static_cast<double>(counted), 1e6), amount(static_cast<double>(assumed), 1e6),
                     amount(static_cast<double>(row.flops), 1e9), row.roof,
                     fmt::format("{:.3f}", row.seconds * 1e3));
}

std::string table(const Rows& rows, const StepAccount* whole) {
  std::size_t layer = whole ? 0 : 5, kernel = 6;
  for (const AccountRow& row : rows) {
    if (!whole) layer = std::max(layer, row.layer.size());
    kernel = std::max(kernel, row.kernel.size());
  }
  std::string text = fmt::format("{:<{}}{:<{}}  {:<8}  {:>8}  {:>10}  {:>10}  {:>9}  {:<7}  {:>8}\n",
                                 whole ? "" : "layer", layer > 0 ? layer + 2 : 0, "kernel", kernel, "pass",
                                 "launches", "counted MB", "assumed MB", "GFLOP", "roof", "ms");
  for (const AccountRow& row : rows)
    text += line(row, row.assumed ? 0 : row.bytes(), row.assumed ? row.bytes() : 0, layer, kernel);
  if (!whole) return text;
  AccountRow total = whole->total;
  total.kernel = "total";
  return text + line(total, total.bytes() - whole->assumed_bytes, whole->assumed_bytes, layer, kernel);
}

}  // namespace

std::string text_of(const StepAccount& account, const StepPlan& plan, const Gpu& gpu) {
  const double ms = account.total.seconds * 1e3,
               rate = static_cast<double>(images_of(plan)) / account.total.seconds;
  return fmt::format("{}, {}, {} images: a training step on {}. A prediction: nothing here is measured.\n\n",
                     plan.model, name_of(plan.precision), with_commas(images_of(plan)), gpu.title) +
         table(account.rows, nullptr) + "\n" + table(by_kernel(account.rows), &account) +
         fmt::format(
             "\n{} launches, {:.2f} GB, {:.2f} TFLOP; tensors take {:.2f} GB at most. At the data sheet's "
             "rates "
             "({:.2f} TB/s,\n{:.1f} TFLOP/s) and at least {:.0f} us a launch, a step takes {:.2f} ms: {} "
             "images/s at most. Kernels reach a part of\nthese rates. Counted: bytes that our kernels ask "
             "for. Assumed: cuDNN and cuBLASLt read inputs and write outputs once;\nwith "
             "--deterministic, which is not counted here, no convolution computes the norm before it.\n",
             account.total.launches, static_cast<double>(account.total.bytes()) / 1e9,
             static_cast<double>(account.total.flops) / 1e12, static_cast<double>(account.peak_bytes) / 1e9,
             gpu.bytes_per_s / 1e12,
             gpu.flops_per_s(compute_dtype(plan.precision), plan.precision == Precision::tf32) / 1e12,
             kLaunchSeconds * 1e6, ms, with_commas(static_cast<std::int64_t>(rate)));
}

std::string json_of(const StepAccount& account, const StepPlan& plan, const Gpu& gpu) {
  using nlohmann::ordered_json;
  const auto sums = [](const AccountRow& row) {
    return ordered_json{
        {"launches", row.launches}, {"bytes", row.bytes()}, {"flops", row.flops}, {"seconds", row.seconds}};
  };
  ordered_json json{{"prediction", true},
                    {"model", plan.model},
                    {"gpu", std::string(gpu.name)},
                    {"precision", std::string(name_of(plan.precision))},
                    {"images", images_of(plan)},
                    {"total", sums(account.total)},
                    {"layers", ordered_json::array()}};
  json["total"]["counted_bytes"] = account.total.bytes() - account.assumed_bytes;
  json["total"]["assumed_bytes"] = account.assumed_bytes;
  json["total"]["peak_bytes"] = account.peak_bytes;
  for (const AccountRow& row : account.rows) {
    ordered_json entry{{"layer", row.layer}, {"pass", row.pass}, {"kernel", row.kernel}};
    entry.update(sums(row));
    entry["read"] = row.read, entry["written"] = row.written;
    entry["roof"] = row.roof, entry["assumed"] = row.assumed;
    json["layers"].push_back(std::move(entry));
  }
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace athanor::tool
