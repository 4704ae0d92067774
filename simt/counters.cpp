#include "simt/counters.h"

#include <algorithm>

#include <fmt/format.h>

// What counts are, and how they are written. How they are made: warp_counters.cpp.

namespace simt {
namespace {

const char* name_of(AccessKind kind) {
  switch (kind) {
    case AccessKind::global_read: return "global read";
    case AccessKind::global_write: return "global write";
    case AccessKind::global_atomic: return "global atomic";
    case AccessKind::shared_read: return "shared read";
    case AccessKind::shared_write: return "shared write";
    case AccessKind::shared_atomic: return "shared atomic";
  }
  return "?";
}

double per(std::uint64_t amount, std::uint64_t count) {
  return count == 0 ? 0.0 : static_cast<double>(amount) / static_cast<double>(count);
}

std::string row(const AccessCount& count) {
  const bool shared = is_shared(count.kind);
  const std::uint64_t cost = shared ? count.rounds : count.sectors;
  const std::uint64_t fewest = shared ? count.fewest_rounds : count.fewest_sectors;
  return fmt::format("  {:<40} {:<13} {:>9} {:>6.1f} {:>11} {:>10} {:>6.2f} {:>6.2f}  {}\n", count.place,
                     name_of(count.kind), count.warps, per(count.lanes, count.warps), count.bytes, cost,
                     per(cost, count.warps), per(fewest, count.warps), shared ? "rounds" : "sectors");
}

}  // namespace

AccessCount KernelCounts::total(AccessKind kind) const {
  AccessCount sum;
  sum.kind = kind;
  sum.place = "all lines";
  for (const AccessCount& each : accesses) {
    if (each.kind != kind) continue;
    sum.warps += each.warps;
    sum.lanes += each.lanes;
    sum.bytes += each.bytes;
    sum.sectors += each.sectors;
    sum.fewest_sectors += each.fewest_sectors;
    sum.rounds += each.rounds;
    sum.fewest_rounds += each.fewest_rounds;
  }
  return sum;
}

BranchCount KernelCounts::total_branches() const {
  BranchCount sum;
  sum.place = "all lines";
  for (const BranchCount& each : branches) {
    sum.warps += each.warps;
    sum.lanes += each.lanes;
    sum.diverged += each.diverged;
  }
  return sum;
}

const KernelCounts* Counts::find(const std::string& name) const {
  const auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const auto& kernel) { return kernel.name == name; });
  return found == kernels.end() ? nullptr : &*found;
}

std::string table(const Counts& counts) {
  std::string text;
  for (const KernelCounts& kernel : counts.kernels) {
    text += fmt::format("kernel {}: {} launches, {} blocks, {} threads; {} bytes read, {} bytes written\n",
                        kernel.name, kernel.launches, kernel.blocks, kernel.threads, kernel.bytes_read,
                        kernel.bytes_written);
    text += fmt::format("  {:<40} {:<13} {:>9} {:>6} {:>11} {:>10} {:>6} {:>6}\n", "line", "access", "warps",
                        "lanes", "bytes", "cost", "each", "fewest");
    for (const AccessCount& count : kernel.accesses) text += row(count);
    for (const BranchCount& branch : kernel.branches) {
      if (branch.diverged == 0) continue;
      text += fmt::format("  {:<40} lanes diverge here in {} of {} warp executions\n", branch.place,
                          branch.diverged, branch.warps);
    }
    const BranchCount all = kernel.total_branches();
    text += fmt::format("  divergent branches: {}; lanes per basic block: {:.1f} of 32\n", all.diverged,
                        per(all.lanes, all.warps));
  }
  return text;
}

#if !defined(SIMT_RACE)
bool can_count() {
  return false;
}
void start_counting() {}
Counts stop_counting() {
  return {};
}
#endif

}  // namespace simt
