// Explained in docs/tensors.md.
#include "autograd/shape.h"

#include "autograd/detail/dense.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "kernels/copy.h"
#include "kernels/index.h"
#include "kernels/on_device.h"

namespace athanor {
namespace {

void check_defined(const char* op, const Tensor& x) {
  ATH_CHECK(x.defined(), "{}: tensor must be defined, but is not", op);
}

// A view outside the graph, which the caller records.
Tensor view(const Tensor& x, const Shape& shape, const Strides& strides, std::int64_t offset = 0) {
  return x.detach().view_as_strided(shape, strides, offset);
}

void copy_into(const Tensor& x, const Tensor& y) {
  on_device(y.device(), [&](auto& context) { kernels::copy(context, x, y); });
}
Tensor copy_of(const Tensor& x, DType dtype) {
  const Tensor y = Tensor::empty(x.shape(), {dtype, x.device()});
  copy_into(x, y);
  return y;
}

template <class D> D without(const D& dims, int axis) {
  D result;
  for (int i = 0; i < dims.rank(); ++i) {
    if (i != axis) result.push_back(dims[i]);
  }
  return result;
}
template <class D> D with(const D& dims, int axis, std::int64_t value) {
  D result;
  for (int i = 0; i <= dims.rank(); ++i) {
    if (i == axis) result.push_back(value);
    if (i < dims.rank()) result.push_back(dims[i]);
  }
  return result;
}

// Elements [start, start + length) of a tensor's axis, outside the graph.
Tensor slice(const Tensor& x, int axis, std::int64_t start, std::int64_t length) {
  Shape shape = x.shape();
  shape[axis] = length;
  return view(x, shape, x.strides(), start * x.strides()[axis]);
}
Tensor slice_at(const Tensor& x, int axis, std::int64_t index) {
  return view(x, without(x.shape(), axis), without(x.strides(), axis), index * x.strides()[axis]);
}
Tensor with_axis(const Tensor& x, int axis) {
  return view(x, with(x.shape(), axis, 1), with(x.strides(), axis, 1));
}
Tensor permuted(const Tensor& x, const std::array<int, kMaxRank>& order) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  for (int i = 0; i < x.rank(); ++i) {
    const int from = order[static_cast<std::size_t>(i)];
    shape[i] = x.shape()[from], strides[i] = x.strides()[from];
  }
  return view(x, shape, strides);
}

void add_into(const Tensor& x, const Tensor& y) {
  on_device(y.device(), [&](auto& context) { kernels::add_into(context, x, y); });
}

Shape resolved(const Shape& wanted, const Tensor& x) {
  Shape shape = wanted;
  int unknown = -1;
  std::int64_t known = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    ATH_CHECK(shape[i] >= -1 && (shape[i] >= 0 || unknown < 0),
              "reshape: sizes must be >= 0, except one -1, but got {}", wanted);
    if (shape[i] == -1) {
      unknown = i;
    } else {
      known *= shape[i];
    }
  }
  if (unknown >= 0) {
    ATH_CHECK(known > 0 && x.numel() % known == 0, "reshape: {} must hold the {} elements of {}", wanted,
              x.numel(), x.shape());
    shape[unknown] = x.numel() / known;
  }
  ATH_CHECK(shape.numel() == x.numel(), "reshape: {} must hold the {} elements of {}", wanted, x.numel(),
            x.shape());
  return shape;
}

}  // namespace

// Views ----------------------------------------------------------------------------------------------------

Tensor reshape(const Tensor& x, const Shape& wanted) {
  check_defined("reshape", x);
  const Shape shape = resolved(wanted, x);
  if (shape == x.shape()) return grad_enabled() || !x.requires_grad() ? x : x.detach();
  const Tensor from = contiguous(x);
  const Tensor y = view(from, shape, contiguous_strides(shape));
  return record("reshape", y, {from}, [before = x.shape()](const Tensor& dy, Grads& dx) {
    dx[0] = view(dense(dy), before, contiguous_strides(before));
  });
}

Tensor flatten(const Tensor& x, int start, int end) {
  check_defined("flatten", x);
  const int first = normalize_axis(start, x.rank(), "flatten");
  const int last = normalize_axis(end, x.rank(), "flatten");
  ATH_CHECK(first <= last, "flatten: start must not be after end, but got {} and {}", start, end);
  Shape shape;
  std::int64_t merged = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (i >= first && i <= last) {
      merged *= x.shape()[i];
      if (i == last) shape.push_back(merged);
    } else {
      shape.push_back(x.shape()[i]);
    }
  }
  return reshape(x, shape);
}

