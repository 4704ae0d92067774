#pragma once

#include <cstdint>
#include <string>

#include "data/loader.h"
#include "kernels/step_rules.h"
#include "optim/precision.h"
#include "trainer/config.h"

/// What the texts behind flags mean. Each throws ArgumentError, naming `flag`, for a text that means nothing.
namespace athanor::flag_values {

/// More of anything (steps, epochs, images) than any run has; sums and products of few such numbers fit.
inline constexpr std::int64_t kMost = 1'000'000'000;

/// A whole number in [low, high].
std::int64_t whole(const std::string& flag, const std::string& text, std::int64_t low,
                   std::int64_t high = kMost);
int between(const std::string& flag, const std::string& text, int low, int high);
/// A number in [low, high], above 0; what is given at first is what f32 still multiplies.
double positive(const std::string& flag, const std::string& text, double low = 1e-30, double high = 1e30);
/// A whole number of 64 bits, without a sign.
std::uint64_t seed(const std::string& flag, const std::string& text);
/// "500000000", "512M", "2GiB".
std::int64_t byte_count(const std::string& flag, const std::string& text);
/// "METRIC:PATIENCE"; check() knows the metrics.
EarlyStop early_stop(const std::string& flag, const std::string& text);
/// "auto", or a number of threads.
int workers(const std::string& flag, const std::string& text);
/// "strict", "skip" or "skip:20".
BadSamples bad_samples(const std::string& flag, const std::string& text);
/// "single", "ddp" or "zero1".
Strategy strategy(const std::string& flag, const std::string& text);
/// "auto", "rank_order", "ring", "hierarchical" or "native".
dist::Algorithm algorithm(const std::string& flag, const std::string& text);
/// "on" or "off".
bool on_or_off(const std::string& flag, const std::string& text);
/// "f32", "tf32", "bf16" or "f16".
Precision precision(const std::string& flag, const std::string& text);
/// "dynamic", "dynamic:65536" or "1024".
LossScaling loss_scaling(const std::string& flag, const std::string& text);

}  // namespace athanor::flag_values
