#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace athanor::report {

/// Escapes any text for HTML and XML, including invalid UTF-8 and terminal control characters.
std::string escaped(std::string_view text);

/// The format of a value.
enum class Format : std::uint8_t { plain, share, count, seconds, bytes };

/// "0.2162", "91.20 %", "65,536", "3 min 20 s", "19.1 MB"; "-" if it is not finite.
std::string figure(double value, Format format);

/// A PNG as a data URL. pixels: height x width x channels (1 or 3), dense. Large pictures are subsampled so
/// that no side exceeds 128.
std::string picture_url(std::span<const std::uint8_t> pixels, std::int64_t height, std::int64_t width,
                        std::int64_t channels);

/// A complete page with the common style and script. `body` is HTML; `carried` is the result of
/// script_json().
std::string whole_page(const std::string& title, const std::string& body, const std::string& carried);

}  // namespace athanor::report
