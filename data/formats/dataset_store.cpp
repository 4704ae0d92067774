#include "data/formats/dataset_store.h"

#include "data/formats/detail/dense_store.h"
#include "tensor/error.h"

namespace athanor {
namespace {

class DatasetStore final : public SampleStore {
 public:
  explicit DatasetStore(std::shared_ptr<const Dataset> source) : source_(std::move(source)) {
    ATH_CHECK(source_, "dataset store: needs a data set, but got none");
  }

  std::int64_t size() const override { return source_->size(); }
  const ImageSpec& spec() const override { return source_->spec(); }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    detail::check_index(index, size(), "store");
    const ImageSpec& spec = source_->spec();
    scratch.resize(static_cast<std::size_t>(spec.bytes()));
    const std::int64_t label =
        source_->read(index, {reinterpret_cast<std::uint8_t*>(scratch.data()), scratch.size()});
    return {scratch, Codec::raw, spec.height, spec.width, spec.channels, label};
  }
  std::string where(std::int64_t index) const override {
    const std::string place = source_->where(index);
    return place.empty() ? fmt::format("image {} of a data set", index) : place;
  }
  bool resident() const override { return source_->resident(); }

 private:
  std::shared_ptr<const Dataset> source_;
};

}  // namespace

std::unique_ptr<SampleStore> dataset_store(std::shared_ptr<const Dataset> source) {
  return std::make_unique<DatasetStore>(std::move(source));
}

}  // namespace athanor
