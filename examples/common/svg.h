#pragma once

#include <string>

namespace athanor::examples {

// Pieces of an SVG picture, one line each. Coordinates are pixels, `style` is a class of the picture's sheet.

std::string escaped(const std::string& text);
std::string text(double x, double y, const std::string& style, const char* anchor, const std::string& words);
std::string rect(double x, double y, double width, double height, const std::string& style);
std::string line(double x1, double y1, double x2, double y2, const std::string& style);

/// The head of a picture: a sheet of paper, and styles for text (title, head, muted, tick), paper, axis, grid
/// and eight colours (c0 ... c7), which follow the viewer's preference for light or dark. `more` is added to
/// the style sheet. The picture ends with "</svg>\n".
std::string begin_picture(double width, double height, const std::string& title, const std::string& more);

}  // namespace athanor::examples
