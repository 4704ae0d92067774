#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "kernels/cuda/plan_ways.h"
#include "kernels/vendor_stats.h"

namespace athanor::cuda {

/// What a Vendor has done so far, and its lines for the user.
class VendorLog {
 public:
  VendorStats stats;

  VendorNotes::Note exchange(VendorNotes::Note note);
  /// To the listener, or kept for the next one.
  void say(std::string line);
  /// What has become of a signature: a plan was refused, or our own kernel runs for want of one, or both.
  /// Each counts once per signature, and what counts gets a line, "signature: why".
  struct Event {
    bool refused = false, fell_back = false;
  };
  void add(const std::string& signature, const Event& event, const std::string& why);
  /// Says that plans are made in another way from now on, since all of a signature's were refused.
  void another_way(PlanWay from, PlanWay to, const std::string& signature, const std::string& why);
  /// Counts a signature whose plan was made in that way.
  void made(PlanWay way);
  /// Says once that tuning goes on, when it has taken over a second in all, `seconds` of them not in stats
  /// yet. `folder`: where its results are kept; empty: nowhere.
  void tuning(double seconds, const std::string& folder);

  static constexpr double kWorthALine_s = 1;

 private:
  VendorNotes::Note note_;
  std::vector<std::string> waiting_;
  std::unordered_set<std::string> refused_, fell_back_;  // signatures
  bool told_of_tuning_ = false;
};

}  // namespace athanor::cuda
