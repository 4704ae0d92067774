#include "bench/scale/model.h"

#include "dist/collectives/slice.h"
#include "optim/flat.h"

namespace athanor::scale {

std::vector<ParameterCost> resnet50() {
  std::vector<ParameterCost> model;
  double pixels = 112 * 112;  // of what the layer writes
  const auto conv = [&](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    const std::int64_t elements = in * out * kernel * kernel;
    model.push_back({elements, static_cast<double>(elements) * pixels});
    model.push_back({out, 0});  // batch norm
    model.push_back({out, 0});
  };
  conv(3, 64, 7);
  std::int64_t in = 64;
  pixels = 56 * 56;
  for (const int blocks : {3, 4, 6, 3}) {
    const bool first_stage = in == 64;
    const std::int64_t width = first_stage ? 64 : in / 2;
    for (int block = 0; block < blocks; ++block) {
      conv(in, width, 1);  // in the first block of a stage before the stride: four times the pixels
      if (block == 0 && !first_stage) {
        model[model.size() - 3].forward_macs *= 4;
      }
      conv(width, width, 3);
      conv(width, 4 * width, 1);
      if (block == 0) conv(in, 4 * width, 1);
      in = 4 * width;
    }
    pixels /= 4;
  }
  model.push_back({in * 1000, static_cast<double>(in) * 1000});
  model.push_back({1000, 0});
  return model;
}

std::vector<CostBucket> cut_buckets(std::span<const ParameterCost> model, int element_bytes, int world_size,
                                    std::int64_t bucket_bytes, std::int64_t first_bucket_bytes) {
  const auto align = static_cast<std::int64_t>(kSliceAlignment) / element_bytes;
  std::vector<CostBucket> buckets;
  std::int64_t held = 0, cap = first_bucket_bytes;
  int last = static_cast<int>(model.size());
  const auto close = [&](int first) {
    std::int64_t elements = 0;
    for (int i = first; i < last; ++i)
      elements += align_elements(model[static_cast<std::size_t>(i)].elements, align);
    buckets.push_back({first, last, align_elements(elements, align * world_size)});
    last = first;
    held = 0;
    cap = bucket_bytes;
  };
  for (int i = last; i-- > 0;) {
    const std::int64_t bytes = model[static_cast<std::size_t>(i)].elements * element_bytes;
    if (held > 0 && held + bytes > cap) close(i + 1);
    held += bytes;
  }
  close(0);
  return buckets;
}

}  // namespace athanor::scale
