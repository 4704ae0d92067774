#pragma once

#include <string>
#include <string_view>

namespace athanor {

/// Text that others wrote (a folder's name, a class's, an error in a file), as one line that is safe to show:
/// a terminal obeys control characters. Those of ASCII and of Latin-1, and bytes that are no UTF-8, become
/// \n, \t or \x1b, say; everything else stays.
std::string printable(std::string_view text);

}  // namespace athanor
