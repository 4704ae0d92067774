#include "kernels/account/context.h"
#include "kernels/account/detail/cost.h"
#include "kernels/account/detail/windows.h"
#include "kernels/augment.h"
#include "kernels/copy.h"
#include "kernels/copy_walk.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/detail/strided_walk.h"
#include "kernels/detail/wide_sums.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/index.h"
#include "kernels/interpolate.h"
#include "kernels/loss.h"
#include "kernels/loss_ops.h"
#include "kernels/mix.h"
#include "kernels/pool.h"
#include "kernels/resize.h"
#include "kernels/scalar_ops.h"

// Kernels that compute their result in one launch.

namespace athanor::kernels {

using account::bytes;

// Elements -------------------------------------------------------------------------------------------------

#define ATH_SPECIALISE(Name, name)                                                                   \
  template <>                                                                                        \
  ATH_COST(unary_forward<Name>, (const Tensor& x, Out y), #name, (x), (y))                           \
  template <>                                                                                        \
  ATH_COST(unary_backward<Name>, (const Tensor& saved, const Tensor& dy, Out dx), #name "_backward", \
           (saved, dy), (dx))
ATH_UNARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Name, name) \
  template <> ATH_COST(binary_forward<Name>, (const Tensor& a, const Tensor& b, Out y), #name, (a, b), (y))
ATH_BINARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Name, name)                                                                         \
  template <>                                                                                              \
  ATH_COST(binary_backward<Name>,                                                                          \
           (int, const Tensor& a, const Tensor& b, const Tensor& dy, const Tensor& dx), #name "_backward", \
           (a, b, dy), (dx))
ATH_BINARY_GRADIENTS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Op, name)                                                                       \
  template <>                                                                                          \
  ATH_COST(scalar_forward, (const Op&, const Tensor& x, Out y), #name, (x), (y))                       \
  template <>                                                                                          \
  ATH_COST(scalar_backward, (const Op&, const Tensor& x, const Tensor& dy, Out dx), #name "_backward", \
           (x, dy), (dx))
ATH_SCALAR_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

void check_divisors(AccountContext&, const char*, const Tensor&) {}
/// Seed and step, from the StepState, make the key.
ATH_COST(dropout, (float, const RandomOp&, const Tensor& x, Out y), "dropout", (x, 16), (y))

// Copies and values without an input -----------------------------------------------------------------------

/// What 16-byte vectors leave over of a dense tensor is a launch of its own.
void copy(AccountContext& context, const Tensor& x, Out y) {
  if (x.dtype() != y.dtype()) return context.map("cast", {x}, {y});
  const auto walk = walk_by_output<StridedWalk<2>>(broadcast_strides(x, y.shape()), y);
  const bool dense = walk.rank == 1 && walk.stride[0][0] == 1 && walk.stride[1][0] == 1;
  const std::int64_t element = account::size(y.dtype()),
                     body = cuda::vector_body(dense, y.numel(), 16 / element) * element,
                     rest = bytes(y) - body;
  if (rest == 0) return context.map("copy", {x}, {y});
  context.launch("copy", {rest}, {rest});
  context.launch("copy", {body}, {body});
}

// Indices: what one selects is not known. As many different elements as it can -----------------------------

void check_indices(AccountContext&, const char*, const Tensor&, std::int64_t) {}

ATH_COST(index_select, (const Tensor& x, int, const Tensor& index, Out y), "index_select",
         (std::min(bytes(x), bytes(y)), index), (y))
ATH_COST(gather, (const Tensor& x, int, const Tensor& index, Out y), "gather",
         (std::min(bytes(x), bytes(y)), index), (y))

namespace {

void add_lines(AccountContext& context, const char* kernel, const Tensor& dy, const Tensor& index,
               const Tensor& dx) {
  if (dy.numel() == 0) return;
  dispatch_floating(dx.dtype(), kernel, [&]<class T>() {
    with_wide_sums<T>(context, dx, [&]<class A>(const A*) {
      const std::int64_t added = std::min(dx.numel(), dy.numel()) * static_cast<std::int64_t>(sizeof(A));
      context.launch(kernel, {dy, index, added}, {added});
    });
  });
}

}  // namespace

void index_add(AccountContext& context, const Tensor& dy, int, const Tensor& index, Out dx) {
  add_lines(context, "index_add", dy, index, dx);
}
void scatter_add(AccountContext& context, const Tensor& dy, int, const Tensor& index, Out dx) {
  add_lines(context, "scatter_add", dy, index, dx);
}

// Losses: a row of logits is read once, or again from the cache --------------------------------------------

void check_target(AccountContext&, const char*, const Tensor&, std::int64_t) {}

#define ATH_SPECIALISE(Op)                                                                               \
  template <>                                                                                            \
  ATH_COST(pair_loss_backward<Op>,                                                                       \
           (const Op&, const Tensor& a, const Tensor& b, const Tensor& weight, double, const Tensor& dy, \
            const Tensor& da),                                                                           \
           "pair_loss_backward", (a, b, weight, dy), (da))
ATH_PAIR_LOSSES(ATH_SPECIALISE)
#undef ATH_SPECIALISE
#define ATH_SPECIALISE(Op)                                                                       \
  template <>                                                                                    \
  ATH_COST(pair_loss_backward<OfTarget<Op>>,                                                     \
           (const OfTarget<Op>&, const Tensor& a, const Tensor& b, const Tensor& weight, double, \
            const Tensor& dy, const Tensor& da),                                                 \
           "pair_loss_backward", (a, b, weight, dy), (da))
ATH_TARGET_LOSSES(ATH_SPECIALISE)
#undef ATH_SPECIALISE
#define ATH_SPECIALISE(Op)                                                                       \
  template <>                                                                                    \
  ATH_COST(pair_loss<Op>,                                                                        \
           (const Op&, const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& y), \
           "pair_loss", (a, b, weight), (y))
ATH_PAIR_LOSSES(ATH_SPECIALISE)
#undef ATH_SPECIALISE

// Images: what is cropped away counts as read, since it depends on what is drawn ---------------------------

ATH_COST(max_pool_forward, (const PoolWindows& windows, const Tensor& x, Out y, Out index), "max_pool2d",
         (account::bytes_in_windows(windows, x)), (y, index))
ATH_COST(avg_pool_forward, (const PoolWindows& windows, const Tensor& x, Out y), "avg_pool2d",
         (account::bytes_in_windows(windows, x)), (y))
/// Of an image that shrinks, the nearest pixels alone.
void interpolate_forward(AccountContext& context, Interpolation mode, const InterpolateAxes&, const Tensor& x,
                         Out y) {
  const bool nearest = mode == Interpolation::nearest;
  context.map("interpolate", {nearest ? std::min(bytes(x), bytes(y)) : bytes(x)}, {y});
}

ATH_COST(augment,
         (const Augment&, const AugmentKey&, const Tensor&, const Tensor& rows, const Tensor& samples,
          const Tensor& table, Out y),
         "augment", (y.numel(), rows, samples, table), (y))
/// The windows of the images say which rows are read, so nothing reads the heights.
void resize_images(AccountContext& context, const Tensor& images, const Tensor& pixels, Out y) {
  const std::int64_t heights = y.dim(0) * static_cast<std::int64_t>(sizeof(StagedImage::height));
  context.map("resize_images", {bytes(images) - heights, pixels}, {y});
}
/// Pairs of images, or a rectangle of each; the middle one of an odd number stays.
void mix(AccountContext& context, const Mixing& how, Out images, Out labels, const Tensor& partner_labels) {
  if (images.numel() == 0) return;
  const std::int64_t count = images.shape()[0], image = bytes(images) / count,
                     pixel = image / (images.shape()[1] * images.shape()[2]),
                     changed = count / 2 * 2 * (how.cuts ? how.height * how.width * pixel : image);
  context.launch("mix", {changed, labels}, {changed, partner_labels});
}

}  // namespace athanor::kernels
