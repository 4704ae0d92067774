#include "kernels/conv.h"

#include <algorithm>
#include <vector>

#include "kernels/account/detail/product.h"
#include "kernels/account/flops.h"
#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/cuda/conv_depthwise.h"
#include "kernels/detail/conv_size.h"
#include "kernels/matmul.h"

namespace athanor::kernels {

// Of other files: a specialisation is declared before it is called.
template <> void copy(AccountContext& context, const Tensor& x, const Tensor& y);
template <> void add_into(AccountContext& context, const Tensor& x, const Tensor& y);
template <>
void matmul(AccountContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b, const Tensor& bias,
            Activation activation, const Tensor& y, Write write);
template <> void column_sums(AccountContext& context, const Tensor& x, const Tensor& sums, Write write);

using account::bytes;
using account::launch;

namespace {

Tensor rows(const Tensor& x, std::int64_t columns) {
  return x.detach().view_as_strided({x.numel() / columns, columns}, {columns, 1}, 0);
}
Tensor columns(const Tensor& x, std::int64_t columns) {
  return x.detach().view_as_strided({columns, x.numel() / columns}, {1, columns}, 0);
}

/// The inputs along one axis that some tap falls on: fewer than all where a stride skips some.
std::int64_t touched(std::int64_t inputs, std::int64_t outputs, std::int64_t taps, std::int64_t stride,
                     std::int64_t padding, std::int64_t dilation) {
  std::vector<bool> seen(static_cast<std::size_t>(inputs));
  for (std::int64_t out = 0; out < outputs; ++out) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const std::int64_t at = out * stride - padding + tap * dilation;
      if (at >= 0 && at < inputs) seen[static_cast<std::size_t>(at)] = true;
    }
  }
  return std::count(seen.begin(), seen.end(), true);
}
/// The bytes of x that a convolution reads.
std::int64_t bytes_read(const ConvSize& z, const Tensor& x) {
  return z.n * touched(z.h, z.p, z.r, z.stride_h, z.padding_h, z.dilation_h) *
         touched(z.w, z.q, z.s, z.stride_w, z.padding_w, z.dilation_w) * z.c * account::size(x.dtype());
}

void add_vendor(AccountContext& context, const char* kernel, const ConvSize& z, DType dtype,
                std::int64_t read, std::int64_t written) {
  context.add({.kernel = kernel,
               .bytes_read = read,
               .bytes_written = written,
               .flops = product_flops(z.work(), 1),
               .dtype = dtype,
               .assumed = true});
}

bool is_ours(const AccountContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& y) {
  return !context.vendor || params.impl == ConvImpl::reference || x.dtype() == DType::f64 || x.numel() == 0 ||
         y.numel() == 0;
}

/// Depthwise filters are first transposed, so that channels lie side by side.
void transpose_filters(AccountContext& context, const Tensor& w) {
  launch(context, "depthwise", bytes(w), bytes(w));
}

}  // namespace

/// cuDNN's plan has bias and ReLU in it; other activations are a kernel of ours.
template <>
void conv2d_forward(AccountContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                    const Tensor& bias, const Tensor& y) {
  if (y.numel() == 0) return;
  const ConvSize z(x.shape(), w.shape(), y.shape(), params);
  if (!is_ours(context, params, x, y)) {
    add_vendor(context, "conv2d_forward", z, x.dtype(), bytes_read(z, x) + bytes(w) + bytes(bias), bytes(y));
    return activate(context, params.activation == Activation::relu ? Activation::none : params.activation, y);
  }
  if (z.is_pointwise())
    return matmul(context, MatmulImpl::reference, rows(x, z.c), columns(w, z.c), bias, params.activation,
                  rows(y, z.k), Write::overwrite);
  const std::int64_t read = bytes_read(z, x) + bytes(w);
  if (cuda::is_depthwise(z)) {
    transpose_filters(context, w);
    return context.add({.kernel = "conv2d_forward",
                        .bytes_read = read + bytes(bias),
                        .bytes_written = bytes(y),
                        .flops = product_flops(z.work(), 1),
                        .dtype = x.dtype()});
  }
  account::add_product(context, {.kernel = "conv2d_forward",
                                 .read = read,
                                 .once_read = bytes(bias),
                                 .written = bytes(y),
                                 .m = z.n * z.p * z.q,
                                 .n = z.group_k(),
                                 .k = z.r * z.s * z.group_c(),
                                 .batches = z.groups,
                                 .results = y.numel(),
                                 .splits = true,
                                 .dtype = x.dtype()});
}

