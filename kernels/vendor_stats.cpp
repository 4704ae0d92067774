#include "kernels/vendor_stats.h"

#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/vendor.h"
#include "kernels/on_device.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

/// f(vendor), or `otherwise` where the device has none.
template <class F, class T> T of_vendor(Device device, T otherwise, F&& f) {
  return on_device(device, [&](auto& context) -> T {
    if constexpr (requires { context.vendor().stats(); }) {
      return f(context.vendor());
    } else {
      return std::move(otherwise);
    }
  });
}

VendorNotes::Note exchange(Device device, VendorNotes::Note note) {
  return of_vendor(device, VendorNotes::Note(),
                   [&](auto& vendor) { return vendor.exchange_listener(std::move(note)); });
}

}  // namespace

const VendorStats& vendor_stats(Device device) {
  static const VendorStats none;
  return *of_vendor(device, &none, [](auto& vendor) { return &vendor.stats(); });
}

VendorStats operator-(const VendorStats& now, const VendorStats& before) {
  return {.calls = now.calls - before.calls,
          .plans_made = now.plans_made - before.plans_made,
          .tuned = now.tuned - before.tuned,
          .by_handle = now.by_handle - before.by_handle,
          .by_text = now.by_text - before.by_text,
          .plans_loaded = now.plans_loaded - before.plans_loaded,
          .disk_misses = now.disk_misses - before.disk_misses,
          .disk_rejected = now.disk_rejected - before.disk_rejected,
          .disk_outdated = now.disk_outdated - before.disk_outdated,
          .refused = now.refused - before.refused,
          .fallbacks = now.fallbacks - before.fallbacks,
          .tuning_s = now.tuning_s - before.tuning_s};
}

std::string describe_tuning(const VendorStats& stats) {
  if (stats.tuned == 0) return "";
  return fmt::format("measured {} convolutions and products in {:.1f} s, which no other time counts",
                     stats.tuned, stats.tuning_s);
}

std::string describe(const VendorStats& stats) {
  if (!stats.any()) return "";
  std::string text = fmt::format("cuDNN and cuBLASLt: {} calls, {} plans made and {} read from files",
                                 stats.calls, stats.plans_made, stats.plans_loaded);
  if (stats.tuned > 0) text += fmt::format("; {} of them measured in {:.1f} s", stats.tuned, stats.tuning_s);
  const auto add = [&](std::int64_t count, const char* what) {
    if (count > 0) text += fmt::format("; {}: {}", what, count);
  };
  add(stats.by_handle, "shapes whose plan was made from a handle");
  add(stats.by_text, "shapes whose plan was read back from text");
  add(stats.disk_outdated, "files made by another driver or library");
  add(stats.disk_rejected, "files damaged or not runnable");
  add(stats.refused, "shapes with refused plans");
  add(stats.fallbacks, "shapes left to our own kernels");
  return text;
}

VendorNotes::VendorNotes(Device device, Note on_note)
    : device_(device), saved_(exchange(device, std::move(on_note))) {}

VendorNotes::~VendorNotes() {
  try {
    exchange(device_, std::move(saved_));
  } catch (const Error&) {  // a device that has failed plans nothing
  }
}

}  // namespace athanor
