#include "dist/collectives/hierarchical.h"

#include "dist/collectives/ring.h"
#include "dist/collectives/slice.h"

namespace athanor::dist {
namespace {

// The rings a rank is part of, and what is its own after the first.
struct Rings {
  Group node, rail;
  std::vector<Range> parts, of_rail;  // what each rank of the node has, and each rank of the rail of that
  Range part;

  Rings(std::span<const Range> pieces, int node_size, int rank)
      : node{rank / node_size * node_size, 1, node_size},
        rail{rank % node_size, node_size, static_cast<int>(pieces.size()) / node_size} {
    const auto piece = [&](int place, int at) {
      return pieces[static_cast<std::size_t>(at * node_size + place)];
    };
    for (int place = 0; place < node_size; ++place)
      parts.push_back({piece(place, 0).begin, piece(place, rail.size - 1).end});
    part = parts[static_cast<std::size_t>(rank % node_size)];
    for (int at = 0; at < rail.size; ++at) {
      const Range mine = piece(rank % node_size, at);
      of_rail.push_back({mine.begin - part.begin, mine.end - part.begin});
    }
  }
};

}  // namespace

void check_nodes(int world_size, int node_size) {
  ATH_CHECK(node_size >= 1 && world_size % node_size == 0,
            "hierarchical: the world must be made of whole nodes, but got {} ranks on nodes of {}",
            world_size, node_size);
}

Range hierarchical_piece(std::int64_t count, int world_size, int node_size, int rank) {
  const Range part = piece_of(count, node_size, rank % node_size);
  const Range piece = piece_of(part.count(), world_size / node_size, rank / node_size);
  return {part.begin + piece.begin, part.begin + piece.end};
}

std::unique_ptr<Collective> hierarchical_reduce_scatter(Transport& transport, int node_size,
                                                        const Tensor& buffer, kernels::Combine how,
                                                        const Tensor& scratch, std::int64_t segment_bytes,
                                                        std::span<const Range> pieces) {
  constexpr auto kHalf = Ring::Half::reduce_scatter;
  const Rings at(pieces, node_size, transport.rank());
  std::vector<std::unique_ptr<Collective>> parts;
  parts.push_back(
      std::make_unique<Ring>(transport, at.node, kHalf, buffer, how, scratch, segment_bytes, at.parts));
  parts.push_back(std::make_unique<Ring>(transport, at.rail, kHalf, slice(buffer, at.part), how, scratch,
                                         segment_bytes, at.of_rail));
  return std::make_unique<Sequence>("hierarchical reduce_scatter", std::move(parts));
}

std::unique_ptr<Collective> hierarchical_all_gather(Transport& transport, int node_size, const Tensor& buffer,
                                                    std::int64_t segment_bytes,
                                                    std::span<const Range> pieces) {
  constexpr auto kHalf = Ring::Half::all_gather;
  constexpr auto kNothing = kernels::Combine::sum;
  const Rings at(pieces, node_size, transport.rank());
  std::vector<std::unique_ptr<Collective>> parts;
  parts.push_back(std::make_unique<Ring>(transport, at.rail, kHalf, slice(buffer, at.part), kNothing,
                                         Tensor(), segment_bytes, at.of_rail));
  parts.push_back(
      std::make_unique<Ring>(transport, at.node, kHalf, buffer, kNothing, Tensor(), segment_bytes, at.parts));
  return std::make_unique<Sequence>("hierarchical all_gather", std::move(parts));
}

}  // namespace athanor::dist