/// cuDNN has such plans for all that conv2d_forward_sums() takes. Ours writes a row of sums for each row of
/// tiles, 128 or 64 high, which a second kernel adds up.
template <>
bool conv2d_forward_sums(AccountContext& context, const Conv2dParams& params, const Tensor& x,
                         const Tensor& w, const Tensor& y, const Tensor& sums) {
  if (!may_sum_channels(params, x, y)) return false;
  const ConvSize z(x.shape(), w.shape(), y.shape(), params);
  const std::int64_t read = bytes_read(z, x) + bytes(w);
  if (!is_ours(context, params, x, y)) {
    add_vendor(context, "conv2d_forward", z, x.dtype(), read, bytes(y) + bytes(sums));
    return true;
  }
  const std::int64_t rows = z.n * z.p * z.q, depth = z.r * z.s * z.c;
  if (!cuda::product_sums_columns(rows, z.k, depth)) return false;
  account::Product product{.kernel = "conv2d_forward",
                           .read = read,
                           .written = bytes(y),
                           .m = rows,
                           .n = z.k,
                           .k = depth,
                           .dtype = x.dtype()};
  const std::int64_t partial = account::pieces(rows, account::tile_of(product).rows) * bytes(sums);
  product.written += partial;
  account::add_product(context, product);
  launch(context, "conv2d_sums", partial, bytes(sums));
  return true;
}

namespace {

/// The taps that see pixels of a residue along an axis.
std::int64_t taps_of(std::int64_t residue, std::int64_t taps, std::int64_t stride, std::int64_t padding,
                     std::int64_t dilation) {
  std::int64_t count = 0;
  for (std::int64_t tap = 0; tap < taps; ++tap)
    count += (residue + padding - tap * dilation) % stride == 0 ? 1 : 0;
  return count;
}

/// dx by our products. With a stride, pixels that the same taps see are a launch.
void add_pixels(AccountContext& context, const ConvSize& z, const Tensor& dy, const Tensor& w,
                const Tensor& dx, bool adds) {
  for (std::int64_t a = 0; a < std::min(z.stride_h, z.h); ++a) {
    for (std::int64_t b = 0; b < std::min(z.stride_w, z.w); ++b) {
      const std::int64_t taps = taps_of(a, z.r, z.stride_h, z.padding_h, z.dilation_h) *
                                taps_of(b, z.s, z.stride_w, z.padding_w, z.dilation_w),
                         pixels = z.n * account::pieces(z.h - a, z.stride_h) *
                                  account::pieces(z.w - b, z.stride_w),
                         written = pixels * z.c * account::size(dx.dtype());
      account::add_product(context, {.kernel = "conv2d_backward_data",
                                     .read = taps > 0 ? bytes(dy) + bytes(w) / (z.r * z.s) * taps : 0,
                                     .once_read = adds ? written : 0,
                                     .written = written,
                                     .m = pixels,
                                     .n = z.group_c(),
                                     .k = taps * z.group_k(),
                                     .batches = z.groups,
                                     .results = dx.numel(),
                                     .splits = z.stride_h == 1 && z.stride_w == 1,
                                     .dtype = dy.dtype()});
    }
  }
}

}  // namespace

