#include "autograd/packed_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "autograd/conv_norm.h"
#include "autograd/grad_mode.h"
#include "autograd/op_trace.h"
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

bool is_packable(const Tensor& x) {
  return x.dtype() == DType::f32 && x.device().is_cpu() && x.is_contiguous();
}

/// Whether x may be left out, or has one value per row of the weights. Not one that the scope itself has
/// computed: it would be packed again in each call.
bool fits_rows(const Tensor& x, std::int64_t rows) {
  return !x.defined() || (is_packable(x) && !x.is_inference() && x.rank() == 1 && x.dim(0) == rows);
}

bool can_fold(const NormArguments& norm, std::int64_t rows) {
  if (norm.training || !norm.running_mean.defined() || !norm.running_var.defined()) return false;
  for (const Tensor* part : {&norm.gamma, &norm.beta, &norm.running_mean, &norm.running_var}) {
    if (!fits_rows(*part, rows)) return false;
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
};

PackedModel::PackedModel() : lists_(std::make_unique<Lists>()) {}
PackedModel::~PackedModel() = default;

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
    return {held, version_of(held), {w, bias, scale, shift}};
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
  if (!x.defined() || x.dtype() != DType::f32 || !x.device().is_cpu() || !w.defined() || w.rank() < 2 ||
      w.is_inference() || !is_packable(w))
    return nullptr;
  const std::int64_t rows = w.dim(0);
  if (!fits_rows(bias, rows) || (norm && !can_fold(*norm, rows))) return nullptr;
  return &model->of(op, w, bias, norm);
}

}  // namespace athanor
