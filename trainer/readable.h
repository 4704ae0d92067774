#pragma once

#include <cstdint>
#include <string>

/// Numbers and times as readable text.
namespace athanor {

/// "1,234,567".
std::string with_commas(std::int64_t number);
/// Three significant digits of a rate, or its whole number if that has more: 1.45, 14.5, 1452.
double rounded_rate(double per_second);
/// The same as text: "1.45", "14.5", "1,452".
std::string rate(double per_second);
/// "0.4 s", "12 s", "3 min 20 s", "2 h 5 min".
std::string duration(double seconds);
/// "12.3 kB", "47.9 MB", "1.25 GB": powers of 1,000.
std::string byte_size(double bytes);

}  // namespace athanor
