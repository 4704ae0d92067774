#pragma once

namespace athanor::dist {

/// Gives the calling thread a separate stack for signal handlers with SA_ONSTACK, so that they can run after
/// a stack overflow. Does nothing if it has one, as under sanitizers. Freed with the thread.
void have_signal_stack();

}  // namespace athanor::dist
