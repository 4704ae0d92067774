#include <bit>

#include "kernels/cuda/read_back.h"
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

template <> std::uint64_t hash_elements(CudaContext& context, const Tensor& x, std::uint64_t first_index) {
  const Scratch sum = context.scratch(sizeof(std::uint64_t));
  cuda::exact_total(context, "hash_elements", x.numel(), HashElement{x.data<float>(), first_index},
                    sum.as<std::uint64_t>());
  return cuda::read_back(context, sum.as<std::uint64_t>());
}

}  // namespace athanor::kernels
