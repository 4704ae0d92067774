#include "tensor/tensor.h"

#include <cstring>
#include <utility>

#include "tensor/detail/device_memory.h"
#include "tensor/detail/host_copy.h"

namespace athanor {

// Storage ------------------------------------------------------------------------------------------------

Storage::Storage(std::size_t bytes, Device device)
    : block_(allocator_of(device).allocate(bytes)), bytes_(bytes), device_(device) {}

Storage::Storage(void* data, std::size_t bytes, Ref<RefCounted> owner)
    : block_{data, bytes, 0}, bytes_(bytes), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (!owner_) allocator_of(device_).free(block_);
}

// Making tensors -------------------------------------------------------------------------------------------

Tensor Tensor::make(Ref<Storage> storage, std::int64_t offset, const Shape& shape, const Strides& strides,
                    DType dtype, Ref<Version> version) {
  Tensor tensor;
  tensor.impl_ = make_ref<Impl>();
  Impl& impl = *tensor.impl_;
  impl.shape = shape;
  impl.strides = strides;
  impl.storage = std::move(storage);
  impl.offset = offset;
  impl.numel = shape.numel();
  impl.version = std::move(version);
  impl.dtype = dtype;
  std::int64_t dense = 1;
  for (int i = shape.rank() - 1; i >= 0 && impl.contiguous; --i) {
    if (shape[i] != 1 && impl.numel != 0) impl.contiguous = strides[i] == dense;
    dense *= shape[i];
  }
  return tensor;
}

Tensor Tensor::empty(const Shape& shape, TensorOptions options) {
  const std::size_t bytes = detail::checked_bytes(shape, options.dtype, "empty");
  return make(make_ref<Storage>(bytes, options.device), 0, shape, contiguous_strides(shape), options.dtype,
              make_ref<Version>());
}

Tensor Tensor::zeros(const Shape& shape, TensorOptions options) {
  Tensor tensor = empty(shape, options);
  if (!options.device.is_cpu()) {
    detail::set_device_bytes(tensor.raw_data(), options.device, 0, tensor.bytes());
  } else if (tensor.numel() > 0) {
    std::memset(tensor.raw_data(), 0, tensor.bytes());
  }
  return tensor;
}

Tensor Tensor::from_bytes(std::span<const std::byte> bytes, const Shape& shape, TensorOptions options) {
  Tensor tensor = empty(shape, options);
  ATH_CHECK(bytes.size() == tensor.bytes(), "from: {} values of {} need {} bytes, but got {}", shape,
            options.dtype, tensor.bytes(), bytes.size());
  if (!options.device.is_cpu()) {
    detail::copy_device_bytes(tensor.raw_data(), options.device, bytes.data(), kCpu, bytes.size(),
                              Site::current());
  } else if (!bytes.empty()) {
    std::memcpy(tensor.raw_data(), bytes.data(), bytes.size());
  }
  return tensor;
}

Tensor Tensor::wrap(Ref<Storage> storage, std::int64_t offset, const Shape& shape, const Strides& strides,
                    DType dtype) {
  return make(std::move(storage), offset, shape, strides, dtype, make_ref<Version>());
}

// Views and copies -----------------------------------------------------------------------------------------

Tensor Tensor::view_as_strided(const Shape& shape, const Strides& strides,
                               std::int64_t offset_elements) const {
  ATH_CHECK(!requires_grad(),
            "view: a raw view of {}, which requires a gradient, would cut it from the graph; use the "
            "differentiable views of autograd/shape.h, or detach() first",
            this->shape());
  std::int64_t first = impl_->offset + offset_elements, last = first;
  for (int i = 0; i < shape.rank(); ++i) {
    (strides[i] < 0 ? first : last) += strides[i] * (shape[i] - 1);
  }
  const auto held = static_cast<std::int64_t>(impl_->storage->bytes() / size_of(dtype()));
  ATH_CHECK(shape.numel() == 0 || (shape.rank() == strides.rank() && first >= 0 && last < held),
            "view: elements must lie in the storage of {}, but {} with strides {} at offset {} does not",
            held, shape, strides, impl_->offset + offset_elements);
  Tensor view =
      make(impl_->storage, impl_->offset + offset_elements, shape, strides, dtype(), impl_->version);
  view.impl_->made_by = impl_->made_by;
  return view;
}

Tensor Tensor::detach() const {
  Tensor alias = make(impl_->storage, impl_->offset, shape(), strides(), dtype(), impl_->version);
  alias.impl_->made_by = impl_->made_by;
  return alias;
}

void Tensor::copy_bytes_from(const Tensor& source, const Site& site) const {
  ATH_CHECK(source.shape() == shape() && source.dtype() == dtype(),
            "copy_bytes_from: source must be {} {}, but got {} {}", shape(), dtype(), source.shape(),
            source.dtype());
  ATH_CHECK(is_contiguous() && source.is_contiguous(), "copy_bytes_from: both tensors must be dense");
  if (!device().is_cpu() || !source.device().is_cpu()) {
    detail::copy_device_bytes(raw_data(), device(), source.raw_data(), source.device(), bytes(), site);
  } else if (numel() > 0) {
    std::memmove(raw_data(), source.raw_data(), bytes());
  }
  bump_version();
}

Tensor Tensor::to(Device device, const Site& site) const {
  if (device == this->device()) return *this;
  if (!is_contiguous()) {  // gathered on the host
    if (!this->device().is_cpu()) count_host_sync("copy", site);
    return detail::dense_copy(detail::on_host(*this)).to(device, site);
  }
  Tensor copy = empty(shape(), {dtype(), device});
  copy.copy_bytes_from(*this, site);
  return copy;
}

void Tensor::rebind(Ref<Storage> storage, std::int64_t offset_elements, DType dtype) const {
  impl_->storage = std::move(storage);
  impl_->offset = offset_elements;
  impl_->strides = contiguous_strides(impl_->shape);
  impl_->contiguous = true;
  impl_->dtype = dtype;
  bump_version();
}

// Reading values -------------------------------------------------------------------------------------------

namespace {

// Calls visit(element offset) for every index in row-major order.
template <class F> void for_each_offset(const Tensor& tensor, F&& visit) {
  if (tensor.numel() == 0) return;
  std::array<std::int64_t, kMaxRank> index{};
  const int rank = tensor.rank();
  std::int64_t offset = 0;
  for (;;) {
    visit(offset);
    int axis = rank - 1;
    for (; axis >= 0; --axis) {
      offset += tensor.strides()[axis];
      if (++index[axis] < tensor.shape()[axis]) break;
      offset -= tensor.strides()[axis] * index[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace

double Tensor::item(const Site& site) const {
  ATH_CHECK(numel() == 1, "item: tensor must hold one element, but has shape {}", shape());
  count_host_sync("item", site);
  return detail::element(device().is_cpu() ? *this : detail::on_host(*this), 0);
}

std::vector<double> Tensor::to_vector(const Site& site) const {
  count_host_sync("to_vector", site);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(numel()));
  const Tensor host = detail::on_host(*this);
  for_each_offset(host, [&](std::int64_t offset) { values.push_back(detail::element(host, offset)); });
  return values;
}

}  // namespace athanor
