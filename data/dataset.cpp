#include "data/dataset.h"

#include <cstring>

#include "tensor/error.h"

namespace athanor {

const char* name_of(Codec codec) {
  switch (codec) {
    case Codec::raw: return "raw";
    case Codec::jpeg: return "jpeg";
    case Codec::png: return "png";
  }
  return "unknown";
}

std::vector<FieldSpec> Dataset::fields() const {
  const ImageSpec& image = spec();
  return {{"image", DType::u8, {image.height, image.width, image.channels}}, {"label", DType::i64, {}}};
}

std::int64_t Dataset::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  thread_local std::vector<std::byte> scratch;
  ATH_CHECK(index >= 0 && index < size() && std::ssize(pixels) == spec().bytes() && !pixels.empty(),
            "dataset: image {} of {} cannot be read into {} bytes, which must be {}", index, size(),
            pixels.size(), spec().bytes());
  const StoredSample sample = fetch(index, scratch);
  ATH_CHECK(sample.codec == Codec::raw && sample.bytes.size() == pixels.size(),
            "dataset: image {} must be raw and of {} bytes, but is {} of {}: a DecodedDataset decodes it",
            index, pixels.size(), name_of(sample.codec), sample.bytes.size());
  std::memcpy(pixels.data(), sample.bytes.data(), pixels.size());
  return sample.label;
}

StoredSample ImageDataset::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  const ImageSpec& image = spec();
  ATH_CHECK(index >= 0 && index < size(), "dataset: index must be in [0, {}), but got {}", size(), index);
  scratch.resize(static_cast<std::size_t>(image.bytes()));
  const std::int64_t label = read(index, {reinterpret_cast<std::uint8_t*>(scratch.data()), scratch.size()});
  return {scratch, Codec::raw, image.height, image.width, image.channels, label};
}

}  // namespace athanor
