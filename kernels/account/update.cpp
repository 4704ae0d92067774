#include "kernels/update.h"

#include <algorithm>

#include "kernels/account/detail/cost.h"
#include "kernels/accumulate.h"
#include "kernels/muon.h"
#include "kernels/update_ops.h"

// Ranges of a table, their numbers, and fields of the StepState come on top of the flat tensors.

namespace athanor::kernels {

using account::bytes;
using account::launch;
using account::pieces;

namespace {

constexpr std::int64_t kSkips = 8;         ///< found_inf and found_outlier
constexpr std::int64_t kScaleFields = 12;  ///< loss_scale, clip_coefficient and clip_value
/// What measure() reads: loss_scale, the averages of norms, and their count; and writes: the norm, both
/// limits, and what was found.
constexpr std::int64_t kMeasureReads = 16, kMeasureWrites = 20;

/// Bytes of `fields` offsets or counts of every range.
std::int64_t ranges(const UpdateTable& table, std::int64_t fields) {
  return table.count * fields * 8;
}
/// The table's elements of a flat tensor.
std::int64_t part(const UpdateTable& table, const Tensor& flat) {
  return flat.defined() ? table.elements * account::size(flat.dtype()) : 0;
}
/// The parameters of a table: its ranges that are the last of one.
std::int64_t members(const UpdateTable& table) {
  const auto* const ranges = reinterpret_cast<const UpdateRange*>(table.ranges.raw_data());
  return std::count_if(ranges, ranges + table.count, [](const UpdateRange& range) { return range.last; });
}
/// Their counts of updates, which are read and written.
std::int64_t counts(const UpdateTable& table) {
  return members(table) * 8;
}

/// What the optimizer does to each range, `op` bytes, the average's rate and whether it is a variant, from
/// the range's member, group and decay; and the update itself, which reads all of that.
void add_update(AccountContext& context, const char* kernel, const UpdateTable& table, std::int64_t op,
                std::int64_t states) {
  if (table.count == 0) return;
  const bool averages = table.averages.defined();
  launch(context, "prepare_update", table.count * 7 + counts(table) + 12, table.count * (op + 5));
  const std::int64_t kept =
      part(table, table.masters) + part(table, table.averages) + states * 4 * table.elements;
  const std::int64_t prepared = table.count * (op + 8);
  launch(context, kernel,
         kept + part(table, table.gradients) + ranges(table, 4 + averages + (states > 0)) + table.count +
             members(table) * 4 + prepared + counts(table) + kSkips + kScaleFields,
         kept + part(table, table.weights) + counts(table));
}

}  // namespace

template <>
void sgd_update(AccountContext& context, const UpdateTable& table, std::span<const SgdGroup>,
                const Tensor& momentum) {
  const std::int64_t op = momentum.defined() ? sizeof(MomentumOp<false>) : sizeof(SgdOp);
  add_update(context, "sgd_update", table, op, momentum.defined() ? 1 : 0);
}
template <>
void adam_update(AccountContext& context, const UpdateTable& table, std::span<const AdamGroup>, const Tensor&,
                 const Tensor&) {
  add_update(context, "adam_update", table, sizeof(AdamOp<false>), 2);
}

template <>
void measure_gradients(AccountContext& context, std::span<const UpdateTable> tables, const GradientLimits&) {
  std::int64_t count = 0;
  for (const UpdateTable& table : tables) {
    count += table.count;
    if (table.count > 0)
      launch(context, "measure_gradients", part(table, table.gradients) + ranges(table, 2), table.count * 8);
  }
  launch(context, "measure_finish", count * 8 + kMeasureReads, kMeasureWrites);
}
template <> void measure_squares(AccountContext& context, const Tensor& squares, const GradientLimits&) {
  launch(context, "measure_squares", bytes(squares) + kMeasureReads, kMeasureWrites);
}

template <> void set_learning_rates(AccountContext& context, const RateWindow& window) {
  launch(context, "set_learning_rates", 8, window.groups * 4);
}
template <> void loss_seed(AccountContext& context, const Tensor& value, float) {
  launch(context, "loss_seed", 4, bytes(value));
}
/// Of an applied step: all but the seed, the rates and the limits.
template <> void finish_step(AccountContext& context, const LossScaling&, const OutlierGuard&) {
  launch(context, "finish_step", 36, 32);
}

/// Of an applied step, which copies nothing.
template <> void copy_if_skipped(AccountContext& context, const Tensor&, const Tensor& to) {
  if (to.numel() > 0) launch(context, "copy_if_skipped", kSkips, 0);
}
template <>
void average_update(AccountContext& context, const Tensor& x, const Tensor& average, const AverageRule&) {
  account::map(context, "average_update", bytes(x) + bytes(average) + kSkips + 8, average);
}
template <> void average_ranges(AccountContext& context, const UpdateTable& table) {
  if (table.count == 0) return;
  const std::int64_t averages = part(table, table.averages);
  launch(context, "average_ranges", part(table, table.masters) + averages + ranges(table, 3) + kSkips + 8,
         averages);
}
template <> void exchange(AccountContext& context, const Tensor& a, const Tensor& b) {
  if (a.numel() > 0) launch(context, "exchange", bytes(a) + bytes(b), bytes(a) + bytes(b));
}

// Muon -----------------------------------------------------------------------------------------------------

template <>
void muon_momentum(AccountContext& context, const UpdateTable& matrices, float, bool, const Tensor&,
                   const Tensor& x) {
  if (matrices.count == 0) return;
  const std::int64_t momentum = matrices.elements * 4;
  launch(context, "muon_momentum",
         momentum + part(matrices, matrices.gradients) + ranges(matrices, 4) + kSkips + kScaleFields,
         momentum + bytes(x));
}

template <> void normalize(AccountContext& context, const Tensor& x, float) {
  if (x.numel() == 0) return;
  const std::int64_t matrices = x.dim(0), sums = matrices * pieces(x.dim(1) * x.dim(2), kUpdateChunk) * 8;
  launch(context, "normalize_squares", bytes(x), sums);
  launch(context, "normalize_finish", sums, matrices * 4);
  launch(context, "normalize", bytes(x) + matrices * 4, bytes(x));
}

template <> void scale_add_identity(AccountContext& context, const Tensor& x, float, float, const Tensor& y) {
  account::map(context, "scale_add_identity", bytes(x), y);
}

template <>
void muon_apply(AccountContext& context, const UpdateTable& table, const MuonStep& muon, const Tensor& x) {
  if (table.count == 0) return;
  const std::int64_t masters = part(table, table.masters), averages = part(table, table.averages),
                     growth = muon.weight_norm > 0 ? x.dim(0) * 4 : 0;
  if (growth > 0) {
    launch(context, "muon_squares", masters + ranges(table, 2), table.count * 8);
    launch(context, "muon_finish", table.count * 8, growth);
  }
  launch(context, "muon_apply",
         masters + averages + bytes(x) +
             ranges(table, 3 + table.weights.defined() + table.averages.defined()) + table.count * 4 +
             members(table) * 4 + counts(table) + growth + kSkips + 4,
         masters + averages + part(table, table.weights) + counts(table));
}

}  // namespace athanor::kernels
