#include "kernels/cuda/conv_error.h"

#include <cmath>

#include "kernels/copy.h"
#include "tests/cuda/device.h"

namespace athanor::conv_error_test {

class ConvError : public test::DeviceTest {
 protected:
  static constexpr std::int64_t kImages = 3, kSide = 6, kChannels = 24;

  CudaContext& context() { return cuda_context(test::device()); }
  double error_of(const Tensor& y) { return cuda::error_beside_ours(context(), params, x(), w(), {}, y); }
  Tensor x() const { return x_.to(test::device()); }
  Tensor w() const { return w_.to(test::device()); }
  /// Over the channels [begin, end) alone.
  Tensor convolved(std::int64_t begin, std::int64_t end) {
    const Tensor part = Tensor::zeros(x_.shape(), {DType::f16});
    for (std::int64_t i = 0; i < x_.numel(); ++i) {
      const std::int64_t c = i % kChannels;
      if (c >= begin && c < end) part.data<Half>()[i] = x_.data<Half>()[i];
    }
    const Tensor y =
        Tensor::empty(conv2d_shape(x_.shape(), w_.shape(), params), {DType::f16, test::device()});
    kernels::conv2d_forward(context(), params, part.to(test::device()), w(), {}, y);
    return y;
  }

  Conv2dParams params{.padding = {1, 1}, .impl = ConvImpl::reference};

 private:
  Tensor x_ = test::filled({{kImages, kSide, kSide, kChannels}}, DType::f16, {1}, -1, 1);
  Tensor w_ = test::filled({{8, 3, 3, kChannels}}, DType::f16, {2}, -1, 1);
};

TEST_F(ConvError, OfOurOwnKernelIsOne) {
  EXPECT_NEAR(error_of(convolved(0, kChannels)), 1, 0.05);
}

// What cuDNN calls a reduction in reduced precision.
TEST_F(ConvError, GrowsWhereSumsAreRoundedInBetween) {
  const auto in_parts = [&](std::int64_t channels) {
    const Tensor sum = convolved(0, channels);
    for (std::int64_t c = channels; c < kChannels; c += channels)
      kernels::add_into(context(), convolved(c, c + channels), sum);
    return error_of(sum);
  };
  const double halves = in_parts(kChannels / 2), many = in_parts(1);
  EXPECT_GT(halves, 1.1);
  EXPECT_GT(many, 1.5 * halves);
  EXPECT_LT(many, 50);
}

TEST_F(ConvError, OfAWrongImageIsLargeAndOfNanIsNoBound) {
  const Tensor y = convolved(0, kChannels).to(kCpu);
  const std::int64_t image = y.numel() / kImages;
  for (const std::int64_t at : {std::int64_t{0}, y.numel() - image}) {  // the first, and the last
    const Tensor wrong = Tensor::zeros(y.shape(), {DType::f16});
    wrong.copy_bytes_from(y);
    wrong.data<Half>()[at + 5] = Half(0.5f + static_cast<float>(y.data<Half>()[at + 5]));
    EXPECT_GT(error_of(wrong.to(test::device())), 5);
    wrong.data<Half>()[at + 5] = Half(NAN);
    EXPECT_FALSE(error_of(wrong.to(test::device())) <= 1e30);
  }
}

}  // namespace athanor::conv_error_test
