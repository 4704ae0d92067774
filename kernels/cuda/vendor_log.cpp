#include "kernels/cuda/vendor_log.h"

#include <utility>

#include <fmt/format.h>

namespace athanor::cuda {

VendorNotes::Note VendorLog::exchange(VendorNotes::Note note) {
  VendorNotes::Note before = std::exchange(note_, std::move(note));
  if (note_) {
    for (const std::string& line : std::exchange(waiting_, {})) note_(line);
  }
  return before;
}

void VendorLog::say(std::string line) {
  if (note_) return note_(line);
  waiting_.push_back(std::move(line));
}

void VendorLog::add(const std::string& signature, const Event& event, const std::string& why) {
  const bool refused = event.refused && refused_.insert(signature).second;
  const bool fell_back = event.fell_back && fell_back_.insert(signature).second;
  stats.refused += refused;
  stats.fallbacks += fell_back;
  if (refused || fell_back) say(fmt::format("{}: {}", signature, why));
}

void VendorLog::another_way(PlanWay from, PlanWay to, const std::string& signature, const std::string& why) {
  say(fmt::format(
      "cuDNN's plans are made from {} from now on: all that were made from {} were refused for {}: {}",
      name_of(to), name_of(from), signature, why));
}

void VendorLog::made(PlanWay way) {
  stats.by_handle += way == PlanWay::handle;
  stats.by_text += way == PlanWay::text;
}

void VendorLog::tuning(double seconds, const std::string& folder) {
  if (told_of_tuning_ || stats.tuning_s + seconds < kWorthALine_s) return;
  told_of_tuning_ = true;
  say(
      fmt::format("tuning convolutions and products: the candidates for each shape are measured once, and no "
                  "time of the run counts it; the fastest are {}",
                  folder.empty() ? "forgotten when the run ends" : "kept in " + folder));
}

}  // namespace athanor::cuda
