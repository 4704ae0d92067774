#include "dist/collectives/ring_advice.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/ranges.h>

namespace athanor::dist {
namespace {

constexpr std::size_t kMaxTried = 8;  // 5,040 orders

/// The slowest link of a ring, and the place in `order` where it begins.
std::pair<int, std::size_t> slowest(const GpuLinks& links, const std::vector<int>& order) {
  std::pair<int, std::size_t> worst{GpuLinks::kUnknown, 0};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<std::size_t>(order[i]);
    const auto to = static_cast<std::size_t>(order[(i + 1) % order.size()]);
    if (links.link[from][to] > worst.first) worst = {links.link[from][to], i};
  }
  return worst;
}

bool sees_all(const GpuLinks& links) {
  return std::none_of(links.device.begin(), links.device.end(), [](int device) { return device < 0; });
}

}  // namespace

std::string advise_on_ring(const GpuLinks& links) {
  const std::size_t ranks = links.host.size();
  if (ranks < 3) return "";
  const std::size_t hosts = std::set<int>(links.host.begin(), links.host.end()).size();
  if (hosts > 1)
    return fmt::format(
        "--algorithm ring: {} hosts exchange all bytes over one GPU's link each; --algorithm "
        "native uses all of their links",
        hosts);
  if (!sees_all(links) || ranks > kMaxTried) return "";
  std::vector<int> order(ranks);
  std::iota(order.begin(), order.end(), 0);
  const auto [now, at] = slowest(links, order);
  std::vector<int> best = order;
  int best_link = now;
  while (std::next_permutation(order.begin() + 1, order.end())) {
    const int link = slowest(links, order).first;
    if (link < best_link) best_link = link, best = order;
  }
  if (best_link == now) return "";
  std::vector<int> devices;
  for (const int rank : best) devices.push_back(links.device[static_cast<std::size_t>(rank)]);
  return fmt::format(
      "--algorithm ring: ranks {} and {} have {}, which holds up the whole ring; use --algorithm native, or "
      "the "
      "GPUs in the order {} (CUDA_VISIBLE_DEVICES)",
      at, (at + 1) % ranks, now == GpuLinks::kNoPeer ? "no peer access" : "a slower link than others",
      fmt::join(devices, ","));
}

}  // namespace athanor::dist