/// cuDNN's plans add to dx, as beta = 1.
template <>
void conv2d_backward_data(AccountContext& context, const Conv2dParams& params, const Tensor& dy,
                          const Tensor& w, const Tensor& dx, Write write_dx) {
  if (dx.numel() == 0) return;
  const ConvSize z(dx.shape(), w.shape(), dy.shape(), params);
  const bool adds = write_dx == Write::accumulate;
  const std::int64_t read = bytes(dy) + bytes(w), before = adds ? bytes(dx) : 0;
  if (!is_ours(context, params, dx, dy))
    return add_vendor(context, "conv2d_backward_data", z, dy.dtype(), read + before, bytes(dx));
  if (z.is_pointwise())
    return matmul(context, MatmulImpl::reference, rows(dy, z.k), rows(w, z.c), {}, Activation::none,
                  rows(dx, z.c), write_dx);
  if (cuda::is_depthwise(z)) {
    transpose_filters(context, w);
    context.add({.kernel = "conv2d_backward_data",
                 .bytes_read = read,
                 .bytes_written = bytes(dx),
                 .flops = product_flops(z.work(), 1),
                 .dtype = dy.dtype()});
    if (adds) add_into(context, empty_like(dx), dx);
    return;
  }
  add_pixels(context, z, dy, w, dx, adds);
}

namespace {

/// dw by our kernels: partial sums of pieces of the pixels, then their sums.
void add_weights(AccountContext& context, const ConvSize& z, const Tensor& x, const Tensor& dy,
                 const Tensor& dw, Write write) {
  const std::int64_t read = bytes_read(z, x) + bytes(dy), before = write == Write::accumulate ? bytes(dw) : 0;
  if (z.is_pointwise())
    return matmul(context, MatmulImpl::reference, columns(dy, z.k), rows(x, z.c), {}, Activation::none,
                  rows(dw, z.c), write);
  if (!cuda::is_depthwise(z))
    return account::add_product(context, {.kernel = "conv2d_backward_weights",
                                          .read = read,
                                          .once_read = before,
                                          .written = bytes(dw),
                                          .m = z.r * z.s * z.group_c(),
                                          .n = z.group_k(),
                                          .k = z.n * z.p * z.q,
                                          .batches = z.groups,
                                          .results = dw.numel(),
                                          .splits = true,
                                          .dtype = x.dtype()});
  const std::int64_t width = account::per_vector(x.dtype());
  const bool wide = z.group_k() == 1 && z.c % width == 0;
  const cuda::ColumnCut cut(z.n * z.p * z.q, z.k, wide ? static_cast<int>(width) : 1,
                            cuda::kMultiprocessors * 4, 16);
  const std::int64_t partial = cut.splits * dw.numel() * account::wide(x);
  context.add({.kernel = "conv2d_backward_weights",
               .bytes_read = read,
               .bytes_written = partial,
               .flops = product_flops(z.work(), 1),
               .dtype = x.dtype()});
  launch(context, "conv2d_backward_weights", partial + before, bytes(dw));
}

}  // namespace

/// cuDNN writes dw in x's dtype and does not add: otherwise a small kernel follows.
template <>
void conv2d_backward_weights(AccountContext& context, const Conv2dParams& params, const Tensor& x,
                             const Tensor& dy, const Tensor& dw, Write write_dw, const Tensor& dbias,
                             Write write_dbias) {
  if (dw.defined() && dw.numel() > 0) {
    const ConvSize z(x.shape(), dw.shape(), dy.shape(), params);
    if (is_ours(context, params, x, dy)) {
      add_weights(context, z, x, dy, dw, write_dw);
    } else {
      const bool direct = write_dw == Write::overwrite && dw.dtype() == x.dtype();
      const Tensor fresh = direct ? dw : Tensor::empty(dw.shape(), x.options());
      add_vendor(context, "conv2d_backward_weights", z, x.dtype(), bytes_read(z, x) + bytes(dy),
                 bytes(fresh));
      if (!direct) write_dw == Write::accumulate ? add_into(context, fresh, dw) : copy(context, fresh, dw);
    }
  }
  if (dbias.defined()) column_sums(context, dy, dbias, write_dbias);
}

}  // namespace athanor::kernels
