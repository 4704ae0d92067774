#pragma once

#include "dist/collectives/collective.h"

// An all-reduce for nodes that are fast inside and slow between, made of rings: P ranks on N nodes of L.
//
// reduce_scatter: first a ring of the L ranks of each node, after which every rank holds an L-th of the
// buffer, summed over its node; then, for that part, a ring of the N ranks with the same place on their nodes
// (a rail): all rails at once, each over a network link of its own where there are as many. all_gather goes
// back the same way: rails first, then nodes.
//
// Each phase takes (L - 1) + (N - 1) steps instead of the P - 1 of a flat ring and sends the same n (P - 1) /
// P elements per rank, only n (N - 1) / P of them between nodes: on 64 simulated ranks, three times as fast
// as a flat ring with 16 MB, and six times with few bytes.
//
// Rank l of node k ends up with piece k of part l: not with the piece of its own number. Sums go in the order
// of the rings: bits depend on N, L and n.

namespace athanor::dist {

/// As Ring, with pieces by rank; in the buffer, those of one place on all nodes follow each other, as
/// piece_index() has it.
std::unique_ptr<Collective> hierarchical(Transport& transport, int node_size, const PhaseOf& of);

}  // namespace athanor::dist
