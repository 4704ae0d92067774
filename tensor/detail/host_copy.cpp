#include "tensor/detail/host_copy.h"

#include <algorithm>
#include <cstring>

#include "tensor/detail/device_memory.h"

namespace athanor::detail {

std::size_t checked_bytes(const Shape& shape, DType dtype, const char* op) {
  std::size_t count = 1;
  for (std::int64_t dim : shape) {
    ATH_CHECK(dim >= 0, "{}: sizes must be >= 0, but got {}", op, shape);
    ATH_CHECK(!__builtin_mul_overflow(count, static_cast<std::size_t>(dim), &count) && count < (1ull << 56),
              "{}: shape {} has more elements than memory can hold", op, shape);
  }
  return count * size_of(dtype);
}

Tensor on_host(const Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  if (tensor.numel() == 0) return Tensor::empty(tensor.shape(), {tensor.dtype(), kCpu});
  std::int64_t first = 0, last = 0;
  for (int i = 0; i < tensor.rank(); ++i) {
    const std::int64_t way = tensor.strides()[i] * (tensor.shape()[i] - 1);
    (way < 0 ? first : last) += way;
  }
  const Tensor span = Tensor::empty({last - first + 1}, {tensor.dtype(), kCpu});
  const auto width = static_cast<std::int64_t>(size_of(tensor.dtype()));
  const AllowSync counted;
  copy_device_bytes(span.raw_data(), kCpu, tensor.raw_data() + first * width, tensor.device(), span.bytes(),
                    Site::current());
  return span.view_as_strided(tensor.shape(), tensor.strides(), -first);
}

double element(const Tensor& tensor, std::int64_t offset) {
  return dispatch_any(tensor.dtype(), [&]<class T>() {
    const T value = tensor.data<T>()[offset];
    if constexpr (sizeof(T) == 2) {
      return static_cast<double>(static_cast<float>(value));
    } else {
      return static_cast<double>(value);
    }
  });
}

Tensor dense_copy(const Tensor& tensor) {
  const std::size_t width = size_of(tensor.dtype());
  const Tensor dense = Tensor::empty(tensor.shape(), {tensor.dtype(), kCpu});
  Dims index = tensor.shape();
  std::fill(index.begin(), index.end(), 0);
  for (std::size_t to = 0; to < dense.bytes(); to += width) {
    std::int64_t from = 0;
    for (int i = 0; i < tensor.rank(); ++i) from += index[i] * tensor.strides()[i];
    std::memcpy(dense.raw_data() + to, tensor.raw_data() + from * static_cast<std::int64_t>(width), width);
    for (int i = tensor.rank() - 1; i >= 0 && ++index[i] == tensor.shape()[i]; --i) index[i] = 0;
  }
  return dense;
}

}  // namespace athanor::detail
