#include "autograd/attention.h"
#include "autograd/conv_transpose.h"
#include "autograd/interpolate.h"
#include "autograd/loss.h"
#include "autograd/norm.h"
#include "autograd/pool.h"
#include "autograd/scalar_ops.h"
#include "autograd/similarity.h"
#include "autograd/topk.h"
#include "bench/support/tape_rows.h"

// Ops as a program calls them, with the tape around them: what has no benchmark of its kernels alone.

namespace athanor::bench {
namespace {

using Inputs = std::span<const Tensor>;

void add_scalar_ops(DType dtype) {
  const std::vector<Shape> x = {{1 << 20}};
  add_tape_rows("leaky_relu", dtype, x, [](Inputs in) { return leaky_relu(in[0]); });
  add_tape_rows("elu", dtype, x, [](Inputs in) { return elu(in[0]); });
  add_tape_rows("softplus", dtype, x, [](Inputs in) { return softplus(in[0]); });
  add_tape_rows("clamp", dtype, x, [](Inputs in) { return clamp(in[0], -0.5, 0.5); });
  add_tape_rows("pow_3", dtype, x, [](Inputs in) { return pow(in[0], 3); });
}

void add_image_ops(DType dtype) {
  const std::vector<Shape> x = {{16, 32, 32, 64}};
  for (const auto& [mode, name] : {std::pair(Interpolation::nearest, "upsample_nearest_2x"),
                                   std::pair(Interpolation::bilinear, "upsample_bilinear_2x")}) {
    add_tape_rows(name, dtype, x,
                  [mode = mode](Inputs in) {
                    return interpolate(in[0], {.mode = mode, .scale = {2, 2}});
                  },
                  {.backward_reads_inputs = false});
  }
  add_tape_rows("pixel_shuffle_2", dtype, x, [](Inputs in) { return pixel_shuffle(in[0], 2); },
                {.backward_reads_inputs = false});
  add_tape_rows("max_pool2d_with_indices", dtype, x,
                [](Inputs in) { return max_pool2d_with_indices(in[0]).y; }, {.backward_reads_inputs = false});
  add_tape_rows(
      "group_norm_8", dtype, x, [](Inputs in) { return group_norm(in[0], 8); }, {}, 64);
  add_tape_rows(
      "instance_norm", dtype, x, [](Inputs in) { return instance_norm(in[0]); }, {}, 64);
}

/// x [N, S, S, C], w [C, R, R, K]: every number of x meets every one of a filter, in each of three passes.
void add_conv_transpose(DType dtype, const Shape& x, const Shape& w, std::int64_t stride,
                        std::int64_t padding) {
  const ConvTranspose2dParams params{.stride = {stride, stride}, .padding = {padding, padding}};
  const double flops = 2.0 * static_cast<double>(x.numel() * w[1] * w[2] * w[3]);
  add_tape_rows(
      "conv_transpose2d", dtype, {x, w},
      [params](Inputs in) { return conv_transpose2d(in[0], in[1], {}, params); }, {flops, 2 * flops}, 1024);
}

/// q, k and v [N, heads, L, D]: two products forward, four backward.
void add_attention(DType dtype, const Shape& shape) {
  const double flops = 4.0 * static_cast<double>(shape.numel() * shape[2]);
  add_tape_rows(
      "attention", dtype, {shape, shape, shape},
      [](Inputs in) { return scaled_dot_product_attention(in[0], in[1], in[2]); }, {flops, 2 * flops}, 64);
}

void add_losses(DType dtype) {
  const Shape many = {1 << 20}, rows = {4096, 256}, views = {256, 128};
  add_tape_rows(
      "bce_with_logits", dtype, {many}, [](Inputs in) { return bce_with_logits(in[0], 1); }, {}, 64);
  add_tape_rows(
      "smooth_l1", dtype, {many, many}, [](Inputs in) { return smooth_l1_loss(in[0], in[1]); }, {}, 64);
  add_tape_rows(
      "cosine_similarity", dtype, {rows, rows}, [](Inputs in) { return cosine_similarity(in[0], in[1]); }, {},
      64);
  add_tape_rows(
      "triplet_margin", dtype, {rows, rows, rows},
      [](Inputs in) { return triplet_margin_loss(in[0], in[1], in[2]); }, {}, 64);
  add_tape_rows(
      "nt_xent", dtype, {views, views}, [](Inputs in) { return nt_xent_loss(in[0], in[1]); }, {}, 64);
}

}  // namespace

void register_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    add_scalar_ops(dtype);
    add_image_ops(dtype);
    add_tape_rows("topk_5", dtype, {{1024, 1000}}, [](Inputs in) { return topk(in[0], 5).values; });
    add_conv_transpose(dtype, {64, 4, 4, 256}, {256, 3, 3, 128}, 2, 1);
    add_conv_transpose(dtype, {64, 7, 7, 128}, {128, 4, 4, 64}, 2, 1);
    add_attention(dtype, {8, 3, 197, 64});
    add_losses(dtype);
  }
}

}  // namespace athanor::bench
