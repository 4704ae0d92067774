#include <bit>

#include "kernels/cuda/context.h"
#include "kernels/cuda/total.h"
#include "kernels/hash.h"

namespace athanor::kernels {
namespace {

struct HashElement {
  const float* values;
  std::uint64_t first;
  __device__ __forceinline__ std::uint64_t operator()(std::int64_t i) const {
    return hash_element(first + static_cast<std::uint64_t>(i), std::bit_cast<std::uint32_t>(values[i]));
  }
};

}  // namespace

std::uint64_t hash_elements(CudaContext& context, const Tensor& x, std::uint64_t first_index) {
  return cuda::exact_total<std::uint64_t>(context, "hash_elements", x.numel(),
                                          HashElement{x.data<float>(), first_index});
}

}  // namespace athanor::kernels