Tensor permute(const Tensor& x, std::span<const int> order) {
  check_defined("permute", x);
  const int rank = x.rank();
  ATH_CHECK(static_cast<int>(order.size()) == rank,
            "permute: order must list the {} axes of {}, but has {} entries", rank, x.shape(), order.size());
  std::array<int, kMaxRank> forward{}, inverse{};
  std::array<OpNumber, kMaxRank> axes;
  unsigned seen = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int from = normalize_axis(order[i], rank, "permute");
    ATH_CHECK((seen & (1u << from)) == 0, "permute: order must list each axis once, but lists {} again",
              from);
    seen |= 1u << from;
    forward[i] = from;
    axes[i] = from;
    inverse[static_cast<std::size_t>(from)] = static_cast<int>(i);
  }
  return record({"permute", {{"order", std::span(axes.data(), order.size())}}}, permuted(x, forward), {x},
                [inverse](const Tensor& dy, Grads& dx) { dx[0] = permuted(dy, inverse); });
}

Tensor transpose(const Tensor& x, int a, int b) {
  check_defined("transpose", x);
  std::array<int, kMaxRank> order;
  for (int i = 0; i < x.rank(); ++i) order[static_cast<std::size_t>(i)] = i;
  std::swap(order[static_cast<std::size_t>(normalize_axis(a, x.rank(), "transpose"))],
            order[static_cast<std::size_t>(normalize_axis(b, x.rank(), "transpose"))]);
  return permute(x, std::span<const int>(order.data(), static_cast<std::size_t>(x.rank())));
}

Tensor narrow(const Tensor& x, int axis, std::int64_t start, std::int64_t length) {
  check_defined("narrow", x);
  const int along = normalize_axis(axis, x.rank(), "narrow");
  const std::int64_t size = x.shape()[along];
  ATH_CHECK(start >= 0 && length >= 0 && start <= size && length <= size - start,
            "narrow: [start, start + length) must lie in axis {} of {}, but got start {}, length {}", along,
            x.shape(), start, length);
  return record(
      {"narrow", {{"axis", {along}}, {"start", {start}}}}, slice(x, along, start, length), {x},
      [shape = x.shape(), options = x.options(), along, start, length](const Tensor& dy, Grads& dx) {
        add_into(dy, slice(dx.accumulator(0, shape, options), along, start, length));
      });
}

Tensor select(const Tensor& x, int axis, std::int64_t index) {
  check_defined("select", x);
  const int along = normalize_axis(axis, x.rank(), "select");
  const std::int64_t size = x.shape()[along], at = index < 0 ? index + size : index;
  ATH_CHECK(at >= 0 && at < size, "select: index must be in [{}, {}), but got {}", -size, size, index);
  return record({"select", {{"axis", {along}}, {"index", {at}}}}, slice_at(x, along, at), {x},
                [shape = x.shape(), options = x.options(), along, at](const Tensor& dy, Grads& dx) {
                  add_into(dy, slice_at(dx.accumulator(0, shape, options), along, at));
                });
}

Tensor squeeze(const Tensor& x, int axis) {
  check_defined("squeeze", x);
  const int along = normalize_axis(axis, x.rank(), "squeeze");
  ATH_CHECK(x.shape()[along] == 1, "squeeze: axis {} must have size 1, but {} has {}", along, x.shape(),
            x.shape()[along]);
  return record({"squeeze", {{"axis", {along}}}}, slice_at(x, along, 0), {x},
                [along](const Tensor& dy, Grads& dx) { dx[0] = with_axis(dy, along); });
}

Tensor unsqueeze(const Tensor& x, int axis) {
  check_defined("unsqueeze", x);
  const int along = normalize_axis(axis, x.rank() + 1, "unsqueeze");
  return record({"unsqueeze", {{"axis", {along}}}}, with_axis(x, along), {x},
                [along](const Tensor& dy, Grads& dx) { dx[0] = slice_at(dy, along, 0); });
}

Tensor expand(const Tensor& x, const Shape& shape) {
  check_defined("expand", x);
  ATH_CHECK(broadcasts_to(x.shape(), shape), "expand: {} must broadcast to {}, but does not", x.shape(),
            shape);
  Strides strides = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    const int own = i - (shape.rank() - x.rank());
    strides[i] = own < 0 || (x.shape()[own] == 1 && shape[i] != 1) ? 0 : x.strides()[own];
  }
  return record("expand", view(x, shape, strides), {x},
                [before = x.shape()](const Tensor& dy, Grads& dx) { dx[0] = sum_to(dy, before); });
}

