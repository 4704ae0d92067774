#include "data/formats/hdf5.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/child_process.h"
#include "data/formats/detail/dense_store.h"
#include "data/formats/detail/hdf5_file.h"
#include "tensor/error.h"

// libhdf5 crashes and hangs on damaged files, so it reads in a process of its own (detail/child_process.h),
// which answers with the shape of the data sets, and with rows of images and labels. Nothing it says is
// believed before it has been compared with the file: a library whose memory is damaged may say anything.

namespace athanor {
namespace {

using detail::ChildProcess;
using detail::Hdf5Shape;

constexpr char kAdvice[] = "write it again with h5py";
using detail::kMostExpansion;

enum class What : std::int64_t { shape, images, labels };
struct Request {
  What what = What::shape;
  std::int64_t first = 0, count = 0;
};

template <class T> std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}
template <class T> std::optional<T> value_of(std::string_view bytes) {
  if (bytes.size() != sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

/// What the child does.
ChildProcess::Serve server(std::string path, std::string images, std::string labels) {
  return [path = std::move(path), images = std::move(images), labels = std::move(labels),
          file = std::shared_ptr<detail::Hdf5File>()](std::string_view text,
                                                      std::span<std::byte> window) mutable -> std::string {
    if (!file) file = std::make_shared<detail::Hdf5File>(path, images, labels);
    const Request request = value_of<Request>(text).value();
    if (request.what == What::images) file->read_images(request.first, request.count, window);
    if (request.what == What::labels) file->read_labels(request.first, request.count, window);
    return std::string(bytes_of(file->shape()));
  };
}

class Hdf5Store final : public SampleStore {
 public:
  Hdf5Store(const std::filesystem::path& path, const Hdf5Options& options)
      : options_(options), map_(path, "hdf5", kAdvice) {
    detail::check_classes(options.classes, "hdf5");
    ATH_CHECK(options.images.empty() == options.labels.empty(),
              "hdf5: the names of images and labels must be given together, but one is empty");
    ATH_CHECK(options.patience_s > 0, "hdf5: patience must be more than 0 s, but got {}", options.patience_s);
    const auto size = static_cast<std::int64_t>(map_.size());
    const std::int64_t most = std::min(size, detail::kMaxImageBytes / kMostExpansion) * kMostExpansion;
    window_bytes_ = std::max<std::int64_t>(most, sizeof(std::int64_t));
    shape_ = ask({});
    read_shape();
    read_labels();
    const std::int64_t cached = std::max<std::int64_t>(1, options.cache_bytes / (rows_ * spec_.bytes()));
    blocks_.resize(static_cast<std::size_t>(std::min(cached, (size_ + rows_ - 1) / rows_)));
  }

  std::int64_t size() const override { return std::ssize(labels_); }
  const ImageSpec& spec() const override { return spec_; }
  std::string where(std::int64_t i) const override { return fmt::format("{}, image {}", map_.name(), i); }

  StoredSample fetch(std::int64_t i, std::vector<std::byte>& scratch) const override {
    detail::check_index(i, size(), "store");
    const std::lock_guard lock(mutex_);
    const Block& block = block_of(i / rows_);
    const auto bytes = static_cast<std::size_t>(spec_.bytes());
    const auto from = block.bytes.begin() + i % rows_ * spec_.bytes();
    scratch.assign(from, from + static_cast<std::ptrdiff_t>(bytes));
    return {scratch,     Codec::raw,     spec_.height,
            spec_.width, spec_.channels, labels_[static_cast<std::size_t>(i)]};
  }

 private:
  /// Rows [index * rows_, ...) of the images.
  struct Block {
    std::int64_t index = -1;
    std::uint64_t last_use = 0;
    std::vector<std::byte> bytes;
  };

  [[noreturn]] void fail(const std::string& message) const { map_.fail(0, message); }

  /// The shape, always; what else was asked for is in the window. After a child was lost there is a new one:
  /// other rows may be whole.
  Hdf5Shape ask(const Request& request) const {
    if (!child_) {
      const detail::Hdf5Lock lock;  // so that no other thread is in the library, nor in this place
      child_ = std::make_unique<ChildProcess>(static_cast<std::size_t>(window_bytes_),
                                              server(map_.name(), options_.images, options_.labels));
    }
    const ChildProcess::Answer answer = child_->ask(bytes_of(request), options_.patience_s);
    if (answer.outcome == ChildProcess::Outcome::answered) {
      if (const auto shape = value_of<Hdf5Shape>(answer.text)) return *shape;
    }
    const bool refused = answer.outcome == ChildProcess::Outcome::refused;
    if (!refused) child_.reset();
    if (refused) fail(answer.text);
    const char* const how = answer.outcome == ChildProcess::Outcome::lost
                                ? answer.text.c_str()
                                : "gave an answer to something else";
    fail(fmt::format("{} must be readable, but libhdf5, in a process of its own, {}", named(request), how));
  }

  static std::string named(const Request& request) {
    if (request.what == What::shape) return "the file";
    return fmt::format("{} {} to {}", request.what == What::images ? "images" : "labels", request.first,
                       request.first + request.count - 1);
  }

  /// Rows of the images or labels, copied out of the window.
  void read(const Request& request, std::span<std::byte> to) const {
    if (ask(request) != shape_) fail("must stay what it was, but now holds data sets of another shape");
    std::memcpy(to.data(), child_->window().data(), to.size());
  }

  void read_shape() {
    const auto side = [&](std::size_t i) {
      return shape_.dims[i] > INT32_MAX ? std::int64_t{0} : static_cast<std::int64_t>(shape_.dims[i]);
    };
    spec_ = {side(1), side(2), side(3), 0};
    if (const auto bad = detail::bad_image(spec_.height, spec_.width, spec_.channels)) fail(*bad);
    const std::int64_t image_bytes =
        std::max<std::int64_t>(1, spec_.bytes());  // the analyzer sees no check above
    const std::int64_t most = map_.size() * kMostExpansion / image_bytes;
    if (shape_.dims[0] == 0 || shape_.dims[0] > static_cast<std::uint64_t>(most)) {
      fail(fmt::format(
          "there must be at least one image, and no more than fit into the file, but there are {}",
          shape_.dims[0]));
    }
    size_ = static_cast<std::int64_t>(shape_.dims[0]);
    rows_ = std::clamp<std::int64_t>((std::int64_t{1} << 20) / image_bytes, 1, size_);
    if (shape_.chunk > 0) rows_ = static_cast<std::int64_t>(std::min(shape_.chunk, shape_.dims[0]));
    if (const auto bytes = detail::product({rows_, spec_.bytes()}); !bytes || *bytes > window_bytes_) {
      fail(fmt::format(
          "a row of chunks must have at most 1 GiB, but has {} images of {} bytes; write smaller chunks",
          rows_, spec_.bytes()));
    }
  }

  void read_labels() {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(std::int64_t));
    labels_.resize(static_cast<std::size_t>(size_));
    const std::span<std::int64_t> all(labels_);
    const std::int64_t most = window_bytes_ / kBytes;
    for (std::int64_t first = 0; first < size_; first += most) {
      const std::int64_t count = std::min(most, size_ - first);
      read({What::labels, first, count},
           std::as_writable_bytes(
               all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))));
    }
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      if (const auto bad = detail::bad_label(labels_[i], options_.classes)) {
        fail(fmt::format("{} (label {})", *bad, i));
      }
    }
    spec_.classes = detail::count_classes(labels_, options_.classes);
  }

  const Block& block_of(std::int64_t index) const {
    Block* oldest = &blocks_[0];
    for (Block& block : blocks_) {
      if (block.index == index) {
        block.last_use = ++uses_;
        return block;
      }
      if (block.last_use < oldest->last_use) oldest = &block;
    }
    const std::int64_t first = index * rows_, count = std::min(rows_, size_ - first);
    oldest->index = -1;
    oldest->bytes.resize(static_cast<std::size_t>(count * spec_.bytes()));
    read({What::images, first, count}, oldest->bytes);
    oldest->index = index;
    oldest->last_use = ++uses_;
    return *oldest;
  }

  const Hdf5Options options_;
  detail::FileBytes map_;  ///< says what the file is and how large; nothing is read from it
  std::int64_t window_bytes_ = 0;
  Hdf5Shape shape_;
  ImageSpec spec_;
  std::int64_t size_ = 0, rows_ = 1;  ///< images; images in a block
  std::vector<std::int64_t> labels_;
  mutable std::mutex mutex_;  ///< of what follows
  mutable std::unique_ptr<ChildProcess> child_;
  mutable std::vector<Block> blocks_;
  mutable std::uint64_t uses_ = 0;
};

}  // namespace

std::unique_ptr<SampleStore> open_hdf5(const std::filesystem::path& path, const Hdf5Options& options) {
  return std::make_unique<Hdf5Store>(path, options);
}

}  // namespace athanor
