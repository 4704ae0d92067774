#include "dist/collectives/hierarchical.h"

#include <span>

#include "dist/collectives/ring.h"
#include "dist/collectives/slice.h"

namespace athanor::dist {
namespace {

// The rings of a rank, and its own part after the first.
struct Rings {
  Group node, rail;
  std::vector<Range> parts, of_rail;  // parts of the node's ranks, and of the rail's ranks in that part
  Range part;

  Rings(std::span<const Range> pieces, int node_size, int rank)
      : node{rank / node_size * node_size, 1, node_size},
        rail{rank % node_size, node_size, static_cast<int>(pieces.size()) / node_size} {
    const auto piece = [&](int place, int at) {
      const int rank_there = at * node_size + place;
      return pieces[static_cast<std::size_t>(rank_there)];
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

std::unique_ptr<Collective> hierarchical(Transport& transport, int node_size, const PhaseOf& of) {
  const Rings at(of.pieces, node_size, transport.rank());
  PhaseOf of_node = of, of_rail = of;
  of_node.pieces = at.parts;
  of_rail.buffer = slice(of.buffer, at.part);
  of_rail.pieces = at.of_rail;
  std::vector<std::unique_ptr<Collective>> rings;
  rings.push_back(std::make_unique<Ring>(transport, at.node, std::move(of_node)));
  rings.push_back(std::make_unique<Ring>(transport, at.rail, std::move(of_rail)));
  const bool gathers = of.phase == Phase::all_gather;
  if (gathers) std::swap(rings[0], rings[1]);
  return std::make_unique<Sequence>(gathers ? "hierarchical all_gather" : "hierarchical reduce_scatter",
                                    std::move(rings));
}

}  // namespace athanor::dist
