#pragma once

#include <string>
#include <string_view>

namespace athanor {

/// The first bytes of a gzip file.
inline constexpr std::string_view kGzip = "\x1f\x8b";

/// What a file is by its first bytes, at best 512 of them, for messages: "a GIF", "a web page", "text",
/// "empty". Empty if they are of no kind that people take for another by mistake.
std::string file_kind(std::string_view head);

}  // namespace athanor
