#pragma once

#include <string>
#include <string_view>

namespace athanor {

/// What a file is by its first bytes, at best 512 of them, for messages: "a GIF", "a web page", "text",
/// "empty". Empty if they are of no kind that people take for another by mistake.
std::string file_kind(std::string_view head);

}  // namespace athanor
