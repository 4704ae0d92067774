#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "nn/models/model.h"

namespace athanor::test {

/// The library's models without those that are deeper or wider than another one of the same blocks: for tests
/// that take seconds for each.
inline std::vector<std::string> model_kinds() {
  constexpr std::array kLarger{"resnet101",        "resnet152",        "wide_resnet50_2",
                               "mobilenet_v2_050", "mobilenet_v2_140", "mobilenet_v3_large_075",
                               "efficientnet_b1",  "efficientnet_b2",  "efficientnet_b3",
                               "efficientnet_b4",  "regnet_y_1_6gf",   "convnext_small",
                               "convnext_base",    "vit_s_16"};
  std::vector<std::string> kinds = nn::model_names();
  std::erase_if(kinds, [&](const std::string& name) {
    return std::find(kLarger.begin(), kLarger.end(), name) != kLarger.end();
  });
  return kinds;
}

}  // namespace athanor::test
