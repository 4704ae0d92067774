#pragma once  // Explained in docs/the_ring.md.

#include "dist/collectives/collective.h"

// An all-reduce by rings for P ranks on N nodes of L, with fast links inside nodes and slow ones between.
//
// reduce_scatter: first a ring of the L ranks of each node, after which every rank holds an L-th of the
// buffer, summed over its node. Then, for that part, a ring of the N ranks with the same index on their nodes
// (a rail). All rails run at once, each over its own network link if there are enough. all_gather reverses
// this: rails first, then nodes.
//
// Each phase takes (L - 1) + (N - 1) steps instead of a flat ring's P - 1. It sends the same n (P - 1) / P
// elements per rank, but only n (N - 1) / P of them between nodes. On 64 simulated ranks it is three times as
// fast as a flat ring with 16 MB, and six times with few bytes.
//
// Rank l of node k owns piece k of part l, not the piece with its own rank. Sums follow the order of the
// rings: bits depend on N, L and n.

namespace athanor::dist {

/// As Ring, with pieces by rank. In the buffer, pieces of one index on all nodes are adjacent: see
/// piece_index().
std::unique_ptr<Collective> hierarchical(Transport& transport, int node_size, const PhaseOf& of);

}  // namespace athanor::dist
