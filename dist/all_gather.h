#pragma once

#include "dist/pass_network.h"
#include "tensor/tensor.h"

namespace athanor::dist {

/// The rows of all ranks, in the order of ranks: t [n, ...] of each, of any dtype, to y [sum of n, ...] on
/// all. Ranks may have different numbers of rows, or none. With one rank, y is t itself.
///
/// Every rank gets dL/dt = the sum, over the losses of all ranks, of the gradients of its own rows: in the
/// order of ranks, half types in f32 with one rounding; the same bits over every network, natively excepted.
/// All of them must run the backward pass where one does. Sends the rows once each way, after 16 bytes that
/// the host waits for: counted on a device. Throws ArgumentError on all ranks where dtypes, or shapes behind
/// the first axis, differ; PeerLostError. Source: torch.distributed.nn.functional.all_gather.
Tensor all_gather(const Tensor& t, const PassNetwork& network);

}  // namespace athanor::dist
