#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "nn/module.h"
#include "tensor/tensor.h"

namespace athanor {

/// --tta: test-time augmentation, the views of an image whose logits are averaged in evaluation.
enum class TestViews : std::uint8_t {
  none,  ///< the image itself
  flip,  ///< and its mirror image
  /// The image and its mirror image, and both shifted by a pixel up left and down right. The unshifted two
  /// have half of the weight.
  six,
};

/// All of them.
inline constexpr std::array kAllTestViews{TestViews::none, TestViews::flip, TestViews::six};

/// "none", "flip" or "six".
constexpr std::string_view name_of(TestViews views) {
  switch (views) {
    case TestViews::none: return "none";
    case TestViews::flip: return "flip";
    case TestViews::six: return "six";
  }
  return "?";
}

/// A network's mean logits over the views of images of one size. Pixels from outside are reflections at the
/// edge. Nothing waits for the device, and no view is random.
///
///     const TestTimeAugmentation views(TestViews::six, 32, 32, kCpu);
///     const Tensor logits = views(net, images);
///
/// Source of the six: Jordan 2024, arXiv:2404.00498, section 3.5, which shifts before it mirrors.
class TestTimeAugmentation {
 public:
  TestTimeAugmentation() = default;  ///< the image itself
  /// Throws ArgumentError for six views of images with a side below 2 pixels.
  TestTimeAugmentation(TestViews views, std::int64_t height, std::int64_t width, Device device);

  /// x [N, height, width, C], floating, on the device; returns what `network` returns for it, such as [N,
  /// classes]. Calls the network once per view. The mean of results in a half type is f32.
  Tensor operator()(nn::Module& network, const Tensor& x) const;

 private:
  Tensor both_ways(nn::Module& network, const Tensor& x, int shift) const;

  TestViews views_ = TestViews::none;
  // Where the pixels of a view are from, [height] or [width] i64: by shift + 1, and mirrored or not.
  std::array<Tensor, 3> rows_;
  std::array<std::array<Tensor, 2>, 3> columns_;
};

}  // namespace athanor
