#pragma once

#include <string>

namespace athanor::bench {

/// What the machine can do at best, and the name of it.
struct Roof {
  double per_second = 0;  ///< bytes or FLOP; 0 where there is none
  std::string name;
};

/// What a row is held against.
struct Roofs {
  Roof bytes, flops;
};

/// Bytes per second (read and written together) of the best copy this process can make with all its threads,
/// where source and destination together hold `bytes`: cache levels have roofs of their own. Measured once
/// per power of two.
double copy_roof(double bytes);

/// Single-precision FLOP/s of independent fused multiply-adds in registers, all threads. Measured once.
double fma_peak();

/// Integer operations per second, two per product, of sums of products of u8 and i8 in registers, by the
/// instruction that kernels/cpu/int8_tiles_*.cpp use on this CPU, all threads. Measured once; 0 where it is a
/// plain loop.
double int8_peak();

}  // namespace athanor::bench