// Copies ---------------------------------------------------------------------------------------------------

Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", x);
  return x.is_contiguous() ? x : clone(x);
}

Tensor clone(const Tensor& x) {
  check_defined("clone", x);
  return record("clone", copy_of(x, x.dtype()), {x}, [](const Tensor& dy, Grads& dx) { dx[0] = dy; });
}

Tensor cast(const Tensor& x, DType dtype) {
  check_defined("cast", x);
  if (x.dtype() == dtype) return x;
  return record("cast", copy_of(x, dtype), {is_floating(dtype) ? Input(x) : Input::fixed(x)},
                [before = x.dtype()](const Tensor& dy, Grads& dx) { dx[0] = copy_of(dy, before); });
}

// Joining --------------------------------------------------------------------------------------------------

namespace {

template <class Closure>
Tensor record_many(const OpCall& op, const Tensor& y, std::span<const Tensor> parts, Closure&& closure) {
  const PoolVector<Input> inputs(parts.begin(), parts.end());
  return record(op, y, std::span<const Input>(inputs), std::forward<Closure>(closure));
}

void check_part(const char* op, std::span<const Tensor> parts, std::size_t i, int free_axis) {
  check_defined(op, parts[i]);
  const Tensor &first = parts[0], &part = parts[i];
  bool fits = part.rank() == first.rank();
  for (int axis = 0; axis < first.rank() && fits; ++axis)
    fits = axis == free_axis || part.shape()[axis] == first.shape()[axis];
  ATH_CHECK(fits, "{}: part {} must have the shape of the first, {}{}, but has {}", op, i, first.shape(),
            free_axis >= 0 ? fmt::format(" except along axis {}", free_axis) : "", part.shape());
  ATH_CHECK(part.dtype() == first.dtype() && part.device() == first.device(),
            "{}: part {} must be {} on {} like the first, but is {} on {}{}", op, i, first.dtype(),
            first.device().str(), part.dtype(), part.device().str(),
            cast_hint(fmt::format("parts[{}]", i).c_str(), part, first.dtype(), first.device()));
}

}  // namespace

Tensor cat(std::span<const Tensor> parts, int axis) {
  ATH_CHECK(!parts.empty(), "cat: at least one tensor must be given, but got none");
  check_defined("cat", parts[0]);
  const int along = normalize_axis(axis, parts[0].rank(), "cat");
  Shape shape = parts[0].shape();
  PoolVector<std::int64_t> sizes(parts.size());
  shape[along] = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_part("cat", parts, i, along);
    shape[along] += sizes[i] = parts[i].shape()[along];
  }
  const Tensor y = Tensor::empty(shape, parts[0].options());
  std::int64_t start = 0;
  for (const Tensor& part : parts) {
    copy_into(part, slice(y, along, start, part.shape()[along]));
    start += part.shape()[along];
  }
  return record_many({"cat", {{"axis", {along}}}}, y, parts,
                     [along, sizes = std::move(sizes)](const Tensor& dy, Grads& dx) {
                       std::int64_t from = 0;
                       for (int i = 0; i < std::ssize(sizes); ++i) {
                         const std::int64_t size = sizes[static_cast<std::size_t>(i)];
                         if (dx.needs(i)) dx[i] = slice(dy, along, from, size);
                         from += size;
                       }
                     });
}

Tensor stack(std::span<const Tensor> parts, int axis) {
  ATH_CHECK(!parts.empty(), "stack: at least one tensor must be given, but got none");
  for (std::size_t i = 0; i < parts.size(); ++i) check_part("stack", parts, i, -1);
  const int along = normalize_axis(axis, parts[0].rank() + 1, "stack");
  const auto count = static_cast<std::int64_t>(parts.size());
  const Tensor y = Tensor::empty(with(parts[0].shape(), along, count), parts[0].options());
  for (std::int64_t i = 0; i < count; ++i)
    copy_into(parts[static_cast<std::size_t>(i)], slice_at(y, along, i));
  return record_many({"stack", {{"axis", {along}}}}, y, parts, [along, count](const Tensor& dy, Grads& dx) {
    for (int i = 0; i < count; ++i) {
      if (dx.needs(i)) dx[i] = slice_at(dy, along, i);
    }
  });
}

// Indexing -------------------------------------------------------------------------------------------------

