#pragma once

#include <cstdint>
#include <string>

#include "data/loader.h"
#include "kernels/step_rules.h"
#include "optim/precision.h"
#include "trainer/config.h"

/// What the texts behind flags mean. Each throws ArgumentError, naming `flag`, for a text that means nothing.
namespace athanor::flag_values {

/// A whole number of at least `low`.
std::int64_t at_least(const std::string& flag, const std::string& text, std::int64_t low);
/// A whole number in [low, high].
int between(const std::string& flag, const std::string& text, int low, int high);
/// A finite number above 0.
double positive(const std::string& flag, const std::string& text);
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
/// "rank_order", "ring", "hierarchical" or "native".
dist::Algorithm algorithm(const std::string& flag, const std::string& text);
/// "on" or "off".
bool on_or_off(const std::string& flag, const std::string& text);
/// "f32", "tf32", "bf16" or "f16".
Precision precision(const std::string& flag, const std::string& text);
/// "dynamic", "dynamic:65536" or "1024".
LossScaling loss_scaling(const std::string& flag, const std::string& text);

}  // namespace athanor::flag_values
