#include "examples/common/svg.h"

#include "tensor/error.h"

namespace athanor::examples {
namespace {

constexpr const char* kStyle = R"(
    text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px; fill: #1f2328 }
    .title { font-size: 18px; font-weight: 600 } .head { font-size: 14px; font-weight: 600 }
    .muted { fill: #59636e } .tick { fill: #59636e; font-size: 11px }
    .paper { fill: #ffffff } .axis { stroke: #59636e } .grid { stroke: #d1d9e0 }
    .c0 { fill: #2f6fd6 } .c1 { fill: #c98a00 } .c2 { fill: #1a7f37 } .c3 { fill: #cf222e }
    .c4 { fill: #8250df } .c5 { fill: #1b8a9a } .c6 { fill: #b35900 } .c7 { fill: #bf3989 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .muted, .tick { fill: #9198a1 }
      .paper { fill: #0d1117 } .axis { stroke: #9198a1 } .grid { stroke: #2a313a }
      .c0 { fill: #5c9dff } .c1 { fill: #e3b341 } .c2 { fill: #4ac26b } .c3 { fill: #ff6a61 }
      .c4 { fill: #b692ff } .c5 { fill: #4fc3d4 } .c6 { fill: #f0883e } .c7 { fill: #ff80c8 }
    }
)";

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else
      safe += c;
  }
  return safe;
}

std::string text(double x, double y, const std::string& style, const char* anchor, const std::string& words) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}">{}</text>)"
                     "\n",
                     x, y, style, anchor, escaped(words));
}
std::string rect(double x, double y, double width, double height, const std::string& style) {
  return fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="{}"/>)"
                     "\n",
                     x, y, width, height, style);
}
std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>)"
                     "\n",
                     x1, y1, x2, y2, style);
}

std::string begin_picture(double width, double height, const std::string& title, const std::string& more) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" role="img">)"
      "\n<title>{2}</title>\n<style>{3}{4}</style>\n"
      R"(<rect width="{0:.0f}" height="{1:.0f}" rx="8" class="paper"/>)"
      "\n",
      width, height, escaped(title), kStyle, more);
}

}  // namespace athanor::examples
