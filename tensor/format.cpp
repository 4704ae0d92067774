#include <cmath>
#include <ostream>

#include "tensor/tensor.h"

namespace athanor {
namespace {

constexpr std::int64_t kEdgeItems = 3;   // shown at each end of an axis that is cut
constexpr std::int64_t kCutOver = 1000;  // tensors with more elements are cut

std::string format_value(double value, DType dtype) {
  if (dtype == DType::boolean) return value != 0 ? "true" : "false";
  if (!is_floating(dtype)) return fmt::format("{}", static_cast<std::int64_t>(value));
  return fmt::format("{:.4g}", value);
}

class Printer {
 public:
  explicit Printer(const Tensor& tensor) : tensor_(tensor), cut_(tensor.numel() > kCutOver) {
    visit(
        0, 0, [&](const std::string& text) { width_ = std::max(width_, text.size()); },
        [](const char*, int) {});
  }

  std::string print() {
    std::string out;
    visit(
        0, 0, [&](const std::string& text) { out += fmt::format("{:>{}}", text, width_); },
        [&](const char* text, int indent) {
          out += text + std::string(static_cast<std::size_t>(indent), ' ');
        });
    return out;
  }

 private:
  // Depth is bounded by kMaxRank.
  template <class Value, class Glue>
  void visit(int axis, std::int64_t offset, const Value& value, const Glue& glue) const {
    if (axis == tensor_.rank()) return value(text_at(offset));
    const std::int64_t size = tensor_.shape()[axis];
    const bool innermost = axis + 1 == tensor_.rank();
    const char* separator = innermost ? ", " : (axis + 2 == tensor_.rank() ? ",\n" : ",\n\n");
    const int indent = innermost ? 0 : axis + 1;
    glue("[", 0);
    for (std::int64_t i = 0; i < size; ++i) {
      if (i > 0) glue(separator, indent);
      if (cut_ && size > 2 * kEdgeItems && i == kEdgeItems) {
        glue("...", 0);
        glue(separator, indent);
        i = size - kEdgeItems;
      }
      visit(axis + 1, offset + i * tensor_.strides()[axis], value, glue);
    }
    glue("]", 0);
  }

  std::string text_at(std::int64_t offset) const {
    const double value = dispatch_any(tensor_.dtype(), [&]<class T>() {
      const T element = tensor_.data<T>()[offset];
      if constexpr (sizeof(T) == 2)
        return static_cast<double>(static_cast<float>(element));
      else
        return static_cast<double>(element);
    });
    return format_value(value, tensor_.dtype());
  }

  const Tensor& tensor_;
  bool cut_;
  std::size_t width_ = 0;
};

}  // namespace

std::string Tensor::str(const Site& site) const {
  if (!defined()) return "tensor(undefined)";
  count_host_sync("str", site);
  const std::string values = numel() == 0 ? "[]" : Printer(*this).print();
  return fmt::format("{}{}tensor {} {} {}", values, rank() > 1 ? "\n" : "  ", shape(), dtype(),
                     device().str());
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << tensor.str();
}

}  // namespace athanor
