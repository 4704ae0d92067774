#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/context.h"
#include "kernels/cpu/primitive.h"

namespace athanor::cpu {

/// The implementation of a key: a test asserts that it is never oneDNN's reference code.
struct PrimitiveInfo {
  PrimitiveKey key;
  std::string implementation;  ///< empty if there is none
};

/// Primitives by key. Each is created on first use; when the cache is full, it evicts the least recently used
/// one.
class PrimitiveCache {
 public:
  static constexpr std::size_t kCapacity = 1024;

  PrimitiveCache();
  ~PrimitiveCache();

  /// Made by `key.by`, which the key must fit. Null if it has no code for the key after all. Throws
  /// BackendError.
  Primitive* find(const PrimitiveKey& key);
  std::vector<PrimitiveInfo> contents() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Code for an operation, and what it does of that which its key says. The caller does the rest. Null if
/// there is none.
struct Code {
  Primitive* primitive = nullptr;
  const Implementation* by = nullptr;
  Fused fused = {};
  DType out = {};  ///< of what it writes: gradients of weights that the caller adds are not rounded before

  explicit operator bool() const { return primitive != nullptr; }
};

/// The first entry with code for `key` that has this name or, for "automatic", is preferred. (`key.by` is
/// ignored.)
Code find_code(CpuContext& context, std::span<const ListEntry> list, const PrimitiveKey& key,
               std::string_view name);

}  // namespace athanor::cpu
