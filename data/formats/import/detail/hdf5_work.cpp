#include "data/formats/import/detail/hdf5_work.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>

#include "data/formats/detail/bytes.h"

namespace athanor::detail {
namespace {

using Dims = std::vector<hsize_t>;
using Owner = ChildProcess::Owner;

constexpr std::array<std::pair<const char*, const char*>, 6> kNames{{{"images", "labels"},
                                                                     {"x", "y"},
                                                                     {"x_train", "y_train"},
                                                                     {"x_test", "y_test"},
                                                                     {"data", "label"},
                                                                     {"X", "Y"}}};
constexpr std::size_t kChunkBytes = 1 << 20, kMaxChunkBytes = std::size_t{1} << 30;

/// Owns an HDF5 identifier.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() { reset(); }

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  /// False if closing failed.
  bool reset() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

[[noreturn]] void refuse(const std::string& message) {
  throw std::runtime_error(message);
}

/// The library's message for the innermost cause of the last failure, in one line.
std::string reason() {
  std::string text = "an unknown error";
  const auto take_first = [](unsigned index, const H5E_error2_t* error, void* to) -> herr_t {
    if (index == 0 && error->desc) *static_cast<std::string*>(to) = printable(error->desc);
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &text);
  return text;
}

herr_t refuse_external_link(const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) {
  return -1;
}

Dims dims_of(const Handle& set) {
  const Handle space(H5Dget_space(set.get()), &H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  Dims dims(static_cast<std::size_t>(std::max(rank, 0)));
  if (rank < 0 || H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr) < 0) {
    refuse("cannot read the shape of a data set: " + reason());
  }
  return dims;
}

/// Rows [first, first + count) of a data set, as `type`.
void read_rows(const Handle& set, hid_t type, std::uint64_t first, std::uint64_t count, void* to,
               const char* what) {
  Dims extent = dims_of(set), start(extent.size());
  if (extent.empty()) refuse("a data set has no shape");
  start[0] = first;
  extent[0] = count;
  const Handle from(H5Dget_space(set.get()), &H5Sclose);
  const Handle into(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), &H5Sclose);
  if (H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) < 0 ||
      H5Dread(set.get(), type, into.get(), from.get(), H5P_DEFAULT, to) < 0) {
    refuse(fmt::format("cannot read {} {} to {}: {}", what, first, first + count - 1, reason()));
  }
}

Handle open_set(const Handle& file, const std::string& name) {
  const Handle links(H5Pcreate(H5P_DATASET_ACCESS), &H5Pclose);
  H5Pset_elink_cb(links.get(), &refuse_external_link, nullptr);
  H5Pset_chunk_cache(links.get(), 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT);  // no cache: each chunk is read once
  Handle set(H5Dopen2(file.get(), name.c_str(), links.get()), &H5Dclose);
  if (!set) refuse(fmt::format("must have the data set {}, but got: {}", printable(name), reason()));
  const Handle created(H5Dget_create_plist(set.get()), &H5Pclose);
  if (H5Pget_layout(created.get()) == H5D_VIRTUAL || H5Pget_external_count(created.get()) != 0) {
    refuse(fmt::format("{} must lie in this file, but is virtual or external", printable(name)));
  }
  return set;
}

Handle open_images(const Handle& file, const std::string& name, Hdf5Shape& shape) {
  Handle set = open_set(file, name);
  const Handle type(H5Dget_type(set.get()), &H5Tclose);
  if (H5Tget_class(type.get()) != H5T_INTEGER || H5Tget_size(type.get()) != 1 ||
      H5Tget_sign(type.get()) != H5T_SGN_NONE) {
    refuse(fmt::format("{} must be u8: scale its values to 0 to 255, then astype(numpy.uint8)",
                       printable(name)));
  }
  const Dims dims = dims_of(set);
  if (dims.size() != 3 && dims.size() != 4) {
    refuse(fmt::format("{} must be [N, H, W] or [N, H, W, C], but the shape is [{}]", printable(name),
                       fmt::join(dims, ", ")));
  }
  shape.rank = std::ssize(dims);
  shape.dims[3] = 1;
  std::copy(dims.begin(), dims.end(), shape.dims.begin());
  return set;
}

