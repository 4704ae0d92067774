#include "kernels/norm.h"

#include <utility>

#include "kernels/account/detail/cost.h"
#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/cuda/grid_partition.h"
#include "kernels/norm_ops.h"

// Sums down columns go through partial sums of blocks, [splits, 2, C], which the next kernel adds up.

namespace athanor::kernels {

using account::bytes;
using account::launch;
using account::pieces;
using account::wide;

namespace {

/// How the kernels cut x, and the bytes of their partial sums.
struct Cut {
  std::int64_t rows, channels, sum, partial;

  explicit Cut(const Tensor& x) : channels(x.dim(-1)), sum(wide(x)) {
    rows = channels > 0 ? x.numel() / channels : 0;
    const std::int64_t width = account::per_vector(x.dtype());
    const bool vectors = x.dtype() != DType::f64 && channels % width == 0;
    partial =
        cuda::norm_cut(rows, channels, vectors ? static_cast<int>(width) : 1).splits * 2 * channels * sum;
  }
  std::int64_t vector() const { return channels * sum; }  ///< bytes of a number per channel
};

/// Written, and read where it is added to.
std::int64_t read_of(const GradientTarget& sink) {
  return sink.write == Write::accumulate ? bytes(sink.tensor) : 0;
}
std::int64_t written_of(const GradientTarget& sink) {
  return bytes(sink.tensor);
}

/// x once, and its rough mean.
void add_moments(AccountContext& context, const Tensor& x) {
  const Cut cut(x);
  launch(context, "batch_norm_statistics", bytes(x), cut.partial + cut.vector());
}
/// `kept`: what the kernel that only adds up reads besides, `result`: what it writes.
void finish_moments(AccountContext& context, const Tensor& x, std::int64_t kept, std::int64_t result) {
  add_moments(context, x);
  const Cut cut(x);
  launch(context, "batch_norm_finish", cut.partial + cut.vector() + kept, result);
}

/// Finds the sums of x, if they are not there; the bytes that the next kernel then reads.
std::int64_t find_sums(AccountContext& context, const Tensor& x, const Tensor& sums) {
  if (sums.defined()) return bytes(sums);
  add_moments(context, x);
  const Cut cut(x);
  return cut.partial + cut.vector();
}

std::int64_t running_bytes(const RunningStats& running) {
  return bytes(running.mean) + bytes(running.var);
}

/// Whether dL/d(pre) is computed from x, and so from all parameters. Else it is dy, or follows from y.
bool needs_pre(const BatchNormBackward& args) {
  const bool from_y = args.extra.defined() && gradient_from_output(args.activation);
  return args.activation != Activation::none && !from_y;
}

/// The pass that sums: x, dy and, with a residual, what the derivative needs.
void add_sums(AccountContext& context, const BatchNormBackward& args) {
  const Cut cut(args.x);
  const std::int64_t parameters =
      needs_pre(args) ? bytes(args.stats) + bytes(args.gamma) + bytes(args.beta) : cut.vector();
  if (cut.rows > 0)
    launch(context, "batch_norm_sums", bytes(args.x) + bytes(args.dy) + bytes(args.extra) + parameters,
           cut.partial + bytes(args.dresidual));
}
std::int64_t read_of_parameters(const BatchNormBackward& args) {
  return read_of(args.dgamma) + read_of(args.dbeta);
}
std::int64_t written_of_parameters(const BatchNormBackward& args) {
  return written_of(args.dgamma) + written_of(args.dbeta);
}
/// `found`: what the kernel that only adds up writes besides the parameters' gradients.
void finish_sums(AccountContext& context, const BatchNormBackward& args, std::int64_t found) {
  const Cut cut(args.x);
  const std::int64_t inverses = args.dgamma.tensor.defined() ? cut.vector() : 0;
  launch(context, "batch_norm_finish", cut.partial + inverses + read_of_parameters(args),
         found + written_of_parameters(args));
}

/// The pass that writes dx: x and dL/d(pre), which the first pass has kept where there is a residual.
/// `sums`, `results`: what it reads in order to find the coefficients, and writes besides.
void add_dx(AccountContext& context, const BatchNormBackward& args, std::int64_t sums, std::int64_t results) {
  if (!args.dx.defined() || args.x.numel() == 0) return;
  const bool kept = args.extra.defined();
  launch(context, "batch_norm_backward",
         bytes(args.x) + bytes(args.dy) + bytes(args.stats) + bytes(args.gamma) +
             (needs_pre(args) && !kept ? bytes(args.beta) : 0) + sums,
         bytes(args.dx) + results);
}

}  // namespace

template <>
void batch_norm_statistics(AccountContext& context, const Tensor& x, double, const Tensor& stats,
                           const RunningStats& running) {
  if (x.numel() == 0) return;
  finish_moments(context, x, running_bytes(running), bytes(stats) + running_bytes(running));
}
template <> void batch_norm_moments(AccountContext& context, const Tensor& x, const Tensor& row) {
  if (x.numel() == 0) return fill(context, row, 0);
  finish_moments(context, x, 0, bytes(row));
}
template <>
void batch_norm_join(AccountContext& context, const Tensor& rows, double, const Tensor& stats,
                     const RunningStats& running) {
  if (stats.dim(1) == 0) return;
  launch(context, "batch_norm_join", bytes(rows) + running_bytes(running),
         bytes(stats) + running_bytes(running));
}
template <>
void batch_norm_fixed(AccountContext& context, const RunningStats& running, double, const Tensor& stats) {
  launch(context, "batch_norm_fixed", running_bytes(running), bytes(stats));
}

template <>
std::int64_t batch_norm_mask_bytes(const AccountContext&, Activation activation, const Tensor& x) {
  return mask_of_relu(activation, x);
}

template <>
void batch_norm_forward(AccountContext& context, Activation, const Tensor& x, const Tensor& gamma,
                        const Tensor& beta, const Tensor& stats, const Tensor& residual, const Tensor& y,
                        const Tensor& mask) {
  if (y.numel() == 0) return;
  launch(context, "batch_norm", bytes(x) + bytes(residual) + bytes(stats) + bytes(gamma) + bytes(beta),
         bytes(y) + bytes(mask));
}

template <> void batch_norm_training(AccountContext& context, const BatchNormTraining& args) {
  if (args.x.numel() == 0) return;
  const std::int64_t found = find_sums(context, args.x, args.sums), running = running_bytes(args.running);
  launch(context, "batch_norm",
         bytes(args.x) + bytes(args.residual) + found + running + bytes(args.gamma) + bytes(args.beta),
         bytes(args.y) + bytes(args.mask) + bytes(args.stats) + running);
}

template <> void batch_norm_backward(AccountContext& context, const BatchNormBackward& args) {
  if (args.x.dim(-1) == 0) return;
  add_sums(context, args);
  if (!args.dx.defined() || args.x.numel() == 0) return finish_sums(context, args, 0);
  add_dx(context, args, Cut(args.x).partial + read_of_parameters(args), written_of_parameters(args));
}
template <>
void batch_norm_backward_sums(AccountContext& context, const BatchNormBackward& args, const Tensor& row) {
  if (args.x.dim(-1) == 0) return fill(context, row, 0);
  add_sums(context, args);
  finish_sums(context, args, bytes(row));
}
template <>
void batch_norm_backward_join(AccountContext& context, const BatchNormBackward& args, const Tensor& rows) {
  if (args.x.dim(-1) == 0 || !args.dx.defined()) return;
  const std::int64_t vector = Cut(args.x).vector();
  launch(context, "batch_norm_join", bytes(rows) + vector, 2 * vector);
  add_dx(context, args, 2 * vector, 0);
}

template <>
void batch_norm_pair_training(AccountContext& context, const NormTerm& a, const NormTerm& b, const Tensor& y,
                              const Tensor& mask) {
  if (y.numel() == 0) return;
  std::int64_t read = 0, written = bytes(y) + bytes(mask);
  for (const NormTerm* norm : {&b, &a}) {
    const std::int64_t found = find_sums(context, norm->x, norm->sums),
                       running = running_bytes(norm->running);
    read += bytes(norm->x) + found + running + bytes(norm->gamma) + bytes(norm->beta);
    written += bytes(norm->stats) + running;
  }
  launch(context, "batch_norm_pair", read, written);
}

template <>
void batch_norm_pair_backward(AccountContext& context, const NormTerm& a, const NormTerm& b, const Tensor& dy,
                              const Tensor& mask, const NormGradients& to_a, const NormGradients& to_b) {
  if (dy.numel() == 0) return;
  const Cut cut(dy);
  const std::int64_t shared = bytes(dy) + bytes(mask);
  launch(context, "batch_norm_pair_sums", bytes(a.x) + bytes(b.x) + shared + 2 * cut.vector(),
         2 * cut.partial);
  std::int64_t read = shared, written = 0;
  for (const auto& [norm, to] : {std::pair(&a, &to_a), std::pair(&b, &to_b)}) {
    if (to->dx.defined()) read += bytes(norm->x);
    read += cut.partial + bytes(norm->stats) + bytes(norm->gamma) + read_of(to->dgamma) + read_of(to->dbeta);
    written += bytes(to->dx) + written_of(to->dgamma) + written_of(to->dbeta);
  }
  launch(context, "batch_norm_pair_backward", read, written);
}

// Layer norm -----------------------------------------------------------------------------------------------

namespace {

/// Whether the kernels hold a row in registers: a block's 256 threads have 4 vectors of 16 bytes
/// each.
bool in_registers(const Tensor& x, std::int64_t size) {
  const std::int64_t vectors = size / account::per_vector(x.dtype());
  const std::int64_t most = x.dtype() == DType::f32 ? 4 : 3;
  return x.dtype() != DType::f64 && size % account::per_vector(x.dtype()) == 0 && vectors <= most * 256;
}

/// The second sum of a backward pass.
void add_finish(AccountContext& context, std::int64_t partial, const GradientTarget& dgamma,
                const GradientTarget& dbeta) {
  launch(context, "layer_norm_finish", partial + read_of(dgamma) + read_of(dbeta),
         written_of(dgamma) + written_of(dbeta));
}

}  // namespace

template <>
void layer_norm_forward(AccountContext& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        double, const Tensor& stats, const Tensor& y) {
  if (stats.dim(0) == 0) return;
  launch(context, "layer_norm", bytes(x) + bytes(gamma) + bytes(beta), bytes(y) + bytes(stats));
}

template <>
void layer_norm_backward(AccountContext& context, const Tensor& x, const Tensor& gamma, const Tensor& stats,
                         const Tensor& dy, const Tensor& dx, const GradientTarget& dgamma,
                         const GradientTarget& dbeta) {
  const std::int64_t rows = stats.dim(0), size = rows > 0 ? x.numel() / rows : 0;
  if (rows == 0) return;
  const bool sums = dgamma.tensor.defined() || dbeta.tensor.defined();
  const std::int64_t read = bytes(x) + bytes(dy) + bytes(stats);
  if (in_registers(x, size)) {
    const std::int64_t vectors = size / account::per_vector(x.dtype()), together = vectors <= 4 * 32 ? 8 : 1;
    const std::int64_t partial =
        sums ? std::min<std::int64_t>(256, pieces(rows, together)) * 2 * size * wide(x) : 0;
    launch(context, "layer_norm_backward", read + bytes(gamma), bytes(dx) + partial);
    if (sums) add_finish(context, partial, dgamma, dbeta);
    return;
  }
  if (dx.defined()) launch(context, "layer_norm_backward", read + bytes(gamma), bytes(dx));
  if (!sums) return;
  const std::int64_t partial = cuda::ColumnCut(rows, size, 1).splits * 2 * size * wide(x);
  launch(context, "layer_norm_sums", read, partial);
  add_finish(context, partial, dgamma, dbeta);
}

// Group norm -----------------------------------------------------------------------------------------------

namespace {

/// Bytes of the partial sums of one number for each channel and piece of every image.
std::int64_t group_partials(const Tensor& x, std::int64_t images) {
  const std::int64_t channels = x.dim(-1), pixels = images > 0 ? x.numel() / images / channels : 0,
                     width = account::per_vector(x.dtype());
  const bool vectors = x.dtype() != DType::f64 && channels % width == 0;
  const cuda::ColumnCut cut(pixels, channels, vectors ? static_cast<int>(width) : 1,
                            std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(images, 1)));
  return images * cut.splits * channels * wide(x);
}

}  // namespace

