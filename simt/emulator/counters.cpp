#include "simt/emulator/counters.h"

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

AccessCount& AccessCount::operator+=(const AccessCount& other) {
  warps += other.warps;
  lanes += other.lanes;
  bytes += other.bytes;
  sectors += other.sectors;
  fewest_sectors += other.fewest_sectors;
  rounds += other.rounds;
  fewest_rounds += other.fewest_rounds;
  return *this;
}

BranchCount& BranchCount::operator+=(const BranchCount& other) {
  warps += other.warps;
  lanes += other.lanes;
  diverged += other.diverged;
  return *this;
}

AccessCount KernelCounts::total(AccessKind kind) const {
  AccessCount sum{.place = "all lines", .kind = kind};
  for (const AccessCount& each : accesses) {
    if (each.kind == kind) sum += each;
  }
  return sum;
}

BranchCount KernelCounts::total_branches() const {
  BranchCount sum{.place = "all lines"};
  for (const BranchCount& each : branches) sum += each;
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
