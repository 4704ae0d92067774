#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tensor/base/pool.h"

namespace athanor {

/// Base of objects shared by Ref: intrusive count, memory from the pool.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  static void* operator new(std::size_t bytes) { return pool_allocate(bytes); }
  static void operator delete(void* block, std::size_t bytes) noexcept { pool_free(block, bytes); }

  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void release() const noexcept {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) const_cast<RefCounted*>(this)->dispose();
  }
  std::uint32_t use_count() const noexcept { return count_.load(std::memory_order_acquire); }

 protected:
  virtual ~RefCounted() = default;
  /// Runs when the last reference is released.
  virtual void dispose() noexcept { delete this; }

 private:
  mutable std::atomic<std::uint32_t> count_{0};
};

/// Owning pointer to a RefCounted object; copying shares it.
template <class T> class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* object) noexcept : object_(object) {
    if (object_) object_->retain();
  }
  Ref(const Ref& other) noexcept : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(const Ref<U>& other)
  noexcept : Ref(static_cast<T*>(other.get())) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) object_->release();
  }

  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  bool operator==(const Ref& other) const noexcept { return object_ == other.object_; }

 private:
  T* object_ = nullptr;
};

/// A new object, counted once.
template <class T, class... Args> Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace athanor
