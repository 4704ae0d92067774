#pragma once

#include <cstddef>

#include "tensor/base/error.h"

// How an op chooses among its implementations on a GPU: it has one ordered list of them, and one function
// asks it.

namespace athanor::cuda {

/// One way to compute calls of an op: an entry of the list itself. (Those of the CPU, in
/// kernels/cpu/primitive.h, are made once for a shape and then kept, and a list names them.) `Impl` is the
/// op's enum of those that a caller may ask for: `automatic` asks for any, `reference` for one of our
/// own. `Call` has a call's operands, asked(), kOp and str().
template <class Context, class Impl, class Call> struct Implementation {
  const char* name;
  Impl impl;          ///< what asks for it: `vendor`, or one of our own
  const char* needs;  ///< what a call must be, in words: for one who asked for it in vain
  /// Whether it can compute that call.
  bool (*fits)(Context&, const Call&);
  /// Queues the work. False: nothing was done, and the next one is asked, because this one was found to be
  /// slower or not to run.
  bool (*run)(Context&, const Call&);
  /// Whether it is worth it for one who has not asked for `impl`, which may be that of several entries;
  /// null: yes.
  bool (*prefers)(Context&, const Call&) = nullptr;

  bool takes(Context& context, const Call& call) const {
    const Impl asked = call.asked();
    const bool by_name = asked == impl;
    if (!by_name && asked != Impl::automatic && (asked != Impl::reference || impl == Impl::vendor))
      return false;
    return fits(context, call) && (by_name || !prefers || prefers(context, call));
  }
};

/// Queues a call by the first of a list that takes it. Throws ArgumentError if a GPU has no such
/// implementation, and BackendError if the one asked for cannot compute the call.
template <class Context, class Impl, class Call, std::size_t N>
void run_first(Context& context, const Implementation<Context, Impl, Call> (&list)[N], const Call& call) {
  const char* needs = nullptr;
  for (const auto& one : list) {
    if (one.takes(context, call) && one.run(context, call)) return;
    if (one.impl == call.asked()) needs = one.needs;
  }
  const auto asked = name_of(call.asked());
  ATH_CHECK(needs, "{}: impl must be one that a GPU has, but got {}", Call::kOp, asked);
  athanor::detail::fail<BackendError>("{}: {} needs {}, but got {}; use {}::automatic", Call::kOp, asked,
                                      needs, call.str(), Call::kImpl);
}

}  // namespace athanor::cuda
