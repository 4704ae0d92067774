#include "trainer/plan/gpus.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "tensor/base/error.h"
#include "tensor/base/nearest.h"
#include "tensor/base/printable.h"

namespace athanor {
namespace {

constexpr double T = 1e12, G = 1e9;

// Source: NVIDIA's data sheets of each, read in November 2026.
constexpr std::array kGpus{
    Gpu{"a10", "A10, 24 GB", 72, 600 * G, 125 * T, 62.5 * T, 31.2 * T, 0.49 * T, true},
    Gpu{"a100", "A100 SXM, 80 GB", 108, 2039 * G, 312 * T, 156 * T, 19.5 * T, 19.5 * T, true},
    Gpu{"a100-40gb", "A100 SXM, 40 GB", 108, 1555 * G, 312 * T, 156 * T, 19.5 * T, 19.5 * T, true},
    Gpu{"b200", "B200 SXM, 180 GB", 148, 8000 * G, 2250 * T, 1125 * T, 75 * T, 37 * T, true},
    Gpu{"h100", "H100 SXM, 80 GB", 132, 3350 * G, 989.4 * T, 494.7 * T, 66.9 * T, 66.9 * T, true},
    Gpu{"h100-pcie", "H100 PCIe, 80 GB", 114, 2000 * G, 756 * T, 378 * T, 51 * T, 51 * T, true},
    Gpu{"h200", "H200 SXM, 141 GB", 132, 4800 * G, 989.4 * T, 494.7 * T, 66.9 * T, 66.9 * T, true},
    Gpu{"l4", "L4, 24 GB", 58, 300 * G, 121 * T, 60 * T, 30.3 * T, 0.49 * T, true},
    Gpu{"l40s", "L40S, 48 GB", 142, 864 * G, 362 * T, 183 * T, 91.6 * T, 1.4 * T, true},
    Gpu{"rtx4090", "GeForce RTX 4090, 24 GB", 128, 1008 * G, 165.2 * T, 82.6 * T, 82.6 * T, 1.3 * T, true},
    Gpu{"t4", "T4, 16 GB", 40, 320 * G, 65 * T, 0, 8.1 * T, 0.25 * T, false},
};

}  // namespace

double Gpu::flops_per_s(DType dtype, bool tf32) const {
  switch (dtype) {
    case DType::f64: return f64_flops_per_s;
    case DType::f16:
    case DType::bf16: return half_flops_per_s;
    default: return tf32 && tf32_flops_per_s > 0 ? tf32_flops_per_s : f32_flops_per_s;
  }
}

const Gpu& gpu_named(std::string_view name) {
  const auto found =
      std::find_if(kGpus.begin(), kGpus.end(), [&](const Gpu& gpu) { return gpu.name == name; });
  if (found != kGpus.end()) return *found;
  std::vector<std::string> names;
  for (const Gpu& gpu : kGpus) names.emplace_back(gpu.name);
  detail::fail<>("--gpu: must be one of {}, but got '{}'{}", fmt::join(names, ", "),
                 printable(std::string(name)), did_you_mean(std::string(name), names));
}

}  // namespace athanor