template <>
void group_norm_forward(AccountContext& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        double, const Tensor& stats, const Tensor& y) {
  if (x.numel() == 0) return;
  const std::int64_t partial = group_partials(x, stats.dim(0)), one = bytes(stats) / 2;
  launch(context, "group_norm_sums", bytes(x), partial);
  launch(context, "group_norm_finish", partial, one);
  launch(context, "group_norm_sums", bytes(x) + one, partial);
  launch(context, "group_norm_finish", partial, one);
  launch(context, "group_norm", bytes(x) + bytes(stats) + bytes(gamma) + bytes(beta), bytes(y));
}

template <>
void group_norm_backward(AccountContext& context, const Tensor& x, const Tensor& gamma, const Tensor& stats,
                         const Tensor& dy, const Tensor& dx, const GradientTarget& dgamma,
                         const GradientTarget& dbeta) {
  if (x.numel() == 0) return;
  const std::int64_t partial = 2 * group_partials(x, stats.dim(0)),
                     read = bytes(x) + bytes(dy) + bytes(stats);
  launch(context, "group_norm_sums", read, partial);
  launch(context, "group_norm_finish", partial + bytes(gamma), bytes(stats));
  if (dgamma.tensor.defined() || dbeta.tensor.defined())
    launch(context, "group_norm_parameters", partial + read_of(dgamma) + read_of(dbeta),
           written_of(dgamma) + written_of(dbeta));
  if (dx.defined()) launch(context, "group_norm_backward", read + bytes(gamma) + bytes(stats), bytes(dx));
}

}  // namespace athanor::kernels
