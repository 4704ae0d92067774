#include "autograd/packed_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "autograd/conv_norm.h"
#include "autograd/grad_mode.h"
#include "autograd/op_trace.h"
#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "kernels/detail/growing_list.h"
#include "kernels/packed_weights.h"

namespace athanor {
namespace {

/// A norm in evaluation, without activation and residual: y = x scale + shift. [K] f32 each.
struct ScaleAndShift {
  Tensor scale, shift;
};

ScaleAndShift scale_and_shift(const NormArguments& norm) {
  const std::int64_t channels = norm.running_mean.numel();
  const ScaleAndShift result{Tensor::empty({channels}), Tensor::empty({channels})};
  const float eps = static_cast<float>(norm.params.eps);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double gamma = norm.gamma.defined() ? norm.gamma.data<float>()[c] : 1,
                 beta = norm.beta.defined() ? norm.beta.data<float>()[c] : 0,
                 mean = norm.running_mean.data<float>()[c];
    const double scale = gamma / std::sqrt(static_cast<double>(norm.running_var.data<float>()[c]) + eps);
    result.scale.data<float>()[c] = static_cast<float>(scale);
    result.shift.data<float>()[c] = static_cast<float>(beta - mean * scale);
  }
  return result;
}

bool is_packable(const Tensor& x, DType dtype) {
  return x.dtype() == dtype && x.device().is_cpu() && x.is_contiguous();
}

/// Whether x may be left out, or has one value per row of the weights. Not one that the scope itself has
/// computed: it would be packed again in each call.
bool fits_rows(const Tensor& x, DType dtype, std::int64_t rows) {
  return !x.defined() || (is_packable(x, dtype) && !x.is_inference() && x.rank() == 1 && x.dim(0) == rows);
}

bool can_fold(const NormArguments& norm, std::int64_t rows) {
  if (norm.training || !norm.running_mean.defined() || !norm.running_var.defined()) return false;
  for (const Tensor* part : {&norm.gamma, &norm.beta, &norm.running_mean, &norm.running_var}) {
    if (!fits_rows(*part, DType::f32, rows)) return false;
  }
  return true;
}

/// What is packed: w, bias, and the norm's gamma, beta and running statistics; undefined where there is none.
using Parts = std::array<const Tensor*, 6>;

Parts parts_of(const Tensor& w, const Tensor& bias, const NormArguments* norm) {
  static const Tensor none;
  if (!norm) return {&w, &bias, &none, &none, &none, &none};
  return {&w, &bias, &norm->gamma, &norm->beta, &norm->running_mean, &norm->running_var};
}

/// Grows when one is written to.
std::uint64_t version_of(const std::array<Tensor, 6>& parts) {
  std::uint64_t version = 0;
  for (const Tensor& part : parts) version += part.defined() ? part.version() : 0;
  return version;
}

/// Keeps the memory of x, even if x itself moves to other memory later.
Tensor holder_of(const Tensor& x) {
  return x.defined() ? x.detach() : x;
}

/// Whether x has the memory of `held`.
bool is_at(const Tensor& held, const Tensor& x) {
  if (!held.defined() || !x.defined()) return held.defined() == x.defined();
  return held.raw_data() == x.raw_data() && held.shape() == x.shape();
}

}  // namespace

/// By a hash of the weights' address. An entry keeps what it was made of, so no other tensor can have that
/// memory.
struct PackedModel::Lists {
  struct Entry {
    std::array<Tensor, 6> parts;
    std::uint64_t version;
    kernels::PackedWeights weights;
  };
  std::array<kernels::GrowingList<Entry>, 64> of_hash;
  std::unordered_map<const std::byte*, Tensor> unrounded;  // by the address of what was rounded

  /// x in f32, from before it was rounded if that is known.
  Tensor in_f32(const Tensor& x) const {
    if (!x.defined() || x.dtype() == DType::f32) return x;
    if (const auto found = unrounded.find(x.raw_data());
        found != unrounded.end() && found->second.shape() == x.shape())
      return found->second;
    const Tensor wide = Tensor::empty(x.shape());
    kernels::copy(cpu_context(), x.detach(), wide);
    return wide;
  }
};

PackedModel::PackedModel() : lists_(std::make_unique<Lists>()) {}
PackedModel::~PackedModel() = default;

void PackedModel::keep_unrounded(const Tensor& rounded, const Tensor& values) {
  lists_->unrounded.insert_or_assign(rounded.raw_data(), values.detach());
}

const kernels::PackedWeights& PackedModel::of(const char* op, const Tensor& w, const Tensor& bias,
                                              const NormArguments* norm) const {
  const Parts parts = parts_of(w, bias, norm);
  const auto is_of = [&](const Lists::Entry& entry) {
    return std::equal(parts.begin(), parts.end(), entry.parts.begin(),
                      [](const Tensor* part, const Tensor& held) { return is_at(held, *part); });
  };
  const auto make = [&]() -> Lists::Entry {
    const AllocTag tag("weights");
    const auto [scale, shift] = norm ? scale_and_shift(*norm) : ScaleAndShift{};
    std::array<Tensor, 6> held;
    std::transform(parts.begin(), parts.end(), held.begin(),
                   [](const Tensor* part) { return holder_of(*part); });
    return {held, version_of(held), {lists_->in_f32(w), lists_->in_f32(bias), scale, shift, w.dtype()}};
  };
  const auto hash = reinterpret_cast<std::uintptr_t>(w.raw_data()) * 0x9e3779b97f4a7c15u >> 58;
  const Lists::Entry& entry = lists_->of_hash[hash].get(is_of, make);
  ATH_CHECK(entry.version == version_of(entry.parts),
            "{}: packed weights must not change, but were written to; make a new PackedModel", op);
  return entry.weights;
}

const kernels::PackedWeights* detail::packed_weights(const char* op, const Tensor& x, const Tensor& w,
                                                     const Tensor& bias, const NormArguments* norm) {
  const PackedModel* const model = packed_model;
  if (!model || op_trace()) return nullptr;
  // Nor a weight that the scope has computed.
  if (!x.defined() || !x.device().is_cpu() || !w.defined() || w.rank() < 2 || w.is_inference())
    return nullptr;
  const DType dtype = x.dtype();
  if ((dtype != DType::f32 && dtype != DType::bf16) || !is_packable(w, dtype)) return nullptr;
  const std::int64_t rows = w.dim(0);
  if (!fits_rows(bias, dtype, rows) || (norm && !can_fold(*norm, rows))) return nullptr;
  return &model->of(op, w, bias, norm);
}

}  // namespace athanor
