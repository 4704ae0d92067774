#include <algorithm>

#include "data/formats/detail/dense_store.h"
#include "data/formats/detail/hdf5_library.h"
#include "data/formats/detail/temporary_file.h"
#include "data/formats/detail/writing.h"
#include "data/formats/hdf5.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using detail::Hdf5Handle;
using detail::Hdf5Lock;
using Dims = std::vector<hsize_t>;

constexpr std::int64_t kChunkBytes = 1 << 20;

class Hdf5Writer final : public SampleWriter {
 public:
  Hdf5Writer(const std::filesystem::path& path, int deflate) : name_(path), deflate_(deflate) {
    ATH_CHECK(deflate >= 0 && deflate <= 9, "hdf5: deflate must be in [0, 9], but got {}", deflate);
    const Hdf5Lock lock;
    file_ = {H5Fcreate(name_.name().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), &H5Fclose};
    check(static_cast<bool>(file_), "create");
  }

  ~Hdf5Writer() override {
    const Hdf5Lock lock;
    images_.reset();
    file_.reset();
  }

  void add(const StoredSample& sample) override {
    samples_.add(sample);
    if (samples_.size() == 1) {
      const ImageSpec& spec = samples_.spec();
      rows_ = std::max<std::int64_t>(1, kChunkBytes / spec.bytes());
      shape_ = {0, static_cast<hsize_t>(spec.height), static_cast<hsize_t>(spec.width),
                static_cast<hsize_t>(spec.channels)};
    }
    buffer_.insert(buffer_.end(), sample.bytes.begin(), sample.bytes.end());
    if (samples_.size() % rows_ == 0) flush();
  }

  void finish() override {
    samples_.check_some();
    flush();
    {
      const Hdf5Lock lock;
      Hdf5Handle labels =
          create("labels", H5T_STD_I64LE, {0}, std::min<std::int64_t>(samples_.size(), 1 << 16));
      append(labels, {0}, samples_.size(), H5T_NATIVE_INT64, samples_.labels().data());
      check(
          labels.reset() && images_.reset() && H5Fflush(file_.get(), H5F_SCOPE_GLOBAL) >= 0 && file_.reset(),
          "close");
    }
    name_.commit();
  }

 private:
  void check(bool good, const char* what) const {
    if (!good) {
      detail::fail<IoError>("hdf5: cannot {} {} at sample {}: {}", what, name_.name().string(),
                            samples_.size(), detail::hdf5_reason());
    }
  }

  /// An empty data set that grows along its first axis, in chunks of `rows`.
  Hdf5Handle create(const char* name, hid_t type, const Dims& shape, std::int64_t rows) const {
    Dims chunk = shape, most = shape;
    chunk[0] = static_cast<hsize_t>(rows);
    most[0] = H5S_UNLIMITED;
    const Hdf5Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), most.data()),
                           &H5Sclose);
    const Hdf5Handle how(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
    H5Pset_obj_track_times(how.get(), false);  // the same samples make the same bytes
    check(H5Pset_chunk(how.get(), static_cast<int>(chunk.size()), chunk.data()) >= 0, "lay out");
    if (deflate_ > 0) check(H5Pset_deflate(how.get(), static_cast<unsigned>(deflate_)) >= 0, "compress");
    check(H5Pset_fletcher32(how.get()) >= 0, "check");
    Hdf5Handle set(H5Dcreate2(file_.get(), name, type, space.get(), H5P_DEFAULT, how.get(), H5P_DEFAULT),
                   &H5Dclose);
    check(static_cast<bool>(set), "create a data set in");
    return set;
  }

  /// Adds `rows` to a data set of that shape.
  void append(const Hdf5Handle& set, Dims shape, std::int64_t rows, hid_t type, const void* data) const {
    Dims start(shape.size()), extent = shape;
    start[0] = shape[0];
    extent[0] = static_cast<hsize_t>(rows);
    shape[0] += extent[0];
    check(H5Dset_extent(set.get(), shape.data()) >= 0, "enlarge");
    const Hdf5Handle to(H5Dget_space(set.get()), &H5Sclose);
    const Hdf5Handle from(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr),
                          &H5Sclose);
    check(H5Sselect_hyperslab(to.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) >= 0 &&
              H5Dwrite(set.get(), type, from.get(), to.get(), H5P_DEFAULT, data) >= 0,
          "write");
  }

  void flush() {
    if (buffer_.empty()) return;
    const Hdf5Lock lock;
    const std::int64_t rows = std::ssize(buffer_) / samples_.spec().bytes();
    if (!images_) images_ = create("images", H5T_STD_U8LE, shape_, rows);  // a small set is one small chunk
    append(images_, shape_, rows, H5T_NATIVE_UINT8, buffer_.data());
    shape_[0] += static_cast<hsize_t>(rows);
    buffer_.clear();
  }

  detail::TemporaryFile name_;
  int deflate_;
  detail::UniformSamples samples_{"hdf5"};
  Hdf5Handle file_, images_;
  Dims shape_;
  std::int64_t rows_ = 1;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::unique_ptr<SampleWriter> create_hdf5(const std::filesystem::path& path, int deflate) {
  return std::make_unique<Hdf5Writer>(path, deflate);
}

}  // namespace athanor
