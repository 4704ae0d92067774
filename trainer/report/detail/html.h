#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace athanor::report {

/// Any text, so that HTML and XML show it: also what is no UTF-8, or would move a terminal's cursor.
std::string escaped(std::string_view text);

/// How a value is to be read.
enum class Format : std::uint8_t { plain, share, count, seconds, bytes };

/// "0.2162", "91.20 %", "65,536", "3 min 20 s", "19.1 MB"; "-" where it is not finite.
std::string figure(double value, Format format);

/// The bytes of a PNG as a URL. pixels: height x width x channels (1 or 3), dense; of large pictures every
/// second pixel or fewer, so that no side has more than 128.
std::string picture_url(std::span<const std::uint8_t> pixels, std::int64_t height, std::int64_t width,
                        std::int64_t channels);

/// A page of its own, with the style and the script that all have. `body` is HTML; `carried` what
/// script_json() gave.
std::string whole_page(const std::string& title, const std::string& body, const std::string& carried);

}  // namespace athanor::report
