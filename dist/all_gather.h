#pragma once

#include "dist/pass_network.h"
#include "tensor/tensor.h"

namespace athanor::dist {

/// Concatenates the rows of all ranks in rank order: t [n, ...] of each rank, any dtype, to y [sum of n, ...]
/// on every rank. Ranks may differ in their number of rows, or have none. With one rank, y is t itself.
///
/// Every rank gets dL/dt: the sum of the gradients of its own rows over the losses of all ranks, in rank
/// order. Half types are summed in f32 with one rounding. The bits are the same over every network, except
/// natively. If one rank runs the backward pass, all must. Sends the rows once each way, after 16 bytes that
/// the host waits for: a counted wait on a device. Throws ArgumentError on all ranks if dtypes, or shapes
/// beyond the first axis, differ; PeerLostError. Source: torch.distributed.nn.functional.all_gather.
Tensor all_gather(const Tensor& t, const PassNetwork& network);

}  // namespace athanor::dist
