#include "data/formats/join.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "data/formats/detail/indexed_store.h"
#include "kernels/hash.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

class JoinedStore final : public Dataset {
 public:
  JoinedStore(std::vector<std::shared_ptr<const Dataset>> parts, std::vector<Unused> beside)
      : parts_(std::move(parts)), beside_(std::move(beside)) {
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
      ATH_CHECK(part->class_names() == parts_[0]->class_names(),
                "join: all stores must have the same class names, but those of {} differ from the first",
                name_of_part(*part));
      // Sizes of images may differ.
      const auto form = [](const FieldSpec& field) {
        const bool has_pixels = field.kind == FieldKind::picture || field.kind == FieldKind::target ||
                                field.kind == FieldKind::mask;
        return std::tuple(field.name, field.kind, field.dtype, has_pixels ? Shape{} : field.shape);
      };
      ATH_CHECK(std::ranges::equal(part->fields(), parts_[0]->fields(), {}, form, form),
                "join: all stores must have the same fields, but those of {} differ from the first",
                name_of_part(*part));
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
  std::vector<double> numbers(std::string_view field) const override {
    std::vector<double> all;
    for (const auto& part : parts_) {
      const std::vector<double> own = part->numbers(field);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
  std::vector<Unused> unused() const override {
    std::vector<Unused> all = beside_;
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
  /// Where it begins, or its number among the parts.
  std::string name_of_part(const Dataset& part) const {
    const std::string where = part.size() > 0 ? part.where(0) : "";
    return where.empty() ? fmt::format("store {}", ends_.size()) : where;
  }
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

  std::vector<std::shared_ptr<const Dataset>> parts_;
  std::vector<Unused> beside_;
  std::vector<std::int64_t> ends_;
  ImageSpec spec_;
};

class UnreadableSample final : public Dataset {
 public:
  UnreadableSample(const Dataset& like, std::string why, Unused unused)
      : spec_(like.spec()),
        fields_(like.fields()),
        class_names_(like.class_names()),
        why_(std::move(why)),
        unused_{std::move(unused)} {}

  std::int64_t size() const override { return 1; }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override { return fields_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  StoredSample fetch(std::int64_t, std::vector<std::byte>&) const override {
    detail::fail<IoError>("{}", why_);
  }
  std::int64_t label(std::int64_t) const override { return 0; }
  std::vector<double> numbers(std::string_view field) const override {
    const auto at = std::ranges::find(fields_, field, &FieldSpec::name);
    return std::vector<double>(at == fields_.end() ? 0 : static_cast<std::size_t>(at->shape.numel()),
                               std::nan(""));
  }
  std::uint64_t sample_id(std::int64_t) const override { return kernels::fnv1a(why_); }
  std::vector<Unused> unused() const override { return unused_; }

 private:
  ImageSpec spec_;
  std::vector<FieldSpec> fields_;
  std::vector<std::string> class_names_;
  std::string why_;
  std::vector<Unused> unused_;
};

}  // namespace

Unused damaged_file(const std::string& file, const std::string& lost) {
  return {"damaged files with samples that cannot be read", 1, {fmt::format("{}: {}", file, lost)}};
}

std::unique_ptr<Dataset> unreadable_sample(const Dataset& like, std::string why, Unused unused) {
  return std::make_unique<UnreadableSample>(like, std::move(why), std::move(unused));
}

std::unique_ptr<Dataset> with_unreadable(std::unique_ptr<Dataset> store, const std::string& why,
                                         const Unused& unused) {
  if (why.empty()) return store;
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(std::move(store));
  parts.push_back(unreadable_sample(*parts[0], why, unused));
  return join(std::move(parts));
}

std::unique_ptr<Dataset> join(std::vector<std::shared_ptr<const Dataset>> parts, std::vector<Unused> beside) {
  return std::make_unique<JoinedStore>(std::move(parts), std::move(beside));
}

std::unique_ptr<Dataset> join(std::vector<std::unique_ptr<Dataset>> parts) {
  return join({std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end())},
              std::vector<Unused>());
}

}  // namespace athanor
