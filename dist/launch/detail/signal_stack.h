#pragma once

namespace athanor::dist {

/// Gives the calling thread a stack of its own for signal handlers (those with SA_ONSTACK): one that runs
/// because the thread's stack has overflowed finds no room there. Does nothing where it has one, as under
/// sanitizers. It goes with the thread.
void have_signal_stack();

}  // namespace athanor::dist
