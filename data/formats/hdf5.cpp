#include "data/formats/hdf5.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/dense_store.h"
#include "data/formats/detail/hdf5_library.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using detail::Hdf5Handle;
using detail::Hdf5Lock;
using Dims = std::vector<hsize_t>;

constexpr char kAdvice[] = "write it again with h5py";
/// More than deflate can expand a byte to: a size beyond it was made up.
constexpr std::int64_t kMostExpansion = 1040;
constexpr std::array<std::pair<const char*, const char*>, 6> kNames{{{"images", "labels"},
                                                                     {"x", "y"},
                                                                     {"x_train", "y_train"},
                                                                     {"x_test", "y_test"},
                                                                     {"data", "label"},
                                                                     {"X", "Y"}}};

herr_t refuse_external_link(const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) {
  return -1;
}

class Hdf5Store final : public SampleStore {
 public:
  Hdf5Store(const std::filesystem::path& path, const Hdf5Options& options) : map_(path, "hdf5", kAdvice) {
    detail::check_classes(options.classes, "hdf5");
    ATH_CHECK(options.images.empty() == options.labels.empty(),
              "hdf5: the names of images and labels must be given together, but one is empty");
    const Hdf5Lock lock;
    file_ = {H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), &H5Fclose};
    if (!file_) fail("must be a whole HDF5 file, but got: " + detail::hdf5_reason());
    std::string images = options.images, labels = options.labels;
    for (const auto& [x, y] : kNames) {
      if (images.empty() && is_there(x) && is_there(y)) images = x, labels = y;
    }
    if (images.empty())
      fail("must have data sets images and labels, x and y or the like, but has not: name yours");
    images_ = open(images);
    read_shape(images);
    read_labels(labels, options.classes);
    const std::int64_t cached = std::max<std::int64_t>(1, options.cache_bytes / (rows_ * spec_.bytes()));
    blocks_.resize(static_cast<std::size_t>(std::min(cached, (size() + rows_ - 1) / rows_)));
  }

  ~Hdf5Store() override {
    const Hdf5Lock lock;
    images_.reset();
    file_.reset();
  }

  std::int64_t size() const override { return std::ssize(labels_); }
  const ImageSpec& spec() const override { return spec_; }
  std::string where(std::int64_t i) const override { return fmt::format("{}, image {}", map_.name(), i); }

  StoredSample fetch(std::int64_t i, std::vector<std::byte>& scratch) const override {
    detail::check_index(i, size(), "store");
    const Hdf5Lock lock;
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

  bool is_there(const char* name) const { return H5Lexists(file_.get(), name, H5P_DEFAULT) > 0; }

  Hdf5Handle open(const std::string& name) const {
    const Hdf5Handle links(H5Pcreate(H5P_DATASET_ACCESS), &H5Pclose);
    H5Pset_elink_cb(links.get(), &refuse_external_link, nullptr);
    H5Pset_chunk_cache(links.get(), 0, 0,
                       H5D_CHUNK_CACHE_W0_DEFAULT);  // we keep whole rows of chunks ourselves
    Hdf5Handle set(H5Dopen2(file_.get(), name.c_str(), links.get()), &H5Dclose);
    if (!set) {
      fail(fmt::format("must have the data set {}, but got: {}", detail::printable(name),
                       detail::hdf5_reason()));
    }
    const Hdf5Handle created(H5Dget_create_plist(set.get()), &H5Pclose);
    if (H5Pget_layout(created.get()) == H5D_VIRTUAL || H5Pget_external_count(created.get()) != 0) {
      fail(fmt::format("{} must lie in this file, but is virtual or external", detail::printable(name)));
    }
    return set;
  }

  Dims dims_of(const Hdf5Handle& set) const {
    const Hdf5Handle space(H5Dget_space(set.get()), &H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    Dims dims(static_cast<std::size_t>(std::max(rank, 0)));
    if (rank < 0 || H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr) < 0) {
      fail("the shape of a data set must be readable, but got: " + detail::hdf5_reason());
    }
    return dims;
  }

  void read_shape(const std::string& name) {
    const Hdf5Handle type(H5Dget_type(images_.get()), &H5Tclose);
    if (H5Tget_class(type.get()) != H5T_INTEGER || H5Tget_size(type.get()) != 1 ||
        H5Tget_sign(type.get()) != H5T_SGN_NONE) {
      fail(fmt::format("{} must be of type u8, but is not: astype(numpy.uint8) in Python makes them so",
                       detail::printable(name)));
    }
    dims_ = dims_of(images_);
    const auto side = [&](std::size_t i) {
      return dims_[i] > INT32_MAX ? std::int64_t{0} : static_cast<std::int64_t>(dims_[i]);
    };
    if (dims_.size() != 3 && dims_.size() != 4) {
      fail(fmt::format("{} must be [N, H, W] or [N, H, W, C], but the shape is [{}]", detail::printable(name),
                       fmt::join(dims_, ", ")));
    }
    spec_ = {side(1), side(2), dims_.size() == 4 ? side(3) : 1, 0};
    if (const auto bad = detail::bad_image(spec_.height, spec_.width, spec_.channels)) fail(*bad);
    const std::int64_t image_bytes =
        std::max<std::int64_t>(1, spec_.bytes());  // the analyzer sees no check above
    const std::int64_t most = map_.size() * kMostExpansion / image_bytes;
    if (dims_[0] == 0 || dims_[0] > static_cast<hsize_t>(most)) {
      fail(fmt::format(
          "there must be at least one image, and no more than fit into the file, but there are {}",
          dims_[0]));
    }
    const auto count = static_cast<std::int64_t>(dims_[0]);
    rows_ = std::clamp<std::int64_t>((std::int64_t{1} << 20) / image_bytes, 1, count);
    const Hdf5Handle created(H5Dget_create_plist(images_.get()), &H5Pclose);
    if (H5Pget_layout(created.get()) == H5D_CHUNKED) {
      Dims chunk(dims_.size());
      if (H5Pget_chunk(created.get(), static_cast<int>(chunk.size()), chunk.data()) < 0 || chunk[0] == 0) {
        fail("the chunks must be readable, but got: " + detail::hdf5_reason());
      }
      rows_ = static_cast<std::int64_t>(std::min(chunk[0], dims_[0]));
    }
    if (const auto bytes = detail::product({rows_, spec_.bytes()});
        !bytes || *bytes > detail::kMaxImageBytes) {
      fail(fmt::format(
          "a row of chunks must have at most 1 GiB, but has {} images of {} bytes; write smaller chunks",
          rows_, spec_.bytes()));
    }
  }

  void read_labels(const std::string& name, std::int64_t classes) {
    const Hdf5Handle set = open(name), type(H5Dget_type(set.get()), &H5Tclose);
    if (H5Tget_class(type.get()) != H5T_INTEGER) {
      fail(fmt::format("{} must be of a whole type, but is not: astype(numpy.int64) in Python makes them so",
                       detail::printable(name)));
    }
    const Dims dims = dims_of(set);
    if (dims.empty() || dims[0] != dims_[0] || dims.size() > 2 || (dims.size() == 2 && dims[1] != 1)) {
      fail(fmt::format("there must be one label for each of {} images, but the shape is [{}]", dims_[0],
                       fmt::join(dims, ", ")));
    }
    labels_.resize(static_cast<std::size_t>(dims[0]));
    if (H5Dread(set.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, labels_.data()) < 0) {
      fail("the labels must be readable, but got: " + detail::hdf5_reason());
    }
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      if (const auto bad = detail::bad_label(labels_[i], classes)) {
        fail(fmt::format("{} (label {})", *bad, i));
      }
    }
    spec_.classes = detail::count_classes(labels_, classes);
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
    const std::int64_t first = index * rows_, count = std::min(rows_, size() - first);
    Dims start(dims_.size()), extent = dims_;
    start[0] = static_cast<hsize_t>(first);
    extent[0] = static_cast<hsize_t>(count);
    oldest->index = -1;
    oldest->bytes.resize(static_cast<std::size_t>(count * spec_.bytes()));
    const Hdf5Handle from(H5Dget_space(images_.get()), &H5Sclose);
    const Hdf5Handle to(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), &H5Sclose);
    if (H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) < 0 ||
        H5Dread(images_.get(), H5T_NATIVE_UINT8, to.get(), from.get(), H5P_DEFAULT, oldest->bytes.data()) <
            0) {
      fail(fmt::format("images {} to {} must be readable, but got: {}", first, first + count - 1,
                       detail::hdf5_reason()));
    }
    oldest->index = index;
    oldest->last_use = ++uses_;
    return *oldest;
  }

  detail::FileBytes map_;  ///< says what the file is and how large; nothing is read from it
  Hdf5Handle file_, images_;
  Dims dims_;
  ImageSpec spec_;
  std::int64_t rows_ = 1;  ///< images in a block
  std::vector<std::int64_t> labels_;
  // Guarded by the library's lock.
  mutable std::vector<Block> blocks_;
  mutable std::uint64_t uses_ = 0;
};

}  // namespace

std::unique_ptr<SampleStore> open_hdf5(const std::filesystem::path& path, const Hdf5Options& options) {
  return std::make_unique<Hdf5Store>(path, options);
}

}  // namespace athanor
