#include "dist/all_gather.h"

#include <vector>

#include "autograd/node.h"
#include "dist/collectives/exchange.h"
#include "dist/collectives/slice.h"
#include "kernels/copy.h"
#include "kernels/hash.h"
#include "kernels/on_device.h"

namespace athanor::dist {
namespace {

constexpr char kOp[] = "all_gather";

/// Elements per row.
std::int64_t width_of(const Shape& shape) {
  std::int64_t width = 1;
  for (int axis = 1; axis < shape.rank(); ++axis) width *= shape[axis];
  return width;
}

/// The elements of each rank, in rank order; and the total number of rows.
struct Pieces {
  std::vector<Range> of_ranks;
  std::int64_t rows = 0;
};
Pieces pieces_of_all(const Tensor& t, Communicator& comm) {
  kernels::HashOf kind;
  kind.add(static_cast<int>(t.dtype()), t.rank());
  for (int axis = 1; axis < t.rank(); ++axis) kind.add(t.dim(axis));
  struct Rows {
    std::int64_t count;
    std::uint64_t kind;
  };
  const std::vector<Rows> all = gather_values(comm, Rows{t.dim(0), kind.value()});
  Pieces pieces;
  std::int64_t begin = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    ATH_CHECK(all[rank].kind == all[0].kind,
              "{}: all ranks must have the same dtype and the same shape after the first axis, but rank {} "
              "differs from rank 0; rank {} has {} {}",
              kOp, rank, comm.rank(), t.dtype(), t.shape());
    const std::int64_t end = begin + all[rank].count * width_of(t.shape());
    pieces.of_ranks.push_back({begin, end});
    pieces.rows += all[rank].count;
    begin = end;
  }
  return pieces;
}

void copy(const Tensor& from, const Tensor& to) {
  on_device(to.device(), [&](auto& context) { kernels::copy(context, from, to); });
}

Tensor flat(const Tensor& dense) {
  return slice_of(dense, 0, {dense.numel()});
}

}  // namespace

Tensor all_gather(const Tensor& t, const PassNetwork& network) {
  ATH_CHECK(t.defined() && t.rank() >= 1, "{}: the tensor must have rows, but got {}", kOp,
            t.defined() ? "a single value" : "an undefined tensor");
  if (network.alone()) return t;
  return PassNetwork::named(kOp, [&] {
    const auto [pieces, rows] = pieces_of_all(t, network.comm());
    const Range mine = pieces[static_cast<std::size_t>(network.comm().rank())];
    Shape shape = t.shape();
    shape[0] = rows;
    const Tensor y = Tensor::empty(shape, t.options());
    if (y.numel() > 0) {
      copy(t, slice_of(y, mine.begin, t.shape()));
      network.comm().run(*network.comm().all_gather(flat(y), pieces));
    }
    // A saved result must not keep the network alive.
    const std::weak_ptr<Communicator> there = network.comm_;
    return record(kOp, y, {t}, [there, pieces = pieces, mine, own = t.shape()](const Tensor& dy, Grads& dx) {
      const auto comm = there.lock();
      ATH_CHECK(comm, "{}: the communicator must live until the backward pass, but was destroyed", kOp);
      const Tensor sums = Tensor::empty(dy.shape(), dy.options());  // this op must not write to dy
      copy(dy, sums);
      if (dy.numel() > 0) {
        PassNetwork::named("all_gather backward", [&] {
          comm->run(*comm->reduce_scatter(flat(sums), kernels::Combine::sum, pieces));
        });
      }
      dx[0] = slice_of(sums, mine.begin, own);
    });
  });
}

}  // namespace athanor::dist
