#include "dist/hierarchical.h"

#include "dist/ring.h"
#include "dist/slice.h"

namespace athanor::dist {
namespace {

// The rings a rank is part of, and what is its own after the first.
struct Place {
  Group node, rail;
  Range part;

  Place(std::int64_t count, int world_size, int node_size, int rank)
      : node{rank / node_size * node_size, 1, node_size},
        rail{rank % node_size, node_size, world_size / node_size},
        part(piece_of(count, node_size, rank % node_size)) {}
};

}  // namespace

void check_nodes(int world_size, int node_size) {
  ATH_CHECK(node_size >= 1 && world_size % node_size == 0,
            "hierarchical: the world must be made of whole nodes, but got {} ranks on nodes of {}",
            world_size, node_size);
}

Range hierarchical_piece(std::int64_t count, int world_size, int node_size, int rank) {
  const Place place(count, world_size, node_size, rank);
  const Range piece = piece_of(place.part.count(), place.rail.size, rank / node_size);
  return {place.part.begin + piece.begin, place.part.begin + piece.end};
}

std::unique_ptr<Collective> hierarchical_reduce_scatter(Transport& transport, int node_size,
                                                        const Tensor& buffer, kernels::Combine how,
                                                        const Tensor& scratch, std::int64_t segment_bytes) {
  constexpr auto kHalf = Ring::Half::reduce_scatter;
  const Place at(buffer.numel(), transport.world_size(), node_size, transport.rank());
  std::vector<std::unique_ptr<Collective>> parts;
  parts.push_back(std::make_unique<Ring>(transport, at.node, kHalf, buffer, how, scratch, segment_bytes));
  parts.push_back(
      std::make_unique<Ring>(transport, at.rail, kHalf, slice(buffer, at.part), how, scratch, segment_bytes));
  return std::make_unique<Sequence>("hierarchical reduce_scatter", std::move(parts));
}

std::unique_ptr<Collective> hierarchical_all_gather(Transport& transport, int node_size, const Tensor& buffer,
                                                    std::int64_t segment_bytes) {
  constexpr auto kHalf = Ring::Half::all_gather;
  constexpr auto kNothing = kernels::Combine::sum;
  const Place at(buffer.numel(), transport.world_size(), node_size, transport.rank());
  std::vector<std::unique_ptr<Collective>> parts;
  parts.push_back(std::make_unique<Ring>(transport, at.rail, kHalf, slice(buffer, at.part), kNothing,
                                         Tensor(), segment_bytes));
  parts.push_back(
      std::make_unique<Ring>(transport, at.node, kHalf, buffer, kNothing, Tensor(), segment_bytes));
  return std::make_unique<Sequence>("hierarchical all_gather", std::move(parts));
}

}  // namespace athanor::dist