namespace {

// The index in the form kernels need: i64, dense, on x's device, every element in [0, size). Accepts any
// integer dtype.
Tensor checked_index(const char* op, const Tensor& x, const Tensor& index, std::int64_t size) {
  check_defined(op, x);
  check_defined(op, index);
  const bool integer = !is_floating(index.dtype()) && index.dtype() != DType::boolean;
  ATH_CHECK(integer && index.device() == x.device(),
            "{}: index must be i64, i32 or u8 on {}, but is {} on {}{}", op, x.device().str(), index.dtype(),
            index.device().str(), cast_hint("index", index, DType::i64, x.device()));
  const Tensor flat = index.dtype() == DType::i64 ? dense(index) : copy_of(index, DType::i64);
  on_device(x.device(), [&](auto& context) { kernels::check_indices(context, op, flat, size); });
  return flat;
}

// Records the elements y of x at an index, `at` in the form kernels need; add_back(context, dy, at, sum) adds
// their gradients.
template <class F>
Tensor record_pick(const char* op, const Tensor& y, const Tensor& x, const Tensor& index, const Tensor& at,
                   int along, const F& add_back) {
  return record(
      {op, {{"axis", {along}}}}, y, {x, Input::fixed(index)},
      [at = Saved(at), before = x.shape(), options = x.options(), add_back](const Tensor& dy, Grads& dx) {
        const Tensor sum = dx.accumulator(0, before, options);
        on_device(dy.device(), [&](auto& context) { add_back(context, dense(dy), at, sum); });
      });
}

}  // namespace

Tensor index_select(const Tensor& x, int axis, const Tensor& index) {
  check_defined("index_select", x);
  const int along = normalize_axis(axis, x.rank(), "index_select");
  const Tensor at = checked_index("index_select", x, index, x.shape()[along]);
  ATH_CHECK(at.rank() == 1, "index_select: index must have rank 1, but is {}", at.shape());
  Shape shape = x.shape();
  shape[along] = at.numel();
  const Tensor y = Tensor::empty(shape, x.options());
  on_device(x.device(), [&](auto& context) { kernels::index_select(context, dense(x), along, at, y); });
  return record_pick("index_select", y, x, index, at, along,
                     [along](auto& context, const Tensor& dy, const Tensor& rows, const Tensor& sum) {
                       kernels::index_add(context, dy, along, rows, sum);
                     });
}

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  check_defined("gather", x);
  const int along = normalize_axis(axis, x.rank(), "gather");
  const Tensor at = checked_index("gather", x, index, x.shape()[along]);
  bool fits = at.rank() == x.rank();
  for (int i = 0; i < x.rank() && fits; ++i) fits = i == along || at.shape()[i] <= x.shape()[i];
  ATH_CHECK(fits,
            "gather: index must have the rank of x and be no larger, except along axis {}, but got {} for {}",
            along, at.shape(), x.shape());
  const Tensor y = Tensor::empty(at.shape(), x.options());
  on_device(x.device(), [&](auto& context) { kernels::gather(context, x, along, at, y); });
  return record_pick("gather", y, x, index, at, along,
                     [along](auto& context, const Tensor& dy, const Tensor& elements, const Tensor& sum) {
                       kernels::scatter_add(context, dy, along, elements, sum);
                     });
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_defined("where", condition);
  check_defined("where", a);
  check_defined("where", b);
  ATH_CHECK(condition.dtype() == DType::boolean, "where: condition must be bool, but is {}",
            condition.dtype());
  ATH_CHECK(a.dtype() == b.dtype() && a.device() == b.device() && a.device() == condition.device(),
            "where: both values must have one dtype and be on {} like the condition, but got {} on {} and "
            "{} on {}{}",
            condition.device().str(), a.dtype(), a.device().str(), b.dtype(), b.device().str(),
            cast_hint("a", a, "b", b, /*floating=*/false));
  const Shape shape =
      broadcast_shapes(broadcast_shapes(condition.shape(), a.shape(), "where"), b.shape(), "where");
  const Tensor y = Tensor::empty(shape, a.options());
  on_device(a.device(), [&](auto& context) { kernels::where(context, condition, a, b, y); });
  return record(
      "where", y, {Input::fixed(condition), a, b},
      [condition = Saved(condition), shapes = std::array{a.shape(), b.shape()}](const Tensor& dy, Grads& dx) {
        const Tensor zero = Tensor::zeros({}, dy.options());
        for (int i = 0; i < 2; ++i) {
          if (!dx.needs(i)) continue;
          const Tensor full = empty_like(dy), &taken = i == 0 ? dy : zero, &left = i == 0 ? zero : dy;
          on_device(dy.device(),
                    [&](auto& context) { kernels::where(context, condition, taken, left, full); });
          dx[i] = sum_to(full, shapes[static_cast<std::size_t>(i)]);
        }
      });
}

}  // namespace athanor
