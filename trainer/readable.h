#pragma once

#include <cstdint>
#include <string>

/// Numbers and times as readable text.
namespace athanor {

/// "1,234,567".
std::string with_commas(std::int64_t number);
/// "0.4 s", "12 s", "3 min 20 s", "2 h 5 min".
std::string duration(double seconds);

}  // namespace athanor