Handle open_labels(const Handle& file, const std::string& name, std::uint64_t images) {
  Handle set = open_set(file, name);
  const Handle type(H5Dget_type(set.get()), &H5Tclose);
  if (H5Tget_class(type.get()) != H5T_INTEGER) {
    refuse(fmt::format("{} must have an integer dtype, but has another: convert it with astype(numpy.int64)",
                       printable(name)));
  }
  const Dims column = dims_of(set);
  if (column.empty() || column[0] != images || column.size() > 2 || (column.size() == 2 && column[1] != 1)) {
    refuse(fmt::format("there must be one label for each of {} images, but the shape is [{}]", images,
                       fmt::join(column, ", ")));
  }
  return set;
}

/// Number of rows to read together: one chunk, or about 1 MiB.
std::uint64_t rows_at_once(const Handle& images, const Hdf5Shape& shape) {
  std::uint64_t image_bytes = 1;
  for (int axis = 1; axis < 4; ++axis) {
    if (__builtin_mul_overflow(image_bytes, shape.dims[axis], &image_bytes))
      refuse(fmt::format("images must fit in memory, but the shape is [{}]", fmt::join(shape.dims, ", ")));
  }
  std::uint64_t rows = std::max<std::uint64_t>(1, kChunkBytes / std::max<std::uint64_t>(image_bytes, 1));
  const Handle created(H5Dget_create_plist(images.get()), &H5Pclose);
  if (H5Pget_layout(created.get()) == H5D_CHUNKED) {
    Dims chunk(static_cast<std::size_t>(shape.rank));
    if (H5Pget_chunk(created.get(), static_cast<int>(chunk.size()), chunk.data()) < 0 || chunk[0] == 0) {
      refuse("cannot read the chunks: " + reason());
    }
    rows = chunk[0];
  }
  rows = std::min(rows, shape.dims[0]);
  if (rows > 0 && image_bytes > kMaxChunkBytes / rows) {
    refuse(
        fmt::format("a row of chunks must have at most 1 GiB, but has {} images of {} bytes; write smaller "
                    "chunks",
                    rows, image_bytes));
  }
  return rows;
}

template <class T> T number_from(Owner& owner) {
  T value{};
  if (!owner.read(std::as_writable_bytes(std::span(&value, 1))))
    refuse("the parent process closed the connection");
  return value;
}

/// The file being written.
class Output {
 public:
  Output(const std::string& path, int deflate)
      : file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), &H5Fclose),
        deflate_(deflate) {
    check(static_cast<bool>(file_), "create");
  }

  /// Creates an empty data set that grows along its first axis, in chunks of `rows`.
  Handle create(const char* name, hid_t type, const Dims& shape, std::uint64_t rows) const {
    Dims chunk = shape, most = shape;
    chunk[0] = rows;
    most[0] = H5S_UNLIMITED;
    const Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), most.data()),
                       &H5Sclose);
    const Handle how(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
    H5Pset_obj_track_times(how.get(), false);  // equal samples give equal bytes
    check(H5Pset_chunk(how.get(), static_cast<int>(chunk.size()), chunk.data()) >= 0, "lay out");
    if (deflate_ > 0) check(H5Pset_deflate(how.get(), static_cast<unsigned>(deflate_)) >= 0, "compress");
    check(H5Pset_fletcher32(how.get()) >= 0, "check");
    Handle set(H5Dcreate2(file_.get(), name, type, space.get(), H5P_DEFAULT, how.get(), H5P_DEFAULT),
               &H5Dclose);
    check(static_cast<bool>(set), "create a data set in");
    return set;
  }

  /// Appends `rows` rows to a data set of that shape, and updates `shape`.
  void append(const Handle& set, Dims& shape, std::uint64_t rows, hid_t type, const void* data) const {
    Dims start(shape.size()), extent = shape;
    start[0] = shape[0];
    extent[0] = rows;
    shape[0] += rows;
    check(H5Dset_extent(set.get(), shape.data()) >= 0, "enlarge");
    const Handle to(H5Dget_space(set.get()), &H5Sclose);
    const Handle from(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), &H5Sclose);
    check(H5Sselect_hyperslab(to.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) >= 0 &&
              H5Dwrite(set.get(), type, from.get(), to.get(), H5P_DEFAULT, data) >= 0,
          "write");
  }

  void close() { check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL) >= 0 && file_.reset(), "close"); }

 private:
  static void check(bool good, const char* what) {
    if (!good) refuse(fmt::format("cannot {} the file: {}", what, reason()));
  }

  Handle file_;
  int deflate_;
};

}  // namespace

