#include "data/decoded_dataset.h"

#include <algorithm>
#include <array>

#include "data/detail/thread_scratch.h"
#include "data/image/jpeg.h"
#include "data/image/reader.h"
#include "data/pixel_stage.h"
#include "data/sample_row.h"
#include "kernels/augment.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

/// Reused between images, for any data set.
ImageReader& thread_reader() {
  thread_local ImageReader mine;
  return mine;
}

/// PixelStage::HostDecoder.
void decode_whole(std::span<const std::byte> file, std::uint8_t* to) {
  JpegDecoder decoder;
  const ImageSize size = decoder.open(file);
  const ImageView whole = decoder.decode({0, 0, size.height, size.width});
  for (std::int64_t y = 0; y < whole.height; ++y)
    to = std::copy_n(whole.row(y), whole.width * whole.channels, to);
}

/// The form of a store's field once all images have one size.
FieldSpec decoded(FieldSpec field, const ImageSpec& size) {
  const bool image = field.name == "image" || field.kind == FieldKind::picture;
  if (image || field.kind == FieldKind::target) {
    const std::int64_t stored = field.shape.rank() == 3 ? field.shape[2] : 0;
    field.shape = {size.height, size.width, image ? size.channels : stored > 0 ? stored : 3};
  } else if (field.kind == FieldKind::mask) {
    field.shape = {size.height, size.width};
  }
  return field;
}

/// Converts boxes or points from the whole image to pixels of the transformed part.
void move(const Placement& at, const ImageSize& wanted, FieldKind kind, std::span<float> numbers) {
  const auto edge = [](const Window& window, double place) {
    return static_cast<float>((place - window.offset) / window.scale + static_cast<double>(window.begin));
  };
  const std::size_t each = kind == FieldKind::boxes ? 4 : 2;
  for (std::size_t i = 0; i < numbers.size(); i += each) {
    float* const to = numbers.data() + i;
    for (std::size_t k = 0; k < each; k += 2) {
      to[k] = edge(at.columns, double{to[k]});
      to[k + 1] = edge(at.rows, double{to[k + 1]});
    }
    // Clipping a box without moving it.
    if (each == 4)
      kernels::move_box({}, wanted.height, wanted.width, std::to_array({to[0], to[1], to[2], to[3]}).data(),
                        to);
  }
}

}  // namespace

DecodedDataset::DecodedDataset(std::shared_ptr<const Dataset> store, const ImageTransform& training,
                               const ImageTransform& evaluation, std::uint64_t seed)
    : DatasetView(std::move(store)), training_(training), evaluation_(evaluation), seed_(seed) {
  check(training);
  check(evaluation);
  ATH_CHECK(!evaluation.random_crop, "decoded data set: evaluation must not crop at random, but got: {}",
            describe(evaluation));
  ATH_CHECK(training.height == evaluation.height && training.width == evaluation.width,
            "decoded data set: training and evaluation must give images of one size, but got {}x{} and {}x{}",
            training.height, training.width, evaluation.height, evaluation.width);
  constexpr std::int64_t kRgb = 3;
  const ImageSpec& stored = source().spec();
  const bool resized = stored.height != training.height || stored.width != training.width;
  ATH_CHECK(stored.channels <= kMaxResizedChannels || !resized,
            "decoded data set: images must have at most {} channels to be resized, but have {}",
            kMaxResizedChannels, stored.channels);
  spec_ = {training.height, training.width, stored.channels > 0 ? stored.channels : kRgb, stored.classes};
  for (const FieldSpec& field : source().fields()) fields_.push_back(decoded(field, spec_));
  check_fields(fields_);
}

DecodedDataset::DecodedDataset(std::shared_ptr<const Dataset> store, const ImageTransform& evaluation)
    : DecodedDataset(std::move(store), evaluation, evaluation, 0) {}

std::string check_images(const Dataset& store, std::int64_t index) {
  detail::ThreadScratch scratch;
  const StoredSample sample = store.fetch(index, scratch.bytes());
  ImageReader& reader = thread_reader();
  try {
    const std::string harmless = reader.check(sample, store.fields());
    return harmless.empty() ? harmless : fmt::format("{}: {}", store.where(index), harmless);
  } catch (const IoError& error) {
    detail::fail<IoError>("{}: {}", store.where(index), error.what());
  }
}

template <class F> std::int64_t DecodedDataset::with_sample(std::int64_t index, const F& read) const {
  detail::ThreadScratch scratch;
  const StoredSample sample = source().fetch(index, scratch.bytes());
  try {
    read(sample);
  } catch (const IoError& error) {
    detail::fail<IoError>("{}: {}; replace or remove the file", where(index), error.what());
  }
  return sample.label;
}

std::int64_t DecodedDataset::transformed(const ImageTransform& transform, const DrawKey& key,
                                         std::span<std::uint8_t> pixels) const {
  ATH_CHECK(key.sample >= 0 && key.sample < size() && std::ssize(pixels) == spec_.bytes(),
            "decoded data set: image {} of {} cannot be read into a buffer of {} bytes; it needs {}",
            key.sample, size(), pixels.size(), spec_.bytes());
  return with_sample(key.sample, [&](const StoredSample& sample) {
    thread_reader().read(sample, transform, key, spec_.channels, pixels);
  });
}

