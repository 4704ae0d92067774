#include <algorithm>
#include <cmath>
#include <ostream>

#include "tensor/detail/host_copy.h"
#include "tensor/tensor.h"

namespace athanor {
namespace {

constexpr std::int64_t kEdgeItems = 3;   // shown at each end of a truncated axis
constexpr std::int64_t kCutOver = 1000;  // tensors with more elements are truncated
constexpr std::size_t kLineWidth = 100;  // columns before a row is wrapped

/// Prints in two passes over the shown elements: the first finds the width and whether numbers need decimals
/// or exponents, the second writes. All numbers of a tensor have one format, so columns align.
class Printer {
 public:
  explicit Printer(const Tensor& tensor) : tensor_(tensor), cut_(tensor.numel() > kCutOver) {}

  std::string print() {
    survey(0, 0);
    choose_style();
    measure(0, 0);
    write(0, 0);
    return std::move(out_);
  }

 private:
  enum class Style { integer, fixed, scientific };

  // Calls item(i) for each index shown along an axis, and gap() where it is truncated.
  template <class Item, class Gap> void along(int axis, const Item& item, const Gap& gap) const {
    const std::int64_t size = tensor_.shape()[axis];
    for (std::int64_t i = 0; i < size; ++i) {
      if (cut_ && size > 2 * kEdgeItems && i == kEdgeItems) {
        gap();
        i = size - kEdgeItems;
      }
      item(i);
    }
  }

  // Calls visit(offset) for each element shown. Depth is bounded by kMaxRank.
  template <class Visit> void for_each_shown(int axis, std::int64_t offset, const Visit& visit) const {
    if (axis == tensor_.rank()) return visit(offset);
    along(
        axis, [&](std::int64_t i) { for_each_shown(axis + 1, offset + i * tensor_.strides()[axis], visit); },
        [] {});
  }

  void survey(int axis, std::int64_t offset) {
    if (!is_floating(tensor_.dtype())) return;
    for_each_shown(axis, offset, [&](std::int64_t at) {
      const double size = std::abs(detail::element(tensor_, at));
      if (!std::isfinite(size)) return;
      whole_ = whole_ && size == std::floor(size);
      largest_ = std::max(largest_, size);
      if (size > 0) smallest_ = std::min(smallest_, size);
    });
  }

  void choose_style() {
    if (!is_floating(tensor_.dtype()) || (whole_ && largest_ < 1e7)) {
      style_ = Style::integer;
    } else if (largest_ >= 1e5 || largest_ < 1e-2 || smallest_ < 5e-5) {  // or a number would print as 0.0000
      style_ = Style::scientific;
    } else {
      style_ = Style::fixed;
    }
  }

  void measure(int axis, std::int64_t offset) {
    for_each_shown(axis, offset, [&](std::int64_t at) { width_ = std::max(width_, text(at).size()); });
  }

  void write(int axis, std::int64_t offset) {
    if (axis == tensor_.rank()) {
      out_ += fmt::format("{:>{}}", text(offset), width_);
      return;
    }
    const bool innermost = axis + 1 == tensor_.rank();
    const std::size_t indent = static_cast<std::size_t>(axis) + 1;
    const std::size_t room = kLineWidth > indent ? kLineWidth - indent : 1;
    const std::size_t per_line = std::max<std::size_t>(1, room / (width_ + 2));
    std::size_t written = 0;
    const auto separate = [&] {
      if (written == 0) return;
      out_ += ',';
      if (innermost && written % per_line != 0) {
        out_ += ' ';
      } else {
        out_ += innermost || axis + 2 == tensor_.rank() ? "\n" : "\n\n";
        out_.append(indent, ' ');
      }
    };
    out_ += '[';
    along(
        axis,
        [&](std::int64_t i) {
          separate();
          write(axis + 1, offset + i * tensor_.strides()[axis]);
          ++written;
        },
        [&] {
          separate();
          out_ += "...";
          ++written;
        });
    out_ += ']';
  }

  std::string text(std::int64_t offset) const {
    switch (tensor_.dtype()) {
      case DType::boolean: return tensor_.data<bool>()[offset] ? "true" : "false";
      case DType::i64: return fmt::format("{}", tensor_.data<std::int64_t>()[offset]);
      case DType::i32: return fmt::format("{}", tensor_.data<std::int32_t>()[offset]);
      case DType::u8: return fmt::format("{}", tensor_.data<std::uint8_t>()[offset]);
      case DType::i8: return fmt::format("{}", tensor_.data<std::int8_t>()[offset]);
      default: break;
    }
    const double number = detail::element(tensor_, offset);
    if (!std::isfinite(number)) return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
    switch (style_) {
      case Style::integer: return fmt::format("{:.0f}", number);
      case Style::fixed: return fmt::format("{:.4f}", number);
      case Style::scientific: return fmt::format("{:.4e}", number);
    }
    return {};
  }

  const Tensor& tensor_;
  bool cut_;
  Style style_ = Style::fixed;
  bool whole_ = true;
  double largest_ = 0, smallest_ = 1;
  std::size_t width_ = 0;
  std::string out_;
};

}  // namespace

std::string Tensor::str(const Site& site) const {
  if (!defined()) return "tensor(undefined)";
  count_host_sync("str", site);
  const std::string values = numel() == 0 ? "[]" : Printer(detail::on_host(*this)).print();
  return fmt::format("{}{}tensor {} {} {}", values, rank() > 1 && numel() > 0 ? "\n" : "  ", shape(), dtype(),
                     device().str());
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << tensor.str();
}

}  // namespace athanor
