#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Which implementation a convolution on the CPU uses where its ConvImpl is automatic: that of a fixed rule
// or, once measured, the fastest on this machine. Choices hold for the whole process.

namespace athanor {

/// All measured choices as text, a line each, in a fixed order; empty if there are none.
std::string conv_choices();
/// Replaces all choices with those of a text that conv_choices() returned. A choice that this machine cannot
/// run is ignored when its convolution runs. Throws ArgumentError if !are_conv_choices(text).
void set_conv_choices(std::string_view text);
bool are_conv_choices(std::string_view text);

/// One pass of one convolution, as a line of conv_choices() without the choice, and each implementation's
/// shortest time by name; the first is that of the rule, "automatic".
struct ConvTimes {
  std::string conv;
  std::vector<std::pair<std::string_view, double>> seconds;
};

/// In its scope, a convolution of this thread for whose shape, pass, dtypes and threads nothing is chosen yet
/// runs every implementation several times into memory of its own. An implementation that is at least 5 %
/// faster than the rule's is chosen, else the rule's. The bits of results may change by a choice, as sums run
/// in another order.
class MeasureConvs {
 public:
  /// `on_times`, if any, is called with each measurement.
  explicit MeasureConvs(std::function<void(const ConvTimes&)> on_times = {});
  ~MeasureConvs();
  MeasureConvs(const MeasureConvs&) = delete;
  MeasureConvs& operator=(const MeasureConvs&) = delete;

  const std::function<void(const ConvTimes&)>& on_times() const { return on_times_; }

 private:
  std::function<void(const ConvTimes&)> on_times_;
  MeasureConvs* before_;
};

}  // namespace athanor
