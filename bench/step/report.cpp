#include "bench/step/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "tensor/stream.h"

namespace athanor::bench {
namespace {

using Json = nlohmann::json;

const char* kind_name(cuda::Queued kind) {
  switch (kind) {
    case cuda::Queued::kernel: return "ours";
    case cuda::Queued::vendor: return "vendor";
    case cuda::Queued::copy: return "copy";
    case cuda::Queued::fill: return "fill";
  }
  return "?";
}

/// 0 where nothing was timed.
double per_second(std::int64_t amount, double us) {
  return us > 0 && !cuda_is_emulated() ? static_cast<double>(amount) / us * 1e6 : 0;
}

std::string cell(double value, int digits) {
  return value > 0 ? fmt::format("{:.{}f}", value, digits) : "-";
}

std::string rates_line(const StepRates& rates, const char* how) {
  const std::string counts = fmt::format("in {} steps {} syncs, {} allocations, {} new plans", rates.steps,
                                         rates.syncs, rates.allocations, rates.plans);
  if (cuda_is_emulated()) return fmt::format("  {}: {}\n", how, counts);
  return fmt::format("  {}: {:.1f} images/s, {:.3f} ms a step ({:.3f} to {:.3f}), host {:.3f} ms; {}\n", how,
                     rates.images_per_s, rates.step_ms, rates.p10_ms, rates.p90_ms, rates.host_ms, counts);
}

Json json_of(const StepRates& rates) {
  Json json{{"steps", rates.steps},
            {"syncs", rates.syncs},
            {"allocations", rates.allocations},
            {"new_plans", rates.plans}};
  if (cuda_is_emulated()) return json;
  json.update({{"images_per_s", rates.images_per_s},
               {"step_ms", rates.step_ms},
               {"p10_ms", rates.p10_ms},
               {"p90_ms", rates.p90_ms},
               {"host_ms", rates.host_ms}});
  return json;
}

Json json_of(const StepRow& row, double copy_roof) {
  Json json{{"kernel", row.name},       {"by", kind_name(row.kind)}, {"launches", row.launches},
            {"account", row.accounted}, {"bytes", row.bytes},        {"flops", row.flops}};
  if (!row.layer.empty()) json["layer"] = row.layer;
  if (!row.pass.empty()) json["pass"] = row.pass;
  if (cuda_is_emulated()) return json;
  json["us"] = row.us;
  json["tb_s"] = per_second(row.bytes, row.us) * 1e-12;
  json["tflop_s"] = per_second(row.flops, row.us) * 1e-12;
  if (copy_roof > 0) json["copy_percent"] = 100 * per_second(row.bytes, row.us) / copy_roof;
  return json;
}

}  // namespace

std::string text_of(const StepResult& result, double copy_roof) {
  std::string text = result.workload.name() + "\n";
  if (result.plain) text += rates_line(*result.plain, "queued");
  if (result.graph) text += rates_line(*result.graph, "as a graph");
  if (!result.why_no_graph.empty()) text += fmt::format("  no graph: {}\n", result.why_no_graph);
  text += fmt::format("  vendor: {} calls, {} plans made ({} measured), {} read, {} rejected\n",
                      result.vendor.calls, result.vendor.plans_made, result.vendor.tuned,
                      result.vendor.plans_loaded, result.vendor.disk_rejected);
  for (const std::string& note : result.notes) text += fmt::format("  {}\n", note);
  if (!result.plain) return text;
  const std::vector<StepRow> kernels = result.kernels();
  double all_us = 0;
  std::int64_t launches = 0, accounted = 0, bytes = 0;
  for (const StepRow& row : kernels) {
    all_us += row.us, launches += row.launches, accounted += row.accounted, bytes += row.bytes;
  }
  text += fmt::format("\n  {:<30} {:<6} {:>8} {:>8} {:>10} {:>6} {:>10} {:>7} {:>7} {:>8}\n", "kernel", "by",
                      "launches", "account", "us", "%", "MB", "TB/s", "% copy", "TFLOP/s");
  const auto line = [&](const StepRow& row, const std::string& name, const char* by) {
    const double rate = per_second(row.bytes, row.us), us = cuda_is_emulated() ? 0 : row.us;
    text += fmt::format("  {:<30} {:<6} {:>8} {:>8} {:>10} {:>6} {:>10.2f} {:>7} {:>7} {:>8}\n", name, by,
                        row.launches, row.accounted, cell(us, 1), cell(us > 0 ? 100 * us / all_us : 0, 1),
                        static_cast<double>(row.bytes) * 1e-6, cell(rate * 1e-12, 2),
                        cell(copy_roof > 0 ? 100 * rate / copy_roof : 0, 0),
                        cell(per_second(row.flops, row.us) * 1e-12, 1));
  };
  for (const StepRow& row : kernels) line(row, row.name, kind_name(row.kind));
  StepRow sum;
  sum.launches = launches, sum.accounted = accounted, sum.bytes = bytes, sum.us = all_us;
  line(sum, "all", "");
  if (!cuda_is_emulated())
    text += fmt::format("  a step with an event around each launch: {:.3f} ms, {:.3f} ms of it in launches\n",
                        result.timed_step_ms, all_us * 1e-3);
  for (const StepRow& row : result.off_account())
    text += fmt::format("  off the account: {} of {} {}: {} launches, {} accounted\n", row.name,
                        row.layer.empty() ? "the step" : row.layer, row.pass, row.launches, row.accounted);
  if (!result.profiled.name.empty())
    text += fmt::format("  a profiler {} {} of {} {}\n", result.profiled_ran ? "saw" : "did not see",
                        result.profiled.name, result.profiled.layer, result.profiled.pass);
  return text;
}

Json json_of(const StepResult& result, double copy_roof) {
  const StepWorkload& workload = result.workload;
  Json json{{"workload", workload.name()},
            {"model", workload.model},
            {"batch", workload.batch},
            {"precision", name_of(workload.precision)},
            {"optimizer", name_of(workload.optimizer)},
            {"began_s", result.began_s},
            {"ended_s", result.ended_s},
            {"vendor",
             {{"calls", result.vendor.calls},
              {"plans_made", result.vendor.plans_made},
              {"measured", result.vendor.tuned},
              {"by_handle", result.vendor.by_handle},
              {"by_text", result.vendor.by_text},
              {"read", result.vendor.plans_loaded},
              {"rejected", result.vendor.disk_rejected},
              {"refused", result.vendor.refused},
              {"fallbacks", result.vendor.fallbacks},
              {"tuning_s", result.vendor.tuning_s}}},
            {"notes", result.notes}};
  if (result.plain) json["plain"] = json_of(*result.plain);
  if (result.graph) json["graph"] = json_of(*result.graph);
  if (!result.why_no_graph.empty()) json["why_no_graph"] = result.why_no_graph;
  if (!result.plain) return json;
  const AccountRow& total = result.account.total;
  json["account"] = {{"launches", total.launches}, {"bytes", total.bytes()}, {"flops", total.flops}};
  if (!cuda_is_emulated()) json["timed_step_ms"] = result.timed_step_ms;
  for (const char* list : {"kernels", "rows", "off_account"}) json[list] = Json::array();
  for (const StepRow& row : result.kernels()) json["kernels"].push_back(json_of(row, copy_roof));
  for (const StepRow& row : result.rows) json["rows"].push_back(json_of(row, copy_roof));
  for (const StepRow& row : result.off_account()) json["off_account"].push_back(json_of(row, copy_roof));
  if (!result.profiled.name.empty()) {
    json["profiled"] = {
        {"kernel", result.profiled.name}, {"layer", result.profiled.layer}, {"pass", result.profiled.pass}};
    for (const AccountRow& row : result.account.rows) {
      if (row.layer == result.profiled.layer && row.pass == result.profiled.pass &&
          row.kernel == result.profiled.name)
        json["profiled"]["bytes"] = row.bytes() / row.launches;
    }
  }
  return json;
}

std::string text_of(const StepWorkload& workload, const std::vector<PlanTimes>& plans) {
  std::string text =
      fmt::format("{}: {} signatures\n  {:>5} {:>10} {:>10} {:>6} {:>10}  signature\n", workload.name(),
                  plans.size(), "plans", "chosen us", "best us", "ratio", "our us");
  double chosen = 0, best = 0;
  for (const PlanTimes& one : plans) {
    const bool both = std::isfinite(one.chosen_ms) && std::isfinite(one.best_ms);
    if (both) chosen += one.chosen_ms, best += one.best_ms;
    text +=
        fmt::format("  {:>5} {:>10} {:>10} {:>6} {:>10}  {}\n", one.ms.size(), cell(1e3 * one.chosen_ms, 1),
                    cell(1e3 * one.best_ms, 1), both ? cell(one.chosen_ms / one.best_ms, 3) : "-",
                    cell(1e3 * one.own_ms, 1), one.signature);
  }
  return text + fmt::format(
                    "  each signature once, a convolution with and without sums: chosen {:.3f} ms, "
                    "best {:.3f} ms\n",
                    chosen, best);
}

Json json_of(const StepWorkload& workload, const std::vector<PlanTimes>& plans) {
  const auto finite = [](double ms) { return std::isfinite(ms) ? Json(ms) : Json(); };
  Json json{{"workload", workload.name()}, {"signatures", Json::array()}};
  for (const PlanTimes& one : plans) {
    Json row{{"signature", one.signature},
             {"chosen_ms", finite(one.chosen_ms)},
             {"best_ms", finite(one.best_ms)},
             {"own_ms", finite(one.own_ms)},
             {"ms", Json::array()}};
    for (const double ms : one.ms) row["ms"].push_back(finite(ms));
    json["signatures"].push_back(std::move(row));
  }
  return json;
}

}  // namespace athanor::bench