void DecodedDataset::read_image(ImageReader& reader, const StoredSample& sample,
                                const ImageTransform& transform, const DrawKey& key, SampleRow& row) const {
  decode_image(reader, sample, transform, key, row);
  row.set_warning(reader.warning());
}

/// Decodes the image, and scales it unless a GPU does.
void DecodedDataset::decode_image(ImageReader& reader, const StoredSample& sample,
                                  const ImageTransform& transform, const DrawKey& key, SampleRow& row) const {
  if (!row.stages() || ImageReader::copies(sample, transform, spec_.channels))
    return reader.read(sample, transform, key, spec_.channels, row.image());
  const Placement at = place(transform, reader.open(sample), key);
  const ImageSize wanted{spec_.height, spec_.width};
  if (row.stages_files() && spec_.channels == 3) {
    const std::optional<ImagePart> whole = reader.undecoded(at, wanted);
    if (whole && row.stage_file(whole->staged(), sample.bytes, decode_whole)) return;
  }
  const ImagePart part = reader.part(at, wanted, transform.random_crop.has_value(), spec_.channels);
  const bool fits = part.pixels.channels == spec_.channels || part.pixels.channels == 1;
  std::uint8_t* to = fits ? row.stage(part.staged()) : nullptr;
  if (!to) return reader.scale(part, spec_.channels, row.image());
  const ImageView& pixels = part.pixels;
  for (std::int64_t y = 0; y < pixels.height; ++y)
    to = std::copy_n(pixels.row(y), pixels.width * pixels.channels, to);
}

void DecodedDataset::read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const {
  const ImageTransform& transform = epoch == kEvaluation ? evaluation_ : training_;
  const DrawKey key{seed_, std::max<std::int64_t>(epoch, 0), index};
  if (row.layout().others() == 0) {
    ATH_CHECK(index >= 0 && index < size(), "decoded data set: index must be in [0, {}), but got {}", size(),
              index);
    return row.set_label(with_sample(index, [&](const StoredSample& sample) {
      read_image(thread_reader(), sample, transform, key, row);
    }));
  }
  const ImageSize wanted{spec_.height, spec_.width};
  detail::ThreadScratch scratch;
  const StoredSample sample = source().fetch(index, scratch.bytes());
  ImageReader& reader = thread_reader();
  const std::string* of = &fields_[row.layout().image].name;
  try {
    const ImageSize size = reader.open(sample);
    const Placement at = place(transform, size, key);
    read_image(reader, sample, transform, key, row);
    row.set_label(sample.label);
    std::size_t next = 0;
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (i == row.layout().image || i == row.layout().label) continue;
      const FieldSpec& field = fields_[i];
      of = &field.name;
      if (next == sample.more.size()) detail::fail<IoError>("is missing");
      const StoredField& stored = sample.more[next++];
      if (field.kind == FieldKind::values || field.dtype == DType::f32) {
        row.set(i, stored.bytes);
        if (field.kind != FieldKind::values) move(at, wanted, field.kind, row.get<float>(field.name));
        continue;
      }
      must_have_size(size,
                     reader.open({stored.bytes, stored.codec, stored.height, stored.width, stored.channels}));
      const auto pixels = row.get<std::uint8_t>(field.name);
      if (field.kind == FieldKind::mask) {
        reader.read_nearest(at, wanted, pixels);
      } else {
        reader.read(at, wanted, transform.random_crop.has_value(), field.shape[2], pixels);
      }
    }
  } catch (const IoError& error) {
    detail::fail<IoError>("{}: field '{}': {}; replace or remove the file", where(index), *of, error.what());
  }
}

std::shared_ptr<const Dataset> DecodedDataset::with_size(std::int64_t height, std::int64_t width) const {
  const auto resized = [=](ImageTransform transform) {
    const std::int64_t was = std::min(transform.height, transform.width), is = std::min(height, width);
    const bool was_square = transform.height == transform.width;
    if (!was_square || height == width || transform.shorter_side == 0) {
      transform.shorter_side = (transform.shorter_side * is + was / 2) / was;
    } else {  // the same share of both sides
      transform.crop_share = static_cast<double>(was) / static_cast<double>(transform.shorter_side);
      transform.shorter_side = 0;
    }
    transform.height = height;
    transform.width = width;
    return transform;
  };
  return std::make_shared<DecodedDataset>(shared_source(), resized(training_), resized(evaluation_), seed_);
}

StoredSample DecodedDataset::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  return fetch_row(*this, index, scratch);
}

std::int64_t DecodedDataset::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  return transformed(evaluation_, {seed_, 0, index}, pixels);
}

std::int64_t DecodedDataset::read_in_epoch(std::int64_t index, std::int64_t epoch,
                                           std::span<std::uint8_t> pixels) const {
  return transformed(training_, {seed_, epoch, index}, pixels);
}

}  // namespace athanor
