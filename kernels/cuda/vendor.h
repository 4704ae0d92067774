#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/context.h"
#include "kernels/cuda/vendor_log.h"
#include "kernels/vendor_stats.h"
#include "tensor/device.h"

// cuDNN and cuBLASLt as the kernels of this folder see them: an implementation in the lists of conv_list.h
// and matmul_list.h, which declines where our own kernels are faster. No header of the vendor's is included
// from here, so that a build without them (vendor_absent.cpp) compiles the same kernels.

namespace athanor::cuda {

struct Planner;  // kernels/cuda/plan_choice.h

/// $XDG_CACHE_HOME/athanor/plans, or ~/.cache/athanor/plans; empty where neither variable is set.
std::filesystem::path default_plan_directory();

/// A candidate that was measured for a signature.
struct MeasuredPlan {
  std::string signature;  ///< as it is kept under on disk
  int candidate = 0;      ///< in the vendor's order; -1: our own kernel, or for " sums" two passes
  /// Median; infinite where it did not run, or the first run took three times the best so far.
  double ms = 0;
};

struct VendorOptions {
  /// Measures candidates the first time a shape is met. Without, and always where the context is
  /// `deterministic` (a measurement may go the other way next time) or a stream is being captured, the
  /// vendor's own guess runs.
  bool autotune = true;
  /// Of the vendor's guesses, measured: 1 or more. cuDNN's are spread over its engines, and for a convolution
  /// that is a plain product a quarter as many of cuBLASLt's join them; where images of three channels may be
  /// padded, half as many for each number of channels.
  int candidates = 16;
  /// Where plans are kept between runs; empty: nowhere.
  std::filesystem::path plan_directory = default_plan_directory();
  /// Called for each candidate when it has been measured; empty: not reported.
  std::function<void(const MeasuredPlan&)> on_measured = {};
};

/// Throws ArgumentError where an option is out of its range.
void check(const VendorOptions& options);

/// Handles and plans of cuBLASLt and cuDNN on one device. One per context, so one per thread.
class Vendor {
 public:
  explicit Vendor(Device device);
  ~Vendor();
  Vendor(const Vendor&) = delete;
  Vendor& operator=(const Vendor&) = delete;

  const VendorOptions& options() const { return options_; }
  /// Takes effect for signatures that are met for the first time from now on.
  void set_options(VendorOptions options);
  const VendorStats& stats() const { return log_.stats; }
  /// Where lines for the user go from now on (VendorNotes); returns where they went.
  VendorNotes::Note exchange_listener(VendorNotes::Note note) { return log_.exchange(std::move(note)); }
  /// Forgets all plans; files stay.
  void clear();

  // For the vendor_*.cpp alone.
  struct Impl;
  Impl& impl();
  VendorLog& log() { return log_; }
  Planner planner(CudaContext& context);
  Device device() const { return device_; }

 private:
  Device device_;
  VendorOptions options_;
  VendorLog log_;
  std::unique_ptr<Impl> impl_;  // made when first needed: the libraries take their time to load
};

/// Whether this build has cuDNN and cuBLASLt.
bool has_vendor();

}  // namespace athanor::cuda
