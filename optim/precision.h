#pragma once

#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace athanor {

/// The precision of a training step. Masters and optimizer state are always f32. `tf32` stores f32 and lets
/// CUDA matmuls and convolutions round their inputs to 10 fraction bits; on the CPU it equals f32.
enum class Precision : std::uint8_t { f32, tf32, bf16, f16 };

/// The dtype of stored weights, activations and gradients.
constexpr DType compute_dtype(Precision precision) {
  return precision == Precision::bf16 ? DType::bf16 : precision == Precision::f16 ? DType::f16 : DType::f32;
}

/// "f32", "tf32", "bf16" or "f16", as `--precision` writes it.
constexpr std::string_view name_of(Precision precision) {
  constexpr std::string_view kNames[] = {"f32", "tf32", "bf16", "f16"};
  return kNames[static_cast<std::size_t>(precision)];
}

/// The precision with our name or Lightning's: "32", "32-true", "bf16-mixed", "16", "16-mixed". Empty for any
/// other name.
constexpr std::optional<Precision> precision_named(std::string_view name) {
  if (name == "f32" || name == "32" || name == "32-true") return Precision::f32;
  if (name == "tf32") return Precision::tf32;
  if (name == "bf16" || name == "bf16-mixed") return Precision::bf16;
  if (name == "f16" || name == "16" || name == "16-mixed") return Precision::f16;
  return std::nullopt;
}

}  // namespace athanor
