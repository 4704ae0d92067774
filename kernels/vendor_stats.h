#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tensor/device.h"

// What cuDNN and cuBLASLt do for this thread, for those who report it: in every build.

namespace athanor {

/// Counts of one thread on one device.
struct VendorStats {
  std::int64_t calls = 0;  ///< convolutions and products by a plan of theirs
  /// Signatures planned, by heuristics or measurement; 0 per step after warm-up.
  std::int64_t plans_made = 0;
  std::int64_t tuned = 0;  ///< of these, measured
  /// Of these, by graphs that cuDNN ran only when they were made from a handle, or went through text, and not
  /// from the device's properties (kernels/cuda/plan_ways.h).
  std::int64_t by_handle = 0, by_text = 0;
  std::int64_t plans_loaded = 0;   ///< signatures read from the plan directory
  std::int64_t disk_misses = 0;    ///< signatures the directory did not have,
  std::int64_t disk_rejected = 0;  ///< or only in a damaged file, or one whose plan does not run,
  std::int64_t disk_outdated = 0;  ///< or made by another driver, library, or version of our kernels
  /// Signatures with a plan that the library or the device refused to run, or that could not be planned. Not
  /// 0: something is wrong with this machine's driver and libraries, or with our use of them.
  std::int64_t refused = 0;
  /// Signatures that our own kernels compute, which are slower, because no plan could be tried.
  std::int64_t fallbacks = 0;
  double tuning_s = 0;  ///< spent on finding and measuring plans, once per machine

  /// Whether anything was asked of them.
  bool any() const { return calls > 0 || plans_made > 0 || plans_loaded > 0; }
};

/// Those of a device's context of this thread, which keeps them up to date while the thread lives; zeros on
/// the CPU.
const VendorStats& vendor_stats(Device device);

/// What was done between two readings.
VendorStats operator-(const VendorStats& now, const VendorStats& before);

/// "measured 158 convolutions and products in 7.3 s, which no other time counts"; empty where none was.
std::string describe_tuning(const VendorStats& stats);
/// "cuDNN and cuBLASLt: 9632 calls, 158 plans made and 3 read from files; 158 of them measured in 7.3 s;
/// shapes with refused plans: 1"; empty where nothing was asked of them.
std::string describe(const VendorStats& stats);

/// While alive, lines for the user go to `on_note`, on this thread and in the middle of an op: that plans are
/// being measured, where this takes over a second; that a plan was refused, once per signature. Without one,
/// they wait for the next. On the CPU there are none.
class VendorNotes {
 public:
  using Note = std::function<void(const std::string&)>;

  VendorNotes(Device device, Note on_note);
  ~VendorNotes();
  VendorNotes(const VendorNotes&) = delete;
  VendorNotes& operator=(const VendorNotes&) = delete;

 private:
  Device device_;
  Note saved_;
};

}  // namespace athanor
