#include "data/formats/detail/hdf5_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "data/formats/detail/bytes.h"

namespace athanor::detail {
namespace {

using Dims = std::vector<hsize_t>;

constexpr std::array<std::pair<const char*, const char*>, 6> kNames{{{"images", "labels"},
                                                                     {"x", "y"},
                                                                     {"x_train", "y_train"},
                                                                     {"x_test", "y_test"},
                                                                     {"data", "label"},
                                                                     {"X", "Y"}}};

[[noreturn]] void refuse(const std::string& message) {
  throw Hdf5Refusal(message);
}

herr_t refuse_external_link(const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) {
  return -1;
}

Dims dims_of(const Hdf5Handle& set) {
  const Hdf5Handle space(H5Dget_space(set.get()), &H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  Dims dims(static_cast<std::size_t>(std::max(rank, 0)));
  if (rank < 0 || H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr) < 0) {
    refuse("the shape of a data set must be readable, but got: " + hdf5_reason());
  }
  return dims;
}

/// Rows [first, first + count) of a data set, as `type`.
void read_rows(const Hdf5Handle& set, hid_t type, std::int64_t first, std::int64_t count, void* to,
               const char* what) {
  Dims extent = dims_of(set), start(extent.size());
  if (extent.empty()) refuse("a data set has lost its shape");
  start[0] = static_cast<hsize_t>(first);
  extent[0] = static_cast<hsize_t>(count);
  const Hdf5Handle from(H5Dget_space(set.get()), &H5Sclose);
  const Hdf5Handle into(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), &H5Sclose);
  if (H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) < 0 ||
      H5Dread(set.get(), type, into.get(), from.get(), H5P_DEFAULT, to) < 0) {
    refuse(fmt::format("{} {} to {} must be readable, but got: {}", what, first, first + count - 1,
                       hdf5_reason()));
  }
}

}  // namespace

Hdf5File::Hdf5File(const std::string& path, std::string images, std::string labels)
    : file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), &H5Fclose) {
  if (!file_) refuse("must be a whole HDF5 file, but got: " + hdf5_reason());
  const auto is_there = [&](const char* name) { return H5Lexists(file_.get(), name, H5P_DEFAULT) > 0; };
  for (const auto& [x, y] : kNames) {
    if (images.empty() && is_there(x) && is_there(y)) images = x, labels = y;
  }
  if (images.empty()) {
    refuse("must have data sets images and labels, x and y or the like, but has not: name yours");
  }
  images_ = open(images);
  const Hdf5Handle type(H5Dget_type(images_.get()), &H5Tclose);
  if (H5Tget_class(type.get()) != H5T_INTEGER || H5Tget_size(type.get()) != 1 ||
      H5Tget_sign(type.get()) != H5T_SGN_NONE) {
    refuse(fmt::format("{} must be of type u8, but is not: astype(numpy.uint8) in Python makes them so",
                       printable(images)));
  }
  const Dims dims = dims_of(images_);
  if (dims.size() != 3 && dims.size() != 4) {
    refuse(fmt::format("{} must be [N, H, W] or [N, H, W, C], but the shape is [{}]", printable(images),
                       fmt::join(dims, ", ")));
  }
  shape_.rank = std::ssize(dims);
  shape_.dims[3] = 1;
  std::copy(dims.begin(), dims.end(), shape_.dims.begin());
  const Hdf5Handle created(H5Dget_create_plist(images_.get()), &H5Pclose);
  if (H5Pget_layout(created.get()) == H5D_CHUNKED) {
    Dims chunk(dims.size());
    if (H5Pget_chunk(created.get(), static_cast<int>(chunk.size()), chunk.data()) < 0 || chunk[0] == 0) {
      refuse("the chunks must be readable, but got: " + hdf5_reason());
    }
    shape_.chunk = chunk[0];
  }

  labels_ = open(labels);
  const Hdf5Handle label_type(H5Dget_type(labels_.get()), &H5Tclose);
  if (H5Tget_class(label_type.get()) != H5T_INTEGER) {
    refuse(fmt::format("{} must be of a whole type, but is not: astype(numpy.int64) in Python makes them so",
                       printable(labels)));
  }
  const Dims column = dims_of(labels_);
  if (column.empty() || column[0] != dims[0] || column.size() > 2 || (column.size() == 2 && column[1] != 1)) {
    refuse(fmt::format("there must be one label for each of {} images, but the shape is [{}]", dims[0],
                       fmt::join(column, ", ")));
  }
}

Hdf5Handle Hdf5File::open(const std::string& name) const {
  const Hdf5Handle links(H5Pcreate(H5P_DATASET_ACCESS), &H5Pclose);
  H5Pset_elink_cb(links.get(), &refuse_external_link, nullptr);
  H5Pset_chunk_cache(links.get(), 0, 0,
                     H5D_CHUNK_CACHE_W0_DEFAULT);  // whole rows of chunks are kept elsewhere
  Hdf5Handle set(H5Dopen2(file_.get(), name.c_str(), links.get()), &H5Dclose);
  if (!set) {
    refuse(fmt::format("must have the data set {}, but got: {}", printable(name), hdf5_reason()));
  }
  const Hdf5Handle created(H5Dget_create_plist(set.get()), &H5Pclose);
  if (H5Pget_layout(created.get()) == H5D_VIRTUAL || H5Pget_external_count(created.get()) != 0) {
    refuse(fmt::format("{} must lie in this file, but is virtual or external", printable(name)));
  }
  return set;
}

void Hdf5File::read_images(std::int64_t first, std::int64_t count, std::span<std::byte> to) const {
  read_rows(images_, H5T_NATIVE_UINT8, first, count, to.data(), "images");
}

void Hdf5File::read_labels(std::int64_t first, std::int64_t count, std::span<std::byte> to) const {
  read_rows(labels_, H5T_NATIVE_INT64, first, count, to.data(), "labels");
}

}  // namespace athanor::detail
