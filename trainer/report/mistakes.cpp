#include "trainer/report/detail/mistakes.h"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "data/image/png.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/report/detail/html.h"

namespace athanor::report {
namespace {

constexpr std::size_t kMatrix = 40;  // maximum number of classes with a readable matrix
constexpr std::size_t kPairs = 20, kClasses = 100'000;
const std::string kPng = "data:image/png;base64,";

std::string base64_of(std::span<const std::byte> bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) {
      return i + k < bytes.size() ? std::to_integer<unsigned>(bytes[i + k]) : 0U;
    };
    const unsigned group = at(0) << 16 | at(1) << 8 | at(2);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return text;
}

/// A PNG of the image as a data URL, subsampled so that no side exceeds 128. Empty if the page cannot show
/// it.
std::string picture_of(const Dataset& data, std::int64_t sample) {
  constexpr std::int64_t kMax = 128;
  const ImageSpec& spec = data.spec();
  if (spec.bytes() <= 0 || (spec.channels != 1 && spec.channels != 3)) return "";
  try {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(spec.bytes())), shown;
    data.read(sample, pixels);
    const std::int64_t stride = (std::max(spec.height, spec.width) + kMax - 1) / kMax;
    for (std::int64_t y = 0; y < spec.height; y += stride) {
      for (std::int64_t x = 0; x < spec.width; x += stride) {
        const auto* from = pixels.data() + (y * spec.width + x) * spec.channels;
        shown.insert(shown.end(), from, from + spec.channels);
      }
    }
    const std::int64_t height = (spec.height + stride - 1) / stride,
                       width = (spec.width + stride - 1) / stride;
    std::vector<std::byte> png;
    encode_png({shown.data(), height, width, spec.channels, width * spec.channels}, png);
    return kPng + base64_of(png);
  } catch (const Error&) {  // the figures suffice
    return "";
  }
}

bool is_picture(const std::string& url) {
  return url.starts_with(kPng) && is_name(std::string_view(url).substr(kPng.size()), "+/=");
}

/// The evaluation in the JSON, or null.
std::unique_ptr<Evaluation> evaluation_of(const Json& json) {
  std::vector<std::string> names;
  for (const Json& name : part(json, "names"))
    names.push_back(name.is_string() ? name.get<std::string>() : "");
  Evaluation::Confusion cells;
  for (const Json& cell : part(json, "cells")) {
    if (!cell.is_array() || cell.size() != 3) return nullptr;
    for (const Json& value : cell)
      if (!value.is_number_integer()) return nullptr;
    cells[{cell[0].get<std::int64_t>(), cell[1].get<std::int64_t>()}] = cell[2].get<std::int64_t>();
  }
  if (names.empty() || names.size() > kClasses || cells.empty()) return nullptr;
  try {
    return std::make_unique<Evaluation>(std::move(names), cells);
  } catch (const ArgumentError&) {  // classes out of range
    return nullptr;
  }
}

std::string pairs_table(const Evaluation& all) {
  std::vector<std::pair<std::int64_t, std::pair<std::int64_t, std::int64_t>>> pairs;
  for (const auto& [pair, images] : all.confusion())
    if (pair.first != pair.second) pairs.push_back({images, pair});
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  pairs.resize(std::min(pairs.size(), kPairs));
  std::string rows = head_row({"true class", "predicted", "images"});
  for (const auto& [images, pair] : pairs)
    rows += row(escaped(all.name(pair.first)),
                {escaped(all.name(pair.second)), figure(static_cast<double>(images), Format::count)});
  return "<h3>Most often confused</h3>\n" + table("confused", rows);
}

std::string picture_list(const Json& mistakes, const Evaluation& all) {
  std::string items;
  for (const Json& one : mistakes) {
    const double actual = number(one, "actual"), predicted = number(one, "predicted");
    const auto in_range = [&](double value) {
      return value >= 0 && value < static_cast<double>(all.classes());
    };
    if (!in_range(actual) || !(in_range(predicted) || predicted == Evaluation::kNone)) continue;
    const std::string is = escaped(all.name(static_cast<std::int64_t>(actual))),
                      answer = escaped(all.name(static_cast<std::int64_t>(predicted)));
    const std::string file = text(one, "file"), url = text(one, "picture");
    const std::string where = file.empty() ? fmt::format("image {:.0f}", number(one, "sample")) : file;
    items += fmt::format(
        "<li>{}<b>{}</b><span>predicted {}</span><small>{:.0f} %, {}</small></li>\n",
        is_picture(url) ? fmt::format("<img src=\"{}\" alt=\"{}\" loading=\"lazy\"/>", url, is) : "", is,
        answer, 100 * number(one, "probability"), escaped(where));
  }
  return items.empty() ? "" : "<h3>Worst mistakes</h3>\n<ol class=\"mistakes\">\n" + items + "</ol>\n";
}

}  // namespace

Json json_of(const Evaluation& evaluation, const Dataset& data, std::int64_t of) {
  Json names = Json::array(), cells = Json::array(), mistakes = Json::array();
  for (std::int64_t c = 0; c < evaluation.classes(); ++c) names.push_back(evaluation.name(c));
  for (const auto& [pair, images] : evaluation.confusion())
    cells.push_back({pair.first, pair.second, images});
  for (const Evaluation::Mistake& one : evaluation.worst())
    mistakes.push_back({{"sample", one.sample},
                        {"file", data.where(one.sample)},
                        {"actual", one.label},
                        {"predicted", one.predicted},
                        {"probability", one.probability},
                        {"loss", one.loss},
                        {"picture", picture_of(data, one.sample)}});
  return {{"images", evaluation.images()},
          {"of", of},
          {"top1", evaluation.top1()},
          {"names", names},
          {"cells", cells},
          {"mistakes", mistakes}};
}

std::string mistakes_section(const Json& json) {
  const std::unique_ptr<Evaluation> all = evaluation_of(json);
  if (!all) return "";
  const double images = static_cast<double>(all->images()), of = number(json, "of");
  const std::string seen = of > images ? fmt::format(" (of {} in all)", figure(of, Format::count)) : "";
  const bool matrix = all->classes() <= static_cast<std::int64_t>(kMatrix);
  return section(
      "mistakes", "Confusions and mistakes",
      fmt::format("<p>{} of {} images of the last validation{} are classified correctly: {}.{}</p>\n<div "
                  "class=\"confusion\">\n{}</div>\n{}",
                  figure(images * all->top1(), Format::count), figure(images, Format::count), seen,
                  figure(all->top1(), Format::share),
                  matrix ? " Rows are true classes, columns predicted classes; the stronger a cell's colour, "
                           "the larger its share of the row."
                         : "",
                  matrix ? svg_of(*all, true) : pairs_table(*all),
                  picture_list(part(json, "mistakes"), *all)));
}

}  // namespace athanor::report