void read_hdf5(const std::string& path, std::string images, std::string labels, Owner& owner) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), &H5Fclose);
  if (!file) {
    const std::string why = reason();
    if (why.find("unable to lock") != std::string::npos) refuse(kHdf5Locked);
    refuse("must be a complete HDF5 file, but got: " + why);
  }
  const auto is_there = [&](const char* name) { return H5Lexists(file.get(), name, H5P_DEFAULT) > 0; };
  for (const auto& [x, y] : kNames) {
    if (images.empty() && is_there(x) && is_there(y)) images = x, labels = y;
  }
  if (images.empty()) {
    refuse(
        "must have data sets named images and labels, or x and y, or similar, but has none: name them so, as "
        "with h5py's file.move('a', 'images')");
  }
  Hdf5Shape shape;
  const Handle pixels = open_images(file, images, shape);
  const std::uint64_t count = shape.dims[0], rows = rows_at_once(pixels, shape);
  const Handle numbers = open_labels(file, labels, count);
  owner.write(std::as_bytes(std::span(&shape, 1)));
  constexpr std::uint64_t kLabels = 1 << 16;
  std::vector<std::int64_t> some(std::min(count, kLabels));
  for (std::uint64_t first = 0; first < count; first += kLabels) {
    const std::uint64_t here = std::min(kLabels, count - first);
    read_rows(numbers, H5T_NATIVE_INT64, first, here, some.data(), "labels");
    owner.write(std::as_bytes(std::span(some).first(here)));
  }
  const std::uint64_t image_bytes = shape.dims[1] * shape.dims[2] * shape.dims[3];
  std::vector<std::byte> block(rows * image_bytes);
  for (std::uint64_t first = 0; first < count; first += rows) {
    const std::uint64_t here = std::min(rows, count - first);
    read_rows(pixels, H5T_NATIVE_UINT8, first, here, block.data(), "images");
    owner.write(std::span(block).first(here * image_bytes));
  }
}

void write_hdf5(const std::string& path, int deflate, Owner& owner) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  Output output(path, deflate);
  Dims shape{0, 0, 0, 0};
  for (std::size_t i = 1; i < shape.size(); ++i) shape[i] = number_from<std::uint64_t>(owner);
  Handle images;
  std::vector<std::byte> block;
  while (const auto rows = number_from<std::uint64_t>(owner)) {
    if (!images) images = output.create("images", H5T_STD_U8LE, shape, rows);  // a chunk for each batch
    block.resize(rows * shape[1] * shape[2] * shape[3]);
    if (!owner.read(block)) return;
    output.append(images, shape, rows, H5T_NATIVE_UINT8, block.data());
  }
  std::vector<std::int64_t> labels(number_from<std::uint64_t>(owner));
  if (!owner.read(std::as_writable_bytes(std::span(labels)))) return;
  Dims column{0};
  Handle numbers =
      output.create("labels", H5T_STD_I64LE, column, std::min<std::uint64_t>(labels.size(), 1 << 16));
  output.append(numbers, column, labels.size(), H5T_NATIVE_INT64, labels.data());
  if (!numbers.reset() || !images.reset()) refuse("cannot close the file: " + reason());
  output.close();
}

void require_hdf5(const std::string& /*path*/) {}

}  // namespace athanor::detail
