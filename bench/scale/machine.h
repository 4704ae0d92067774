#pragma once

#include <cstdint>

#include "tensor/tensor.h"

// What the ranks of bench/scale run on: this machine, or one that SimGrid makes up. The two programs and all
// of the library are the same sources for both.

namespace athanor::scale {

/// Whether clock and network are made up. Waiting then happens inside MPI (dist::MpiOptions::wait_inside).
bool simulated();

/// Seconds on the clock, which all simulated ranks share.
double now();

/// Keeps this rank's processor busy for so many seconds of that clock.
void compute(double seconds);

/// The largest of all ranks' values, by MPI's own collective.
double max_over_ranks(double value);

/// Flat f32 whose values do not matter. Where ranks are simulated, those that ask with the same `use`, a
/// small number, get the same memory: a thousand ranks take as much as one. All must ask for the same size.
Tensor shared_by_ranks(std::int64_t count, int use);

/// Says on stderr what is wrong, and ends all ranks with 1.
[[noreturn]] void fail(const char* program, int rank, const char* what);

}  // namespace athanor::scale
