#include "trainer/report/detail/html.h"

#include <cmath>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "trainer/readable.h"

namespace athanor {

// style.css and script.js, by cmake/embed.cmake
extern const unsigned char kReportStyle[], kReportScript[];
extern const std::size_t kReportStyleBytes, kReportScriptBytes;

namespace report {
namespace {

std::string_view embedded(const unsigned char* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

std::string within(const char* begin, const std::string& body, const char* end) {
  return body.empty() ? "" : begin + body + end;
}

}  // namespace

std::string figure(double value, Format format) {
  if (!std::isfinite(value)) return "-";
  switch (format) {
    case Format::share: return fmt::format("{:.2f} %", 100 * value);
    case Format::seconds: return value < 0.1 ? fmt::format("{:.3g} ms", 1000 * value) : duration(value);
    case Format::bytes: return byte_size(value);
    case Format::count:
      if (std::abs(value) < 1e18 && (value == std::floor(value) || std::abs(value) >= 1000))
        return with_commas(std::llround(value));
      return fmt::format("{:.3g}", value);
    case Format::plain: break;
  }
  return std::abs(value) >= 1e4 && std::abs(value) < 1e9 ? with_commas(std::llround(value))
                                                         : fmt::format("{:.4g}", value);
}

std::string row(const std::string& heading, const std::vector<std::string>& cells, const char* attributes) {
  std::string html = fmt::format("<tr{}><th scope=\"row\">{}</th>", attributes, heading);
  for (const std::string& cell : cells) html += "<td>" + cell + "</td>";
  return html + "</tr>\n";
}

std::string head_row(const std::vector<std::string>& headings) {
  std::string html = "<tr>";
  for (const std::string& heading : headings) html += "<th scope=\"col\">" + heading + "</th>";
  return html + "</tr>\n";
}

std::string table(const std::string& kind, const std::string& rows) {
  return within(fmt::format("<table class=\"{}\">\n", kind).c_str(), rows, "</table>\n");
}

std::string list(const std::vector<std::string>& items) {
  std::string html;
  for (const std::string& item : items) html += "<li>" + item + "</li>\n";
  return within("<ul>\n", html, "</ul>\n");
}

std::string section(const char* id, const char* heading, const std::string& body) {
  return within(fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n", id, heading).c_str(), body, "</section>\n");
}

std::string folded(const std::string& summary, const std::string& body) {
  return within(fmt::format("<details>\n<summary>{}</summary>\n", summary).c_str(), scrolled(body),
                "</details>\n");
}

std::string scrolled(const std::string& body) {
  return within("<div class=\"scroll\">\n", body, "</div>\n");
}

std::string whole_page(const std::string& title, const std::string& body, const std::string& carried) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{}{}<script>\n{}</script>\n</body>\n</"
      "html>\n",
      escaped(title), embedded(kReportStyle, kReportStyleBytes), body, carried,
      embedded(kReportScript, kReportScriptBytes));
}

}  // namespace report
}  // namespace athanor
