#pragma once

#include <string>
#include <vector>

namespace athanor::cuda {

/// What a vendor proposes for a signature, its best guess first.
template <class Plan> struct Found {
  std::vector<Plan> plans;
  bool certain = true;   ///< false: one was left out for a reason that may be gone the next time
  std::string why = {};  ///< the first such reason
};

}  // namespace athanor::cuda
