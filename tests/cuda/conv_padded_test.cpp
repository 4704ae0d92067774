// A convolution of few channels as one of 4 or 8, the others zero.
#include "kernels/cuda/conv_padded.h"

#include "kernels/cuda/vendor.h"
#include "tests/cuda/ops.h"

namespace athanor::conv_padded_test {

using PaddedConvOnDevice = test::DeviceTest;
using cuda::ConvCall;
using cuda::ConvPass;

/// The call padded.
void run_padded(const ConvCall& call, std::int64_t channels) {
  CudaContext& context = cuda_context(test::device());
  cuda::convolve_padded(context, channels, call, [&](const ConvCall& padded) {
    EXPECT_EQ(padded.z.c, channels);
    cuda::run_conv(context, padded);
  });
}

void check(ConvImpl impl) {
  CudaContext& context = cuda_context(test::device());
  const Conv2dParams params{.stride = {2, 2}, .padding = {3, 3}, .impl = ConvImpl::reference};
  Conv2dParams padded = params;
  padded.impl = impl;
  const auto exact = [](const Shape& shape, DType of, std::uint64_t seed) {
    return test::exact({shape}, of, {seed}).to(test::device());
  };
  const Tensor none;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const std::int64_t c : {1, 3}) {
      const Tensor x = exact({2, 17, 18, c}, dtype, 1), w = exact({16, 7, 7, c}, dtype, 2),
                   bias = exact({16}, dtype, 3);
      const Shape shape = conv2d_shape(x.shape(), w.shape(), params);
      const Tensor dy = exact(shape, dtype, 4), y = Tensor::empty(shape, x.options()), dw = empty_like(w);
      cuda::run_conv(context, {ConvPass::forward, params, x, w, bias, y});
      cuda::run_conv(context, {ConvPass::backward_weights, params, x, dw, none, dy});
      for (const std::int64_t channels : {4, 8}) {
        SCOPED_TRACE(fmt::format("{} {} channels as {}", dtype, c, channels));
        const Tensor padded_y = Tensor::empty(shape, x.options());
        run_padded({ConvPass::forward, padded, x, w, bias, padded_y}, channels);
        EXPECT_TRUE(test::same_bits(padded_y.to(kCpu), y.to(kCpu)));
        for (const DType to : {dtype, DType::f32}) {
          for (const Write write : {Write::overwrite, Write::accumulate}) {
            const Tensor found = exact(w.shape(), to, 5), wanted = exact(w.shape(), to, 5);
            run_padded({ConvPass::backward_weights, padded, x, found, none, dy, write}, channels);
            write == Write::overwrite ? kernels::copy(context, dw, wanted)
                                      : kernels::add_into(context, dw, wanted);
            EXPECT_TRUE(test::same_bits(found.to(kCpu), wanted.to(kCpu))) << name_of(to);
          }
        }
      }
    }
  }
}

TEST_F(PaddedConvOnDevice, HasTheBitsOfTheOneItStandsFor) {
  check(ConvImpl::reference);
  if (cuda::has_vendor()) check(ConvImpl::vendor);
}

TEST_F(PaddedConvOnDevice, PadsToWholeAccessesAlone) {
  const Tensor x = Tensor::empty({2, 3}, {DType::f16, test::device()});
  const auto pad = [&](const Tensor& from, std::int64_t channels) {
    cuda::pad_channels(cuda_context(test::device()), from, Tensor::empty({2, channels}, from.options()));
  };
  EXPECT_NO_THROW(pad(x, 4));
  EXPECT_THROW(pad(x, 3), ArgumentError);
  EXPECT_THROW(pad(x, 6), ArgumentError);
  EXPECT_THROW(pad(Tensor::empty({2, 3}, {DType::f32, test::device()}), 4), ArgumentError);
}

}  // namespace athanor::conv_padded_test
