#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/detail/plot.h"

namespace athanor::report {

using plot::escaped;

/// The format of a value.
enum class Format : std::uint8_t { plain, share, count, seconds, bytes };

/// "0.2162", "91.20 %", "65,536", "3 min 20 s", "19.1 MB"; "-" if it is not finite.
std::string figure(double value, Format format);

// Parts of a page. Headings and cells are HTML; the results are empty without a body, rows or items.
/// A row of a table; `attributes` of its <tr>.
std::string row(const std::string& heading, const std::vector<std::string>& cells,
                const char* attributes = "");
/// The row of headings.
std::string head_row(const std::vector<std::string>& headings);
std::string table(const std::string& kind, const std::string& rows);
std::string list(const std::vector<std::string>& items);
std::string section(const char* id, const char* heading, const std::string& body);
/// Behind a summary that opens it.
std::string folded(const std::string& summary, const std::string& body);
/// As wide as it needs, and scrolled where there is no room.
std::string scrolled(const std::string& body);

/// A complete page with the common style and script. `body` is HTML; `carried` is the result of
/// script_json().
std::string whole_page(const std::string& title, const std::string& body, const std::string& carried);

}  // namespace athanor::report
