#include "data/formats/detail/writing.h"

#include <deque>

#include "data/formats/detail/indexed_store.h"
#include "tensor/base/error.h"

namespace athanor::detail {

void OutputFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kBuffer = std::size_t{1} << 20;
  size_ += std::ssize(bytes);
  if (buffer_.size() + bytes.size() > kBuffer) flush();
  if (bytes.size() > kBuffer) {
    file_.write(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void OutputFile::flush() {
  file_.write(buffer_);
  buffer_.clear();
}

void OutputFile::rewrite(std::int64_t offset, std::span<const std::byte> bytes) {
  flush();
  file_.write_at(static_cast<std::uint64_t>(offset), bytes);
}

void OutputFile::commit() {
  flush();
  file_.commit();
}

FolderOf::FolderOf(const std::filesystem::path& path) : folder_(path.parent_path()) {
  std::error_code error;
  made_ = std::filesystem::create_directory(folder_, error);
}

FolderOf::~FolderOf() {
  std::error_code not_empty;
  if (made_) std::filesystem::remove(folder_, not_empty);
}

void check_sample(const StoredSample& sample, std::int64_t index, const char* format) {
  ATH_CHECK(sample.more.empty(),
            "{}: sample {} must have only an image and a label, but has {} more fields; a packed file "
            "(.athp) can hold them",
            format, index, sample.more.size());
  ATH_CHECK(sample.label >= 0 && sample.label < kMaxClasses,
            "{}: the label of sample {} must be in [0, {}), but got {}", format, index, kMaxClasses,
            sample.label);
  ATH_CHECK(!sample.bytes.empty() && std::ssize(sample.bytes) <= kMaxImageBytes,
            "{}: sample {} must have 1 byte to 1 GiB, but has {}", format, index, sample.bytes.size());
  if (sample.codec != Codec::raw) return;
  ATH_CHECK(fits_shape(sample),
            "{}: sample {} must have height x width x channels bytes, but has {}x{}x{} and {} bytes", format,
            index, sample.height, sample.width, sample.channels, sample.bytes.size());
}

void check_some(std::int64_t samples, const char* format) {
  ATH_CHECK(samples > 0, "{}: a file must have at least one sample, but got none", format);
}

void UniformSamples::add(const StoredSample& sample) {
  check_sample(sample, size(), format_);
  ATH_CHECK(classes_ == 0 || sample.label < classes_, "{}: labels must be below {}, but got {}", format_,
            classes_, sample.label);
  ATH_CHECK(sample.codec == Codec::raw,
            "{}: this format holds raw images only, but sample {} is {}; decode it first, or write a format "
            "that keeps it: packed, TFRecord or tar",
            format_, size(), name_of(sample.codec));
  const ImageSpec spec{sample.height, sample.width, sample.channels, 0};
  if (labels_.empty()) spec_ = spec;
  ATH_CHECK(spec == spec_,
            "{}: this format holds images of one size only, but sample {} is {}x{}x{} and the previous ones "
            "are {}x{}x{}; resize them first, or write a format for any size: packed or TFRecord",
            format_, size(), spec.height, spec.width, spec.channels, spec_.height, spec_.width,
            spec_.channels);
  labels_.push_back(sample.label);
}

namespace {

class DenseWriter final : public SampleWriter {
 public:
  DenseWriter(const std::filesystem::path& images, const UniformSamples& samples, DenseHeader header,
              const std::vector<SideFile>& sides)
      : samples_(samples), header_(header), images_(images) {
    for (const SideFile& side : sides) sides_.emplace_back(side.path, side.content);
  }

  void add(const StoredSample& sample) override {
    samples_.add(sample);
    if (samples_.size() == 1) images_.write(header_(1, samples_.spec()));
    images_.write(sample.bytes);
  }

  void finish() override {
    samples_.check_some();
    images_.rewrite(0, header_(samples_.size(), samples_.spec()));
    for (auto& [file, content] : sides_) {
      file.write(content(samples_));
      file.commit();
    }
    images_.commit();
  }

 private:
  UniformSamples samples_;
  DenseHeader header_;
  OutputFile images_;
  std::deque<std::pair<OutputFile, decltype(SideFile::content)>> sides_;  // stable addresses
};

}  // namespace

std::unique_ptr<SampleWriter> create_dense(const std::filesystem::path& images, const UniformSamples& samples,
                                           DenseHeader header, const std::vector<SideFile>& sides) {
  return std::make_unique<DenseWriter>(images, samples, header, sides);
}

}  // namespace athanor::detail
