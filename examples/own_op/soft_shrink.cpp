#include "soft_shrink.h"

#include "formulas.h"
#include "soft_shrink_cuda.h"

using namespace athanor;

namespace {

// The kernels: one pair per kind of device. Tensors are dense, of one shape and dtype.

void forward(CpuContext&, const Tensor& x, double lambda, const Tensor& y) {
  dispatch_floating(x.dtype(), "soft_shrink", [&]<class T>() {
    using A = Accumulate<T>;  // half types are only for storage; computed in f32
    const T* from = x.data<T>();
    T* to = y.data<T>();
    for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = T(shrunk(A(from[i]), A(lambda)));
  });
}

void backward(CpuContext&, const Tensor& x, const Tensor& dy, double lambda, const Tensor& dx) {
  dispatch_floating(x.dtype(), "soft_shrink", [&]<class T>() {
    using A = Accumulate<T>;
    const T *at = x.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = T(A(from[i]) * shrunk_slope(A(at[i]), A(lambda)));
  });
}

// What `athanor plan` counts for them: a launch that reads and writes these tensors once.

void forward(AccountContext& context, const Tensor& x, double, const Tensor& y) {
  context.map("soft_shrink", {x}, {y});
}

void backward(AccountContext& context, const Tensor& x, const Tensor& dy, double, const Tensor& dx) {
  context.map("soft_shrink_backward", {x, dy}, {dx});
}

#if defined(ATHANOR_WITH_CUDA)
void forward(CudaContext& context, const Tensor& x, double lambda, const Tensor& y) {
  const auto stream = static_cast<cudaStream_t>(context.native_stream());
  const cudaError_t error =
      soft_shrink_forward(x.numel(), static_cast<float>(lambda), x.data<float>(), y.data<float>(), stream);
  if (error != cudaSuccess) throw BackendError(std::string("soft_shrink: ") + cudaGetErrorString(error));
}

void backward(CudaContext& context, const Tensor& x, const Tensor& dy, double lambda, const Tensor& dx) {
  const auto stream = static_cast<cudaStream_t>(context.native_stream());
  const cudaError_t error = soft_shrink_backward(x.numel(), static_cast<float>(lambda), x.data<float>(),
                                                 dy.data<float>(), dx.data<float>(), stream);
  if (error != cudaSuccess) throw BackendError(std::string("soft_shrink: ") + cudaGetErrorString(error));
}
#endif

}  // namespace

Tensor soft_shrink(const Tensor& x, double lambda) {
  ATH_CHECK(x.defined() && is_floating(x.dtype()) && (x.device().is_cpu() || x.dtype() == DType::f32) &&
                lambda >= 0,
            "soft_shrink: x must be floating (f32 on a GPU) and lambda at least 0, but got {} and {}",
            x.defined() ? name_of(x.dtype()) : "no tensor", lambda);
  const Tensor in = contiguous(x.detach()), y = Tensor::empty(x.shape(), x.options());
  on_device(x.device(), [&](auto& context) { forward(context, in, lambda, y); });
  return record("soft_shrink", y, {x}, [in = Saved(in), lambda](const Tensor& seed, Grads& grads) {
    const Tensor dy = contiguous(seed), dx = Tensor::empty(dy.shape(), dy.options());
    on_device(dy.device(), [&](auto& context) { backward(context, in, dy, lambda, dx); });
    grads[0] = dx;
  });
}
