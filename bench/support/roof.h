#pragma once

namespace athanor::bench {

/// Bytes per second (read and written together) of the best copy this process can make with all its threads,
/// where source and destination together hold `bytes`: cache levels have roofs of their own. Measured once
/// per power of two.
double copy_roof(double bytes);

/// Single-precision FLOP/s of independent fused multiply-adds in registers, all threads. Measured once.
double fma_peak();

}  // namespace athanor::bench
