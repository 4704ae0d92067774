#pragma once

namespace athanor::bench {

/// Runs each small case whose id matches --benchmark_filter=REGEX once on the emulator, and prints what the lines of its
/// kernels touched. Returns the program's exit code.
int print_counters(int argc, char** argv);

}  // namespace athanor::bench
