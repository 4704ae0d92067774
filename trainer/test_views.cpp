#include "trainer/test_views.h"

#include <vector>

#include "autograd/elementwise.h"
#include "autograd/shape.h"
#include "kernels/augment.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

/// The pixels of a side that is shifted, and mirrored: [side] i64.
Tensor pixels(std::int64_t side, std::int64_t shift, bool backward) {
  std::vector<std::int64_t> from;
  for (std::int64_t i = 0; i < side; ++i) {
    const std::int64_t at = kernels::padded_index(i + shift, side, Padding::reflect);
    from.push_back(backward ? side - 1 - at : at);
  }
  return Tensor::from(from, {side});
}

}  // namespace

TestTimeAugmentation::TestTimeAugmentation(TestViews views, std::int64_t height, std::int64_t width,
                                           Device device)
    : views_(views) {
  ATH_CHECK(views != TestViews::six || (height >= 2 && width >= 2),
            "--tta six: images must have sides of at least 2 pixels, but are {}x{}", height, width);
  if (views == TestViews::none) return;
  for (const int shift : {-1, 0, 1}) {
    if (shift != 0 && views != TestViews::six) continue;
    const auto at = static_cast<std::size_t>(shift + 1);
    rows_[at] = pixels(height, shift, false).to(device);
    for (const bool mirrored : {false, true})
      columns_[at][mirrored] = pixels(width, shift, mirrored).to(device);
  }
}

/// The mean over an image and its mirror image, both shifted.
Tensor TestTimeAugmentation::both_ways(nn::Module& network, const Tensor& x, int shift) const {
  const auto at = static_cast<std::size_t>(shift + 1);
  const Tensor rows = shift == 0 ? x : index_select(x, 1, rows_[at]);
  const Tensor straight = shift == 0 ? x : index_select(rows, 2, columns_[at][false]);
  const auto logits = [&network](const Tensor& images) {
    const Tensor results = network(images);
    return is_half(results.dtype()) ? cast(results, DType::f32) : results;
  };
  return affine(logits(straight) + logits(index_select(rows, 2, columns_[at][true])), 0.5);
}

Tensor TestTimeAugmentation::operator()(nn::Module& network, const Tensor& x) const {
  switch (views_) {
    case TestViews::none: break;
    case TestViews::flip: return both_ways(network, x, 0);
    case TestViews::six:
      return affine(both_ways(network, x, 0), 0.5) +
             affine(both_ways(network, x, -1) + both_ways(network, x, 1), 0.25);
  }
  return network(x);
}

}  // namespace athanor
