// The tables of --profile.

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "trainer/detail/terminal.h"
#include "trainer/profile/profiler.h"
#include "trainer/readable.h"

namespace athanor {
namespace {

constexpr std::size_t kRows = 24;  // of ops; the rest is one row

bool same(const char* a, const char* b) {
  return a == b || (a && b && std::strcmp(a, b) == 0);
}

void add(OpTotal& to, const OpTotal& one) {
  to.calls += one.calls;
  to.seconds += one.seconds;
  to.bytes += one.bytes;
  to.flops += one.flops;
}

/// Totals over layers; equal names may be different literals.
std::vector<OpTotal> by_op(const std::vector<OpTotal>& totals) {
  std::vector<OpTotal> all;
  for (const OpTotal& one : totals) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const OpTotal& other) {
      return other.backward == one.backward && same(other.op, one.op);
    });
    if (found == all.end()) {
      all.push_back(one);
    } else {
      add(*found, one);
    }
  }
  std::sort(all.begin(), all.end(), [](const OpTotal& a, const OpTotal& b) { return a.seconds > b.seconds; });
  return all;
}

double seconds_of(const std::vector<OpTotal>& totals) {
  double all = 0;
  for (const OpTotal& one : totals) all += one.seconds;
  return std::max(all, 1e-12);
}

std::string row_of(const OpTotal& one, const char* pass, double all, const Roof& roof) {
  const double seconds = std::max(one.seconds, 1e-12), bytes = one.bytes / seconds,
               flops = one.flops / seconds;
  std::string limit;
  if (roof.bytes_per_s > 0 && roof.flops_per_s > 0) {
    const double of_memory = bytes / roof.bytes_per_s, of_compute = flops / roof.flops_per_s;
    limit = fmt::format("{:.0f} % {}", 100 * std::max(of_memory, of_compute),
                        of_compute > of_memory ? "compute" : "memory");
  }
  return fmt::format("  {:<17} {:<8} {:>8} {:>9.1f} {:>8.1f} {:>5.1f} {:>6.1f} {:>8} {:>12}\n", one.op, pass,
                     with_commas(one.calls), 1e3 * one.seconds,
                     1e6 * seconds / static_cast<double>(std::max<std::int64_t>(one.calls, 1)),
                     100 * one.seconds / all, bytes / 1e9,
                     one.flops > 0 ? fmt::format("{:.1f}", flops / 1e9) : "-", limit);
}

}  // namespace

std::string text_by_op(const std::vector<OpTotal>& totals, const Roof& roof) {
  std::string text = fmt::format("  {:<17} {:<8} {:>8} {:>9} {:>8} {:>5} {:>6} {:>8} {:>12}\n", "op", "pass",
                                 "calls", "ms", "mean us", "%", "GB/s", "GFLOP/s", "of the roof");
  const std::vector<OpTotal> rows = by_op(totals);
  const double all = seconds_of(rows);
  OpTotal rest{"others", nullptr, false};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i < kRows) {
      text += row_of(rows[i], rows[i].backward ? "backward" : "forward", all, roof);
    } else {
      add(rest, rows[i]);
    }
  }
  if (rest.calls > 0) text += row_of(rest, "", all, roof);
  if (roof.bytes_per_s > 0)
    text += fmt::format(
        "  the roof, measured when the run started: {:.1f} GB/s of memory, {:.0f} GFLOP/s of a matrix "
        "product\n",
        roof.bytes_per_s / 1e9, roof.flops_per_s / 1e9);
  return text;
}

std::string text_by_layer(const std::vector<OpTotal>& totals) {
  struct LayerTotal {
    std::string name;
    std::int64_t calls = 0;
    double forward = 0, backward = 0;
  };
  std::vector<LayerTotal> layers;
  int widest = 5;
  for (const OpTotal& one : totals) {
    const std::string name = one.layer ? one.layer : "(outside of layers)";
    auto found = std::find_if(layers.begin(), layers.end(),
                              [&](const LayerTotal& layer) { return layer.name == name; });
    if (found == layers.end()) {
      widest = std::max(widest, terminal::width_of(name));
      found = layers.insert(found, {name});
    }
    (one.backward ? found->backward : found->forward) += one.seconds;
    if (!one.backward) found->calls = std::max(found->calls, one.calls);
  }
  std::string text = fmt::format("  {:<{}} {:>8} {:>11} {:>11} {:>6}\n", "layer", widest, "calls",
                                 "forward ms", "backward ms", "%");
  for (const LayerTotal& layer : layers)
    text += fmt::format("  {:<{}} {:>8} {:>11.1f} {:>11.1f} {:>6.1f}\n", layer.name, widest,
                        with_commas(layer.calls), 1e3 * layer.forward, 1e3 * layer.backward,
                        100 * (layer.forward + layer.backward) / seconds_of(totals));
  return text;
}

}  // namespace athanor
