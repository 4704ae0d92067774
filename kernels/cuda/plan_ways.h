#pragma once

#include <array>
#include <optional>

// How cuDNN's plans are made for a device. A library may finalise what is made in one way and refuse to run
// it, and run what is made in another: which one it is shows when a plan runs.

namespace athanor::cuda {

enum class PlanWay : unsigned char {
  properties,  ///< for the device as it is described, which need not be there
  handle,      ///< for the device itself
  text,        ///< as by properties, then written as text and read back
};

/// In the order in which they are tried.
inline constexpr std::array kPlanWays{PlanWay::properties, PlanWay::handle, PlanWay::text};

/// "the device's properties"
constexpr const char* name_of(PlanWay way) {
  switch (way) {
    case PlanWay::properties: return "the device's properties";
    case PlanWay::handle: return "a handle";
    case PlanWay::text: return "text";
  }
  return "?";
}

/// The first way for which runs(way) is true: `known`, the one that ran before, then the others in their
/// order. Nothing where none is. Each is asked once at most.
template <class Runs> std::optional<PlanWay> way_that_runs(PlanWay known, Runs&& runs) {
  if (runs(known)) return known;
  for (const PlanWay way : kPlanWays) {
    if (way != known && runs(way)) return way;
  }
  return std::nullopt;
}

}  // namespace athanor::cuda
