#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Axes and SVG: what every picture of the trainer is drawn with.
namespace athanor::plot {

struct Point {
  double x = 0, y = 0;
};

/// Escapes any text for HTML and XML, including invalid UTF-8 and terminal control characters.
std::string escaped(std::string_view text);

/// Maps values of [low, high] to [0, 1], by their logarithm if `log`.
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<double> ticks = {};  ///< ascending, within [low, high]

  double at(double value) const;
};
/// An axis with about `most` ticks, at multiples of 1, 2 or 5 times a power of ten; `whole`: of 1 or more.
Axis linear_axis(double low, double high, int most, bool whole = false);
/// A logarithmic axis with ticks at up to `most` powers of ten; of less than 1.5 decades, also at 2 and 5
/// times these. low > 0.
Axis log_axis(double low, double high, int most = 5);

/// An SVG picture. Places are in pixels, y downwards; `attributes` of elements are XML, such as class="grid".
class Svg {
 public:
  /// A drawing for a page, which defines its classes and its size.
  Svg(double width, double height, std::string_view attributes);
  /// A file of its own: a white sheet with a title, and a note below it. `style`: CSS of its classes, besides
  /// `muted` and `grid`.
  Svg(double width, double height, std::string_view title, std::string_view note, std::string_view style);

  /// `title`: shown under the pointer.
  void rect(Point corner, double width, double height, std::string_view attributes,
            std::string_view title = {});
  void circle(Point centre, double radius, std::string_view attributes, std::string_view title = {});
  void text(Point at, std::string_view words, std::string_view attributes = {});
  void line(std::span<const Point> points, std::string_view attributes);
  void line(Point from, Point to, std::string_view attributes);
  /// `d`: the path's commands.
  void path(std::string_view d, std::string_view attributes);
  /// The complete picture.
  std::string done() const { return text_ + "</svg>\n"; }

 private:
  void end_shape(std::string_view element, std::string_view title);

  std::string text_;
};

}  // namespace athanor::plot
