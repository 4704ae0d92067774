#pragma once

#include <string>
#include <string_view>

namespace athanor {

/// Untrusted text (the name of a folder or class, an error in a file) as one line that is safe to print on a
/// terminal. Control characters of ASCII and Latin-1, and bytes that are not UTF-8, become escapes such as
/// \n, \t or \x1b; all else is unchanged.
std::string printable(std::string_view text);

/// Whether this is the name of something: letters and digits of ASCII, and characters of `others`, at least
/// one.
bool is_name(std::string_view text, std::string_view others = "_");

/// Any bytes as one line of UTF-8, and back: for names in files whose format takes text alone. Percent signs,
/// control characters and bytes that are not UTF-8 become %25, %0a, %e9, ...; all else is unchanged.
std::string percent_encoded(std::string_view bytes);
/// A percent sign that two hexadecimal digits do not follow stays.
std::string percent_decoded(std::string_view text);

}  // namespace athanor
