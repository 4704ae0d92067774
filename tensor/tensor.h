#pragma once  // Explained in docs/tensors.md.

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "tensor/allocator.h"
#include "tensor/base/counters.h"
#include "tensor/base/ref.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace athanor {

/// Bytes on a device, shared by all views.
class Storage final : public RefCounted {
 public:
  Storage(std::size_t bytes, Device device);
  /// Wraps foreign memory; keeps `owner` alive as long as the storage.
  Storage(void* data, std::size_t bytes, Ref<RefCounted> owner);

  std::byte* data() const { return static_cast<std::byte*>(block_.data); }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  /// Null for wrapped memory.
  const Block* block() const { return owner_ ? nullptr : &block_; }
  const Ref<RefCounted>& owner() const { return owner_; }

 private:
  ~Storage() override;

  Block block_;
  std::size_t bytes_;
  Device device_;
  Ref<RefCounted> owner_;
};

/// A tensor's autograd state: the Node that computed it, or the Leaf that collects its gradient.
class AutogradState : public RefCounted {
 public:
  virtual bool is_leaf() const = 0;
};

/// The dtype and device of a new tensor.
struct TensorOptions {
  DType dtype = DType::f32;
  Device device = kCpu;
};

/// A strided view over shared storage. Users hold only this handle. Copying a Tensor copies the handle: both
/// name the same logical tensor, with the same values, gradient and version.
///
/// Images have layout [N, H, W, C], convolution weights [K, R, S, C]. A default-constructed Tensor is
/// undefined; only defined() may be called on it.
class Tensor {
 public:
  Tensor() = default;

  /// Uninitialised, dense.
  static Tensor empty(const Shape& shape, TensorOptions options = {});
  /// All bytes zero, dense.
  static Tensor zeros(const Shape& shape, TensorOptions options = {});
  /// A dense copy of `values` on `device`. Throws ArgumentError if the count does not match the shape.
  template <class T> static Tensor from(std::span<const T> values, const Shape& shape, Device device = kCpu) {
    return from_bytes(std::as_bytes(values), shape, {dtype_of<T>, device});
  }
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = kCpu) {
    return from(std::span<const T>(values), shape, device);
  }
  static Tensor from_bytes(std::span<const std::byte> bytes, const Shape& shape, TensorOptions options);
  /// A view of foreign memory, such as an arena or a mapped file. Nothing is copied.
  static Tensor wrap(Ref<Storage> storage, std::int64_t offset, const Shape& shape, const Strides& strides,
                     DType dtype);

  bool defined() const { return static_cast<bool>(impl_); }
  const Shape& shape() const { return impl_->shape; }
  const Strides& strides() const { return impl_->strides; }
  DType dtype() const { return impl_->dtype; }
  Device device() const { return impl_->storage->device(); }
  TensorOptions options() const { return {dtype(), device()}; }
  int rank() const { return impl_->shape.rank(); }
  std::int64_t numel() const { return impl_->numel; }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype()); }
  /// Size along an axis; negative counts from the end.
  std::int64_t dim(int axis) const { return impl_->shape[normalize_axis(axis, rank(), "dim")]; }
  bool is_contiguous() const { return impl_->contiguous; }

  /// First element. T must be the storage type of dtype(), or std::byte.
  template <class T> T* data() const {
    if constexpr (!std::is_same_v<T, std::byte>) {
      ATH_CHECK(dtype() == dtype_of<T>, "data: tensor must hold {}, but holds {}", dtype_of<T>, dtype());
    }
    return reinterpret_cast<T*>(raw_data());
  }
  std::byte* raw_data() const {
    return impl_->storage->data() + impl_->offset * static_cast<std::int64_t>(size_of(dtype()));
  }

  /// The value of a one-element tensor, converted to double. A counted wait for the device.
  double item(const Site& site = Site::current()) const;
  /// All values in row-major order, converted to double. A counted wait for the device.
  std::vector<double> to_vector(const Site& site = Site::current()) const;
  /// Values, shape and dtype as readable text; long axes are truncated. A counted wait for the device.
  std::string str(const Site& site = Site::current()) const;

  /// A view that autograd does not record: throws on a tensor that needs a gradient; autograd/shape.h has the
  /// recorded views. It shares storage and version with this tensor.
  Tensor view_as_strided(const Shape& shape, const Strides& strides, std::int64_t offset_elements) const;
  /// The same values and version, outside any graph.
  Tensor detach() const;
  /// Copies the bytes of a dense tensor of the same shape and dtype into this one. From a device to the CPU
  /// this is a counted wait; a pinned tensor (tensor/pinned.h) only queues the copy. Bumps the version.
  void copy_bytes_from(const Tensor& source, const Site& site = Site::current()) const;
  /// A dense copy on another device (or this handle if it is already there). Not recorded. From a device to
  /// the CPU a counted wait.
  Tensor to(Device device, const Site& site = Site::current()) const;

  /// The number of in-place writes to this logical tensor; shared with its views, not with its storage.
  std::uint32_t version() const { return impl_->version->count; }
  void bump_version() const { ++impl_->version->count; }

  /// Whether this tensor needs a gradient: a leaf that collects one, or computed from such a leaf.
  bool requires_grad() const { return defined() && static_cast<bool>(impl_->autograd); }
  /// True for a tensor made in InferenceMode: it cannot be saved for a backward pass.
  bool is_inference() const { return impl_->made_by != nullptr; }
  /// The op that made an inference tensor.
  const char* made_by() const { return impl_->made_by; }
  bool same_as(const Tensor& other) const { return impl_ == other.impl_; }
  const Ref<Storage>& storage() const { return impl_->storage; }
  std::int64_t offset() const { return impl_->offset; }

  // For autograd/ and optim/ only.
  const Ref<AutogradState>& autograd() const { return impl_->autograd; }
  void set_autograd(Ref<AutogradState> state) const { impl_->autograd = std::move(state); }
  void mark_inference(const char* op) const { impl_->made_by = op; }
  /// Whether this is the only handle, over storage with no other owner: its memory may be reused.
  bool unshared() const { return impl_->use_count() == 1 && impl_->storage->use_count() == 1; }
  /// Moves this logical tensor to other memory of the same shape: an arena takes over a parameter.
  void rebind(Ref<Storage> storage, std::int64_t offset_elements, DType dtype) const;

 private:
  struct Version final : RefCounted {
    std::uint32_t count = 0;
  };
  struct Impl final : RefCounted {
    Shape shape;
    Strides strides;
    Ref<Storage> storage;
    std::int64_t offset = 0;  // in elements
    std::int64_t numel = 0;
    Ref<Version> version;
    Ref<AutogradState> autograd;
    const char* made_by = nullptr;  // set by InferenceMode
    DType dtype = DType::f32;
    bool contiguous = true;
  };

  static Tensor make(Ref<Storage> storage, std::int64_t offset, const Shape& shape, const Strides& strides,
                     DType dtype, Ref<Version> version);

  Ref<Impl> impl_;
};

/// Prints the values, of a large tensor only the first and last, and shape, dtype and device.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// Uninitialised, with the shape, dtype and device of `like`.
inline Tensor empty_like(const Tensor& like) {
  return Tensor::empty(like.shape(), like.options());
}

}  // namespace athanor
