#include "data/formats/import/hdf5.h"

#include <algorithm>
#include <string_view>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/indexed_store.h"
#include "data/formats/detail/writing.h"
#include "data/formats/import/detail/hdf5_work.h"
#include "tensor/error.h"

// The child's answers are checked against the file: a library with corrupted memory may return anything.

namespace athanor {
namespace {

using detail::ChildProcess;
using detail::Hdf5Shape;

constexpr char kHdf5Advice[] = "write it again with h5py";
constexpr std::int64_t kFewImages = 1 << 20;

class Hdf5Sequence final : public SampleSequence {
 public:
  Hdf5Sequence(const std::filesystem::path& path, const Hdf5Options& options)
      : options_(checked(path, options)),
        file_(path, "hdf5", kHdf5Advice),
        child_(
            [&](ChildProcess::Owner& owner) {
              detail::read_hdf5(file_.name(), options_.images, options_.labels, owner);
            },
            options.patience_s) {
    read_shape();
    read_labels();
    image_.resize(static_cast<std::size_t>(spec_.bytes()));
  }

  std::int64_t size() const override { return std::ssize(labels_); }
  const ImageSpec& spec() const override { return spec_; }
  StoredSample next() override {
    detail::check_index(next_, size(), "hdf5");
    read(image_, fmt::format("image {}", next_));
    const std::int64_t label = labels_[static_cast<std::size_t>(next_++)];
    if (next_ == size()) check_length();
    return {image_, Codec::raw, spec_.height, spec_.width, spec_.channels, label};
  }

 private:
  static Hdf5Options checked(const std::filesystem::path& path, const Hdf5Options& options) {
    detail::require_hdf5(path.string());
    detail::check_classes(options.classes, "hdf5");
    ATH_CHECK(options.images.empty() == options.labels.empty(),
              "hdf5: the names of images and labels must be given together, but one is empty");
    return options;
  }

  template <class... Args> [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    file_.fail(0, message, std::forward<Args>(args)...);
  }

  void read(std::span<std::byte> to, const std::string& what) {
    try {
      child_.read(to);
    } catch (const detail::ChildFailure& failure) {
      if (std::string_view(failure.what()) == detail::kHdf5Locked)
        detail::fail<IoError>(
            "hdf5: {} {}: close it there, or set HDF5_USE_FILE_LOCKING=FALSE to read it all the same",
            file_.name(), failure.what());
      if (!failure.lost) fail("{}", failure.what());
      fail("cannot read {}: libhdf5, in a separate process, {}", what, failure.what());
    }
  }

  /// Behind the end of a file that became shorter, libhdf5 reads zeros.
  void check_length() const {
    std::vector<std::byte> last;
    (void)file_.at(file_.size() - 1, 1, "the file", last);
  }

  void read_shape() {
    Hdf5Shape shape;
    read(std::as_writable_bytes(std::span(&shape, 1)), "the file");
    const auto side = [&](std::size_t i) {
      return shape.dims[i] > INT32_MAX ? std::int64_t{0} : static_cast<std::int64_t>(shape.dims[i]);
    };
    spec_ = {side(1), side(2), side(3), 0};
    if (const auto bad = detail::bad_image(spec_)) fail("{}", *bad);
    if (const auto bad = detail::channels_first(spec_)) fail("{}", *bad);
    // A few images may compress to almost nothing; many need at least a byte of the file each.
    const std::int64_t bytes = std::max<std::int64_t>(spec_.bytes(), 1);  // the analyzer assumes it can be 0
    const std::int64_t most =
        std::min(std::max(file_.size(), kFewImages), file_.size() * detail::kMaxExpansion / bytes);
    if (shape.dims[0] == 0 || shape.dims[0] > static_cast<std::uint64_t>(most)) {
      fail("the file must have at least one image, and no more than fit into it, but has {}", shape.dims[0]);
    }
    labels_.resize(static_cast<std::size_t>(shape.dims[0]));
  }

  void read_labels() {
    read(std::as_writable_bytes(std::span(labels_)), "labels");
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      if (const auto bad = detail::bad_label(labels_[i], options_.classes)) {
        fail("{} (label {})", *bad, i);
      }
    }
    spec_.classes = detail::count_classes(labels_, options_.classes);
  }

  const Hdf5Options options_;
  detail::FileBytes file_;  ///< its name and size; only its last byte is read, to see that it is there
  ChildProcess child_;
  ImageSpec spec_;
  std::vector<std::int64_t> labels_;
  std::vector<std::byte> image_;
  std::int64_t next_ = 0;
};

class Hdf5Writer final : public SampleWriter {
 public:
  Hdf5Writer(const std::filesystem::path& path, int deflate)
      : folder_(path),
        file_(path),
        child_(
            [&](ChildProcess::Owner& owner) {
              detail::write_hdf5(file_.temporary().string(), deflate, owner);
            },
            kPatience_s, ChildProcess::Files::may_write) {}

  void add(const StoredSample& sample) override {
    samples_.add(sample);
    const ImageSpec& spec = samples_.spec();
    if (samples_.size() == 1) {
      rows_ = std::max<std::int64_t>(1, kChunkBytes / spec.bytes());
      for (const std::int64_t side : {spec.height, spec.width, spec.channels}) send(side);
    }
    buffer_.insert(buffer_.end(), sample.bytes.begin(), sample.bytes.end());
    if (samples_.size() % rows_ == 0) flush();
  }

  void finish() override {
    samples_.check_some();
    flush();
    send(0);
    send(samples_.size());
    send(std::as_bytes(std::span(samples_.labels())));
    attempt([&] { child_.finish(); });
    file_.commit();
  }

 private:
  static constexpr std::int64_t kChunkBytes = 1 << 20;
  static constexpr double kPatience_s = 600;  // a disk may be slow

  template <class F> void attempt(const F& step) {
    try {
      step();
    } catch (const detail::ChildFailure& failure) {
      detail::fail<IoError>("hdf5: cannot write {} at sample {}: {}{}", file_.temporary().string(),
                            samples_.size(), failure.lost ? "libhdf5, in a separate process, " : "",
                            failure.what());
    }
  }
  void send(std::span<const std::byte> bytes) {
    attempt([&] { child_.write(bytes); });
  }
  void send(std::int64_t number) { send(std::as_bytes(std::span(&number, 1))); }
  void flush() {
    if (buffer_.empty()) return;
    send(std::ssize(buffer_) / samples_.spec().bytes());
    send(buffer_);
    buffer_.clear();
  }

  detail::FolderOf folder_;
  AtomicFile file_;
  detail::UniformSamples samples_{"hdf5"};
  ChildProcess child_;
  std::int64_t rows_ = 1;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::unique_ptr<SampleSequence> read_hdf5(const std::filesystem::path& path, const Hdf5Options& options) {
  return std::make_unique<Hdf5Sequence>(path, options);
}

std::unique_ptr<Dataset> open_hdf5(const std::filesystem::path& path, const Hdf5Options& options,
                                   const ImportNotice& on_import) {
  const std::string how = fmt::format("{}\n{}\n{}", options.images, options.labels, options.classes);
  return open_imported(
      path, how, [&] { return read_hdf5(path, options); }, on_import);
}

std::unique_ptr<SampleWriter> create_hdf5(const std::filesystem::path& path, int deflate) {
  detail::require_hdf5(path.string());
  ATH_CHECK(deflate >= 0 && deflate <= 9, "hdf5: deflate must be in [0, 9], but got {}", deflate);
  return std::make_unique<Hdf5Writer>(path, deflate);
}

}  // namespace athanor
