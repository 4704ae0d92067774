#include "kernels/norm.h"

#include "kernels/account/context.h"
#include "kernels/account/detail/cost.h"
#include "kernels/account/detail/windows.h"
#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/cuda/norm_plan.h"

namespace athanor::kernels {

using account::bytes;
using account::wide;

namespace {

/// Bytes of the partial sums that a pass over x leaves which moves those operands.
std::int64_t partials_of(const Tensor& x, std::initializer_list<cuda::Address> operands) {
  const int width = cuda::vector_width(size_of(x.dtype()), x.dim(-1), operands);
  return static_cast<std::int64_t>(cuda::norm_cut(x, width).partial_elements()) * wide(x);
}
/// Of a number per channel.
std::int64_t vector_of(const Tensor& x) {
  return x.dim(-1) * wide(x);
}
/// What a kernel reads of a sink: it is written in any case.
Tensor before(const GradientTarget& sink) {
  return sink.write == Write::accumulate ? sink.tensor : Tensor();
}

/// Finds the sums of x and its rough mean, if they are not there; the bytes that the next kernel then reads.
std::int64_t find_sums(AccountContext& context, const Tensor& x, const Tensor& sums, std::int64_t partial) {
  if (sums.defined()) return bytes(sums);
  const std::int64_t found = partial + vector_of(x);
  context.launch("batch_norm_statistics", {x}, {found});
  return found;
}

// Backward: a pass that sums, and one that writes dx.

/// Whether dL/d(pre) is computed from x, and so from all parameters. Else it is dy, or follows from y.
bool needs_pre(const BatchNormBackward& args) {
  const bool from_y = args.extra.defined() && gradient_from_output(args.activation);
  return args.activation != Activation::none && !from_y;
}
/// x, dy and, with a residual, what the derivative needs; the bytes of the partial sums. `index`: of the pool
/// whose gradient dy is; `aligned`: of the one whose gradient dx is.
std::int64_t add_sums(AccountContext& context, const BatchNormBackward& args, const Tensor& index = {},
                      const Tensor& aligned = {}) {
  const Tensor extra = args.extra.defined() && args.extra.dtype() == args.x.dtype() ? args.extra : Tensor();
  const std::int64_t partial = partials_of(args.x,
                                           {args.x, args.dy, extra, args.dresidual, args.dx, index, aligned}),
                     parameters = needs_pre(args) ? bytes(args.stats) + bytes(args.gamma) + bytes(args.beta)
                                                  : vector_of(args.x);
  if (args.x.numel() > 0)
    context.launch("batch_norm_sums", {args.x, args.dy, index, args.extra, parameters},
                   {partial, args.dresidual});
  return partial;
}
/// The kernel that only adds up; `row`: what it writes besides the parameters' gradients.
void finish_sums(AccountContext& context, const BatchNormBackward& args, std::int64_t partial,
                 const Tensor& row) {
  const std::int64_t inverses = args.dgamma.tensor.defined() ? vector_of(args.x) : 0;
  context.launch("batch_norm_finish", {partial, inverses, before(args.dgamma), before(args.dbeta)},
                 {row, args.dgamma.tensor, args.dbeta.tensor});
}
/// x and dL/d(pre), which the first pass has kept where there is a residual. It finds the coefficients from
/// `sums`, and then writes dgamma and dbeta. `index`: of the pool on the other side of dy or dx.
void add_dx(AccountContext& context, const BatchNormBackward& args, std::int64_t sums,
            const GradientTarget& dgamma, const GradientTarget& dbeta, const Tensor& index = {}) {
  const Tensor beta = needs_pre(args) && !args.extra.defined() ? args.beta : Tensor();
  context.map("batch_norm_backward",
              {args.x, args.dy, index, args.stats, args.gamma, beta, sums, before(dgamma), before(dbeta)},
              {args.dx, dgamma.tensor, dbeta.tensor});
}

}  // namespace

void batch_norm_statistics(AccountContext& context, const Tensor& x, double, Out stats,
                           const RunningStats& running) {
  if (x.numel() == 0) return;
  context.launch("batch_norm_finish",
                 {find_sums(context, x, {}, partials_of(x, {x})), running.mean, running.var},
                 {stats, running.mean, running.var});
}
void batch_norm_moments(AccountContext& context, const Tensor& x, Out row) {
  if (x.numel() == 0) return fill(context, row, 0);
  context.launch("batch_norm_finish", {find_sums(context, x, {}, partials_of(x, {x}))}, {row});
}
ATH_COST(batch_norm_join, (const Tensor& rows, double, Out stats, const RunningStats& running),
         "batch_norm_join", (rows, running.mean, running.var), (stats, running.mean, running.var))
ATH_COST(batch_norm_fixed, (const RunningStats& running, double, Out stats), "batch_norm_fixed",
         (running.mean, running.var), (stats))

std::int64_t batch_norm_mask_bytes(AccountContext&, Activation activation, const Tensor& x) {
  return mask_of_relu(activation, x);
}

namespace {

/// The pass that writes y, after it has added up `found` bytes of sums.
void apply(AccountContext& context, const BatchNormTraining& args, std::int64_t found) {
  const RunningStats& running = args.running;
  context.launch("batch_norm",
                 {args.x, args.residual, found, running.mean, running.var, args.gamma, args.beta},
                 {args.y, args.mask, args.stats, running.mean, running.var});
}

}  // namespace

void batch_norm_training(AccountContext& context, const BatchNormTraining& args) {
  if (args.x.numel() == 0) return;
  const std::int64_t partial = partials_of(args.x, {args.x, args.residual, args.y});
  apply(context, args, find_sums(context, args.x, args.sums, partial));
}

void batch_norm_backward(AccountContext& context, const BatchNormBackward& args) {
  if (args.x.dim(-1) == 0) return;
  const std::int64_t partial = args.sums.defined() ? bytes(args.sums) : add_sums(context, args);
  if (!args.dx.defined() || args.x.numel() == 0) return finish_sums(context, args, partial, {});
  add_dx(context, args, partial, args.dgamma, args.dbeta);
}

void batch_norm_max_pool_training(AccountContext& context, const BatchNormTraining& args,
                                  const PoolWindows& windows, Out index) {
  if (args.x.numel() == 0) return;
  const RunningStats& running = args.running;
  const std::int64_t partial = partials_of(args.x, {args.x, args.y, index}),
                     found = find_sums(context, args.x, args.sums, partial);
  context.launch(
      "batch_norm_max_pool",
      {account::bytes_in_windows(windows, args.x), found, running.mean, running.var, args.gamma, args.beta},
      {args.y, index, args.stats, running.mean, running.var});
}
void batch_norm_max_pool_backward(AccountContext& context, const BatchNormBackward& args, const PoolWindows&,
                                  const Tensor& index) {
  if (args.x.numel() == 0) return;
  const std::int64_t partial = add_sums(context, args, index);
  if (!args.dx.defined()) return finish_sums(context, args, partial, {});
  add_dx(context, args, partial, args.dgamma, args.dbeta, index);
}

void max_pool_batch_norm_training(AccountContext& context, const PoolWindows& windows, const Tensor& x,
                                  Out index, const BatchNormTraining& args) {
  if (args.x.numel() == 0) return;
  const std::int64_t partial = partials_of(args.x, {x, args.x, args.y, index}),
                     found = partial + vector_of(args.x);
  context.launch("max_pool2d_statistics", {account::bytes_in_windows(windows, x)}, {found, args.x, index});
  apply(context, args, found);
}
void max_pool_batch_norm_backward(AccountContext& context, const PoolWindows&, const Tensor& index,
                                  const BatchNormBackward& args) {
  if (args.x.numel() == 0) return;
  add_dx(context, args, add_sums(context, args, {}, index), args.dgamma, args.dbeta, index);
}

void batch_norm_backward_sums(AccountContext& context, const BatchNormBackward& args, Out row) {
  if (args.x.dim(-1) == 0) return fill(context, row, 0);
  finish_sums(context, args, add_sums(context, args), row);
}
void batch_norm_backward_join(AccountContext& context, const BatchNormBackward& args, const Tensor& rows) {
  if (args.x.dim(-1) == 0 || !args.dx.defined()) return;
  const std::int64_t vector = vector_of(args.x);
  context.launch("batch_norm_join", {rows, vector}, {2 * vector});
  add_dx(context, args, 2 * vector, {}, {});
}

void batch_norm_coefficients(AccountContext& context, const NormTerm& norm, Out coefficients) {
  const RunningStats& running = norm.running;
  context.launch("batch_norm_coefficients", {norm.sums, running.mean, running.var, norm.gamma, norm.beta},
                 {norm.stats, coefficients, running.mean, running.var});
}

void batch_norm_pair_training(AccountContext& context, const NormTerm& a, const NormTerm& b, Out y,
                              Out mask) {
  if (y.numel() == 0) return;
  const std::int64_t partial = partials_of(y, {a.x, b.x, y});
  const std::int64_t of_b = find_sums(context, b.x, b.sums, partial),
                     of_a = find_sums(context, a.x, a.sums, partial);
  context.launch("batch_norm_pair",
                 {a.x, of_a, a.running.mean, a.running.var, a.gamma, a.beta,  //
                  b.x, of_b, b.running.mean, b.running.var, b.gamma, b.beta},
                 {y, mask, a.stats, a.running.mean, a.running.var, b.stats, b.running.mean, b.running.var});
}
void batch_norm_pair_backward(AccountContext& context, const NormTerm& a, const NormTerm& b, const Tensor& dy,
                              const Tensor& mask, const NormGradients& to_a, const NormGradients& to_b) {
  if (dy.numel() == 0) return;
  const std::int64_t partial = partials_of(dy, {a.x, b.x, dy, to_a.dx, to_b.dx}), vector = vector_of(dy);
  const bool given = to_a.sums.defined();
  if (!given)
    context.launch("batch_norm_pair_sums", {a.x, b.x, dy, mask, vector, vector}, {partial, partial});
  const AccountOperand sums_a = given ? AccountOperand(to_a.sums) : partial,
                       sums_b = given ? AccountOperand(to_b.sums) : partial;
  const Tensor x_a = to_a.dx.defined() ? a.x : Tensor(), x_b = to_b.dx.defined() ? b.x : Tensor();
  context.launch(
      "batch_norm_pair_backward",
      {dy, given ? Tensor() : mask,                                             //
       x_a, sums_a, a.stats, a.gamma, before(to_a.dgamma), before(to_a.dbeta),  //
       x_b, sums_b, b.stats, b.gamma, before(to_b.dgamma), before(to_b.dbeta)},
      {to_a.dx, to_a.dgamma.tensor, to_a.dbeta.tensor, to_b.dx, to_b.dgamma.tensor, to_b.dbeta.tensor});
}

// Layer norm -----------------------------------------------------------------------------------------------

void layer_norm_backward(AccountContext& context, const Tensor& x, const Tensor& gamma, const Tensor& stats,
                         const Tensor& dy, Out dx, const GradientTarget& dgamma,
                         const GradientTarget& dbeta) {
  const std::int64_t rows = stats.dim(0), size = x.numel() / std::max<std::int64_t>(rows, 1);
  const cuda::LayerNormPlan plan(size_of(x.dtype()), size, {x, dy, gamma, dx});
  const bool sums = dgamma.tensor.defined() || dbeta.tensor.defined();
  const std::int64_t partial = sums ? plan.splits(rows) * 2 * plan.size * wide(x) : 0;
  if (plan.vectors > 0) {
    context.map("layer_norm_backward", {x, dy, stats, gamma}, {dx, partial});
  } else {
    context.map("layer_norm_backward", {x, dy, stats, gamma}, {dx});
    context.map("layer_norm_sums", {x, dy, stats}, {partial});
  }
  if (sums)
    context.launch("layer_norm_finish", {partial, before(dgamma), before(dbeta)},
                   {dgamma.tensor, dbeta.tensor});
}

// Group norm -----------------------------------------------------------------------------------------------

namespace {

/// Bytes of the partial sums of one number for each channel and piece of every image.
std::int64_t group_partials(const Tensor& x, const Tensor& stats,
                            std::initializer_list<cuda::Address> operands) {
  const ChannelGroups z(x, stats);
  const int width = cuda::vector_width(size_of(x.dtype()), z.channels, operands);
  return z.images * cuda::group_norm_cut(z, width).splits * z.channels * wide(x);
}

}  // namespace

void group_norm_forward(AccountContext& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        double, Out stats, Out y) {
  if (x.numel() == 0) return;
  const std::int64_t partial = group_partials(x, stats, {x, y}), one = bytes(stats) / 2;
  context.launch("group_norm_sums", {x}, {partial});
  context.launch("group_norm_finish", {partial}, {one});
  context.launch("group_norm_sums", {x, one}, {partial});
  context.launch("group_norm_finish", {partial}, {one});
  context.launch("group_norm", {x, stats, gamma, beta}, {y});
}
void group_norm_backward(AccountContext& context, const Tensor& x, const Tensor& gamma, const Tensor& stats,
                         const Tensor& dy, Out dx, const GradientTarget& dgamma,
                         const GradientTarget& dbeta) {
  if (x.dim(-1) == 0) return;
  const std::int64_t partial = 2 * group_partials(x, stats, {x, dy, dx}), means = bytes(stats);
  if (x.numel() > 0) {
    context.launch("group_norm_sums", {x, dy, stats}, {partial});
    context.launch("group_norm_finish", {partial, gamma}, {means});
  }
  if (dgamma.tensor.defined() || dbeta.tensor.defined())
    context.launch("group_norm_parameters", {partial, before(dgamma), before(dbeta)},
                   {dgamma.tensor, dbeta.tensor});
  context.map("group_norm_backward", {x, dy, stats, gamma, means}, {dx});
}

}  // namespace athanor::kernels
