#include "kernels/update.h"

#include <algorithm>

#include "kernels/account/context.h"
#include "kernels/account/detail/cost.h"
#include "kernels/accumulate.h"
#include "kernels/detail/newton_schulz.h"
#include "kernels/muon.h"
#include "kernels/update_ops.h"

// Ranges of a table, their numbers, and fields of the StepState come on top of the flat tensors.

namespace athanor::kernels {

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
  context.launch("prepare_update", {table.count * 7, counts(table), 12}, {table.count * (op + 5)});
  const std::int64_t kept =
      part(table, table.masters) + part(table, table.averages) + states * 4 * table.elements;
  const std::int64_t prepared = table.count * (op + 8);
  context.launch(kernel,
                 {kept, part(table, table.gradients), ranges(table, 4 + averages + (states > 0)), table.count,
                  members(table) * 4, prepared, counts(table), kSkips, kScaleFields},
                 {kept, part(table, table.weights), counts(table)});
}

}  // namespace

#define ATH_SPECIALISE(Rule)                                                            \
  template <>                                                                           \
  void update_parameters<Rule>(AccountContext & context, const UpdateTable& table,      \
                               std::span<const Rule::Group>, std::span<const Tensor>) { \
    add_update(context, Rule::kName, table, sizeof(Rule::Op), Rule::kStates);           \
  }
ATH_UPDATE_RULES(ATH_SPECIALISE)
#undef ATH_SPECIALISE

void measure_gradients(AccountContext& context, std::span<const UpdateTable> tables, const GradientLimits&) {
  std::int64_t count = 0;
  for (const UpdateTable& table : tables) {
    count += table.count;
    context.map("measure_gradients", {part(table, table.gradients), ranges(table, 2)}, {table.count * 8});
  }
  context.launch("measure_finish", {count * 8, kMeasureReads}, {kMeasureWrites});
}
ATH_COST(measure_squares, (const Tensor& squares, const GradientLimits&), "measure_squares",
         (squares, kMeasureReads), (kMeasureWrites))

ATH_COST(set_learning_rates, (const RateWindow& window), "set_learning_rates", (8), (window.groups * 4))
ATH_COST(loss_seed, (Out value, float), "loss_seed", (4), (value))
/// Of an applied step: all but the seed, the rates and the limits.
ATH_COST(finish_step, (const LossScaling&, const OutlierGuard&), "finish_step", (36), (32))

/// Of an applied step, which copies nothing.
void copy_if_skipped(AccountContext& context, const Tensor&, Out to) {
  if (to.numel() > 0) context.launch("copy_if_skipped", {kSkips}, {});
}
ATH_COST(average_update, (const Tensor& x, Out average, const AverageRule&), "average_update",
         (x, average, kSkips, 8), (average))
ATH_COST(average_ranges, (const UpdateTable& table), "average_ranges",
         (part(table, table.masters), part(table, table.averages), ranges(table, 3), kSkips, 8),
         (part(table, table.averages)))

// Muon -----------------------------------------------------------------------------------------------------

ATH_COST(muon_momentum, (const UpdateTable& matrices, float, bool, Out, Out x), "muon_momentum",
         (matrices.elements * 4, part(matrices, matrices.gradients), ranges(matrices, 4), kSkips,
          kScaleFields),
         (matrices.elements * 4, x))
void normalize(AccountContext& context, Out x, float) {
  const std::int64_t matrices = x.dim(0), sums = matrices * update_chunks(x.dim(1) * x.dim(2)) * 8;
  if (sums == 0) return;
  context.launch("normalize_squares", {x}, {sums});
  context.launch("normalize_finish", {sums}, {matrices * 4});
  context.launch("normalize", {x, matrices * 4}, {x});
}
void newton_schulz(AccountContext& context, const Tensor& x, const std::array<float, 3>& coefficients,
                   Out gram, Out factor, Out next) {
  detail::newton_schulz_by_sums(context, x, coefficients, gram, factor, next);
}

void muon_apply(AccountContext& context, const UpdateTable& table, const MuonStep& muon, const Tensor& x) {
  if (table.count == 0) return;
  const std::int64_t masters = part(table, table.masters), averages = part(table, table.averages),
                     growth = muon.weight_norm > 0 ? x.dim(0) * 4 : 0;
  if (growth > 0) {
    context.launch("muon_squares", {masters, ranges(table, 2)}, {table.count * 8});
    context.launch("muon_finish", {table.count * 8}, {growth});
  }
  const int fields = 3 + table.weights.defined() + table.averages.defined();
  context.launch("muon_apply",
                 {masters, averages, x, ranges(table, fields), table.count * 4, members(table) * 4,
                  counts(table), growth, kSkips, 4},
                 {masters, averages, part(table, table.weights), counts(table)});
}

}  // namespace athanor::kernels
