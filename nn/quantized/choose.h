#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/int8.h"
#include "nn/quantized/calibration.h"

namespace athanor::nn {

/// Which range of the numbers that a calibration saw the 256 stored ones cover. What lies outside takes the
/// nearest stored number.
enum class QuantizerMethod : std::uint8_t {
  min_max,     ///< all of them
  percentile,  ///< all but the share that lies furthest outside
  entropy,     ///< the range that loses least information
};

/// All of them, in the order of their names in messages.
inline constexpr QuantizerMethod kQuantizerMethods[] = {QuantizerMethod::min_max, QuantizerMethod::percentile,
                                                        QuantizerMethod::entropy};

/// "minmax", "percentile" or "entropy".
const char* name_of(QuantizerMethod method);
/// The method of that name.
std::optional<QuantizerMethod> quantizer_method_named(std::string_view name);

/// The percentage of numbers that QuantizerMethod::percentile covers.
inline constexpr double kUsualPercentile = 99.99;

/// How a value is stored, for QuantizeOptions::choose: min_max_quantizer() of a range by that method. Zero is
/// always stored exactly, and is 0 for numbers that are never negative.
///
/// percentile, in (0, 100]: leaves out the 100 - `percentile` percent that are largest; of numbers of both
/// signs half of these at each end. A bin of the histogram is left out whole or not at all.
///
/// entropy: the ranges end at edges of bins; of numbers of both signs they reach from -t to t, as far as
/// there are numbers. The one is taken whose 256 levels have the smallest Kullback-Leibler divergence D(P,
/// Q): P are the bins in the range, with all numbers beyond added to its ends; in Q the bins of a level share
/// what is in them equally. The bin of zero counts as those beside it: zero is exact anyhow, and ReLU leaves
/// so many that nothing else would count. Source: Migacz 2017, "8-bit inference with TensorRT".
///
/// Throws ArgumentError on another percentile.
Quantizer choose_quantizer(const ObservedValue& value, QuantizerMethod method,
                           double percentile = kUsualPercentile);

}  // namespace athanor::nn
