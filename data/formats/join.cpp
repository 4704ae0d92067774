#include "data/formats/join.h"

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "data/formats/detail/indexed_store.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

class JoinedStore final : public Dataset {
 public:
  explicit JoinedStore(std::vector<std::unique_ptr<Dataset>> parts) : parts_(std::move(parts)) {
    ATH_CHECK(!parts_.empty(), "join: needs at least one store, but got none");
    spec_ = parts_[0]->spec();
    std::int64_t end = 0;
    for (const auto& part : parts_) {
      const ImageSpec& spec = part->spec();
      const std::int64_t classes = std::max(spec_.classes, spec.classes);
      const ImageSpec size{spec_.height, spec_.width, spec_.channels, spec.classes};
      if (end == 0) spec_ = spec;  // earlier parts are empty, so any size is allowed
      if (end > 0 && part->size() > 0 && size != spec) spec_ = {};
      spec_.classes = classes;
      ATH_CHECK(
          part->class_names() == parts_[0]->class_names(),
          "join: all stores must have the same class names, but those of store {} differ from the first",
          ends_.size());
      // Sizes of images may differ.
      const auto form = [](const FieldSpec& field) {
        const bool has_pixels = field.kind == FieldKind::picture || field.kind == FieldKind::target ||
                                field.kind == FieldKind::mask;
        return std::tuple(field.name, field.kind, field.dtype, has_pixels ? Shape{} : field.shape);
      };
      ATH_CHECK(std::ranges::equal(part->fields(), parts_[0]->fields(), {}, form, form),
                "join: all stores must have the same fields, but those of store {} differ from the first",
                ends_.size());
      ends_.push_back(end += part->size());
    }
  }

  std::int64_t size() const override { return ends_.back(); }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override {
    std::vector<FieldSpec> all = parts_[0]->fields();
    for (FieldSpec& field : all) {
      if (field.name == "image") field.shape = {spec_.height, spec_.width, spec_.channels};
    }
    return all;
  }
  std::vector<std::string> class_names() const override { return parts_[0]->class_names(); }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    return in_part(index, [&](const Dataset& part, std::int64_t i) { return part.fetch(i, scratch); });
  }
  std::int64_t label(std::int64_t index) const override {
    return in_part(index, [](const Dataset& part, std::int64_t i) { return part.label(i); });
  }
  std::vector<Unused> unused() const override {
    std::vector<Unused> all;
    for (const auto& part : parts_) add_unused(all, part->unused());
    return all;
  }
  std::uint64_t sample_id(std::int64_t index) const override {
    return in_part(index, [](const Dataset& part, std::int64_t i) { return part.sample_id(i); });
  }
  std::optional<std::int64_t> image_bytes(std::int64_t index) const override {
    return in_part(index, [](const Dataset& part, std::int64_t i) { return part.image_bytes(i); });
  }
  std::string where(std::int64_t index) const override {
    return in_part(index, [](const Dataset& part, std::int64_t i) { return part.where(i); });
  }
  bool resident() const override {
    return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->resident(); });
  }
  void will_need(std::int64_t first, std::int64_t count) const override {
    const std::int64_t end = first + std::min(count, size() - first);
    while (first >= 0 && first < end) {
      const std::size_t part = part_of(first);
      const std::int64_t here = std::min(end, ends_[part]) - first;
      parts_[part]->will_need(first - start_of(part), here);
      first += here;
    }
  }

 private:
  std::size_t part_of(std::int64_t index) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  }
  std::int64_t start_of(std::size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }
  /// f(the part that has sample `index`, its index there).
  template <class F>
  std::invoke_result_t<F, const Dataset&, std::int64_t> in_part(std::int64_t index, const F& f) const {
    detail::check_index(index, size(), "store");
    const std::size_t part = part_of(index);
    return f(*parts_[part], index - start_of(part));
  }

  std::vector<std::unique_ptr<Dataset>> parts_;
  std::vector<std::int64_t> ends_;
  ImageSpec spec_;
};

}  // namespace

std::unique_ptr<Dataset> join(std::vector<std::unique_ptr<Dataset>> parts) {
  return std::make_unique<JoinedStore>(std::move(parts));
}

}  // namespace athanor
