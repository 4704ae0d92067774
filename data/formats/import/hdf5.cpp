#include "data/formats/import/hdf5.h"

#include <algorithm>
#include <array>
#include <list>
#include <mutex>
#include <utility>

#include <fmt/ranges.h>
#include <hdf5.h>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/indexed_store.h"
#include "data/formats/detail/labelled_store.h"
#include "data/formats/detail/writing.h"
#include "tensor/base/error.h"

// Whatever the library returns is checked against the file.

namespace athanor {
namespace {

using Dims = std::vector<hsize_t>;

constexpr std::int64_t kChunkBytes = 1 << 20, kMaxChunkBytes = 1 << 30;
constexpr std::int64_t kFewImages = 1 << 20;

/// Owns an HDF5 identifier.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*close_it)(hid_t)) : id_(id), close_(close_it) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() { close(); }

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  /// False if closing failed.
  bool close() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }
  /// Leaves it open for good.
  void abandon() { id_ = -1; }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

/// Before any other call: the library prints nothing, and does nothing at the end of the process, where it
/// would crash after a full disk.
void start() {
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

/// The library's message for the innermost cause of the last failure, in one line.
std::string reason() {
  std::string text = "an unknown error";
  const auto take_first = [](unsigned index, const H5E_error2_t* error, void* to) -> herr_t {
    if (index == 0 && error->desc) *static_cast<std::string*>(to) = detail::printable(error->desc);
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &text);
  return text;
}

herr_t refuse_external_link(const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) {
  return -1;
}

/// A file open for reading.
class Input {
 public:
  explicit Input(const std::filesystem::path& path) : bytes_(path, "hdf5", "write it again with h5py") {
    start();
    file_ = Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), &H5Fclose);
    if (file_) return;
    const std::string why = reason();
    if (why.find("unable to lock") != std::string::npos)
      detail::fail<IoError>(
          "hdf5: {} is open for writing in another program: close it there, or set "
          "HDF5_USE_FILE_LOCKING=FALSE to read it all the same",
          bytes_.name());
    fail("must be a complete HDF5 file, but got: {}", why);
  }

  std::int64_t size() const { return bytes_.size(); }
  const std::string& name() const { return bytes_.name(); }
  bool has(const std::string& name) const { return H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT) > 0; }
  template <class... Args> [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    bytes_.fail(0, message, std::forward<Args>(args)...);
  }

  Handle open_set(const std::string& name) const {
    const Handle links(H5Pcreate(H5P_DATASET_ACCESS), &H5Pclose);
    H5Pset_elink_cb(links.get(), &refuse_external_link, nullptr);
    H5Pset_chunk_cache(links.get(), 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT);  // no cache: each chunk is read once
    Handle set(H5Dopen2(file_.get(), name.c_str(), links.get()), &H5Dclose);
    if (!set) fail("must have the data set {}, but got: {}", detail::printable(name), reason());
    const Handle created(H5Dget_create_plist(set.get()), &H5Pclose);
    if (H5Pget_layout(created.get()) == H5D_VIRTUAL || H5Pget_external_count(created.get()) != 0)
      fail("{} must lie in this file, but is virtual or external", detail::printable(name));
    return set;
  }

  Dims dims_of(const Handle& set) const {
    const Handle space(H5Dget_space(set.get()), &H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    Dims dims(static_cast<std::size_t>(std::max(rank, 0)));
    if (rank < 0 || H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr) < 0)
      fail("cannot read the shape of a data set: {}", reason());
    return dims;
  }

  /// Rows [first, first + count) of a data set, as `type`.
  void read_rows(const Handle& set, hid_t type, std::int64_t first, std::int64_t count, void* to,
                 const char* what) const {
    Dims extent = dims_of(set), begin(extent.size());
    if (extent.empty()) fail("a data set has no shape");
    begin[0] = static_cast<hsize_t>(first);
    extent[0] = static_cast<hsize_t>(count);
    const Handle from(H5Dget_space(set.get()), &H5Sclose);
    const Handle into(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), &H5Sclose);
    if (H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, begin.data(), nullptr, extent.data(), nullptr) < 0 ||
        H5Dread(set.get(), type, into.get(), from.get(), H5P_DEFAULT, to) < 0)
      fail("cannot read {} {} to {}: {}", what, first, first + count - 1, reason());
    // Behind the end of a file that became shorter, the library reads zeros.
    std::vector<std::byte> last;
    (void)bytes_.at(bytes_.size() - 1, 1, "the file", last);
  }

 private:
  detail::FileBytes bytes_;
  Handle file_;
};

class Hdf5Store final : public Dataset {
 public:
  Hdf5Store(const std::filesystem::path& path, FieldNames given, LabelKind kind) : images_in_(path) {
    const std::vector<std::filesystem::path> files = hdf5_files(path, given);
    const std::size_t colon = given.label.rfind(':');
    const bool is_told = colon != std::string::npos;  // which file the labels lie in
    if (is_told) given.label.erase(0, colon + 1);
    std::optional<FieldNames> names;
    if (!is_told) names = names_in(images_in_, given);
    if (!names && files.size() > 1) {
      other_ = std::make_unique<Input>(files[1]);
      names = names_in(*other_, given);
    }
    if (!names)
      images_in_.fail(
          "must have data sets named images and labels, or x and y, or similar, but has none: name them with "
          "--fields image=NAME,label=NAME");
    open_images(names->image);
    const Input& in = other_ ? *other_ : images_in_;
    kind == LabelKind::classes ? read_labels(in, names->label) : read_numbers(in, names->label);
  }

  /// Of several labels of each image, or values.
  std::vector<float> take_numbers() { return std::move(numbers_); }

  std::int64_t size() const override { return std::ssize(labels_); }
  const ImageSpec& spec() const override { return spec_; }
  std::int64_t label(std::int64_t index) const override {
    detail::check_index(index, size(), "hdf5");
    return labels_[static_cast<std::size_t>(index)];
  }
  std::string where(std::int64_t index) const override {
    return fmt::format("{}, image {}", images_in_.name(), index);
  }

  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    const std::int64_t own_label = label(index);
    const auto bytes = static_cast<std::size_t>(spec_.bytes());
    {
      const std::lock_guard lock(mutex_);
      const Block& block = block_with(index);
      const auto from = block.bytes.begin() + (index - block.first) * spec_.bytes();
      scratch.assign(from, from + spec_.bytes());
    }
    return {{scratch.data(), bytes}, Codec::raw, spec_.height, spec_.width, spec_.channels, own_label};
  }

 private:
  std::optional<FieldNames> names_in(const Input& labels, const FieldNames& given) const {
    return usual_names(
        given, [&](const std::string& name) { return images_in_.has(name); },
        [&](const std::string& name) { return labels.has(name); });
  }

  struct Block {
    std::int64_t first = 0;
    std::vector<std::byte> bytes;
  };

  void open_images(const std::string& name) {
    images_ = images_in_.open_set(name);
    const Handle type(H5Dget_type(images_.get()), &H5Tclose);
    if (H5Tget_class(type.get()) != H5T_INTEGER || H5Tget_size(type.get()) != 1 ||
        H5Tget_sign(type.get()) != H5T_SGN_NONE)
      images_in_.fail("{} must be u8: scale its values to 0 to 255, then astype(numpy.uint8)",
                      detail::printable(name));
    const Dims dims = images_in_.dims_of(images_);
    if (dims.size() != 3 && dims.size() != 4)
      images_in_.fail("{} must be [N, H, W] or [N, H, W, C], but the shape is [{}]", detail::printable(name),
                      fmt::join(dims, ", "));
    const auto side = [&](std::size_t i) {
      return i >= dims.size() ? 1 : dims[i] > INT32_MAX ? 0 : static_cast<std::int64_t>(dims[i]);
    };
    spec_ = {side(1), side(2), side(3), 0};
    if (const auto bad = detail::bad_image(spec_)) images_in_.fail("{}", *bad);
    if (const auto bad = detail::channels_first(spec_)) images_in_.fail("{}", *bad);
    // A few images may compress to almost nothing; many need at least a byte of the file each.
    const std::int64_t most = std::min(std::max(images_in_.size(), kFewImages),
                                       images_in_.size() * detail::kMaxExpansion / spec_.bytes());
    if (dims[0] == 0 || dims[0] > static_cast<hsize_t>(most))
      images_in_.fail("the file must have at least one image, and no more than fit into it, but has {}",
                      dims[0]);
    labels_.resize(static_cast<std::size_t>(dims[0]));
    choose_rows(dims.size());
  }

  /// Rows are read a chunk at a time, or about 1 MiB.
  void choose_rows(std::size_t rank) {
    rows_ = std::max<std::int64_t>(1, kChunkBytes / spec_.bytes());
    const Handle created(H5Dget_create_plist(images_.get()), &H5Pclose);
    if (H5Pget_layout(created.get()) == H5D_CHUNKED) {
      Dims chunk(rank);
      if (H5Pget_chunk(created.get(), static_cast<int>(rank), chunk.data()) < 0 || chunk[0] == 0)
        images_in_.fail("cannot read the chunks: {}", reason());
      rows_ = static_cast<std::int64_t>(std::min<hsize_t>(chunk[0], labels_.size()));
    }
    rows_ = std::min(rows_, size());
    if (rows_ > kMaxChunkBytes / spec_.bytes())
      images_in_.fail(
          "a row of chunks must have at most 1 GiB, but has {} images of {} bytes; write smaller chunks",
          rows_, spec_.bytes());
  }

  void read_labels(const Input& in, const std::string& name) {
    const Handle set = in.open_set(name);
    const Handle type(H5Dget_type(set.get()), &H5Tclose);
    if (H5Tget_class(type.get()) != H5T_INTEGER)
      in.fail("{} must have an integer dtype, but has another: convert it with astype(numpy.int64)",
              detail::printable(name));
    const Dims dims = in.dims_of(set);
    const bool column = !dims.empty() && dims[0] == labels_.size() &&
                        std::all_of(dims.begin() + 1, dims.end(), [](hsize_t side) { return side == 1; });
    if (!column)
      in.fail("there must be one label for each of {} images, but the shape is [{}]", size(),
              fmt::join(dims, ", "));
    in.read_rows(set, H5T_NATIVE_INT64, 0, size(), labels_.data(), "labels");
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      if (const auto bad = detail::bad_label(labels_[i])) in.fail("{} (label {})", *bad, i);
    }
    spec_.classes = detail::count_classes(labels_);
  }

  void read_numbers(const Input& in, const std::string& name) {
    const Handle set = in.open_set(name);
    const Handle type(H5Dget_type(set.get()), &H5Tclose);
    if (const H5T_class_t kind = H5Tget_class(type.get()); kind != H5T_INTEGER && kind != H5T_FLOAT)
      in.fail("{} must be whole numbers or floats, but is not: convert it with astype(numpy.float32)",
              detail::printable(name));
    const Dims dims = in.dims_of(set);
    const auto most = static_cast<hsize_t>(in.size()) * static_cast<hsize_t>(detail::kMaxExpansion);
    const bool fits = (dims.size() == 1 || dims.size() == 2) && dims[0] == labels_.size() &&
                      dims.back() > 0 && (dims.size() == 1 || dims[1] <= most / dims[0]);
    if (!fits)
      in.fail("there must be as many labels or values of each of {} images, [N, K], but the shape is [{}]",
              size(), fmt::join(dims, ", "));
    numbers_.resize(labels_.size() * (dims.size() == 2 ? static_cast<std::size_t>(dims[1]) : 1));
    in.read_rows(set, H5T_NATIVE_FLOAT, 0, size(), numbers_.data(), "labels");
    spec_.classes = 1;
  }

  /// The block that holds image `index`, from the file or one of the last that were read: several threads
  /// read on both sides of an edge.
  const Block& block_with(std::int64_t index) const {
    constexpr std::int64_t kCachedBytes = 256 << 20;
    const std::int64_t first = index / rows_ * rows_, count = std::min(rows_, size() - first);
    const auto held =
        std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& one) { return one.first == first; });
    if (held != blocks_.end()) {
      blocks_.splice(blocks_.begin(), blocks_, held);
      return blocks_.front();
    }
    Block block{first, std::vector<std::byte>(static_cast<std::size_t>(count * spec_.bytes()))};
    images_in_.read_rows(images_, H5T_NATIVE_UINT8, first, count, block.bytes.data(), "images");
    blocks_.push_front(std::move(block));
    if (std::ssize(blocks_) * rows_ * spec_.bytes() > kCachedBytes && blocks_.size() > 1) blocks_.pop_back();
    return blocks_.front();
  }

  Input images_in_;
  std::unique_ptr<Input> other_;  ///< of the labels, if not the same
  Handle images_;
  ImageSpec spec_;
  std::vector<std::int64_t> labels_;
  std::vector<float> numbers_;  ///< in their place, of another kind than classes
  std::int64_t rows_ = 1;
  mutable std::mutex mutex_;  ///< of the library's calls, and `blocks_`
  mutable std::list<Block> blocks_;
};

class Hdf5Writer final : public SampleWriter {
 public:
  explicit Hdf5Writer(const std::filesystem::path& path) : folder_(path), file_(path) {
    start();
    out_ = Handle(H5Fcreate(file_.temporary().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), &H5Fclose);
    check(static_cast<bool>(out_), "create");
  }
  // Closing a file on a full disk can crash. It is removed, so that what it lacks does not matter.
  ~Hdf5Writer() override {
    images_.abandon();
    out_.abandon();
  }

  void add(const StoredSample& sample) override {
    samples_.add(sample);
    const ImageSpec& spec = samples_.spec();
    if (samples_.size() == 1) {
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
    const std::vector<std::int64_t>& all = samples_.labels();
    Dims column{0};
    Handle labels = create("labels", H5T_STD_I64LE, column, std::min<std::int64_t>(samples_.size(), 1 << 16));
    append(labels, column, samples_.size(), H5T_NATIVE_INT64, all.data());
    const bool flushed = H5Fflush(out_.get(), H5F_SCOPE_GLOBAL) >= 0;
    if (!flushed) labels.abandon();
    check(flushed && labels.close() && images_.close() && out_.close(), "close");
    file_.commit();
  }

 private:
  void check(bool good, const char* what) const {
    if (!good)
      detail::fail<IoError>("hdf5: cannot {} {} at sample {}: {}", what, file_.temporary().string(),
                            samples_.size(), reason());
  }

  /// An empty data set that grows along its first axis, in chunks of `rows`.
  Handle create(const char* name, hid_t type, const Dims& shape, std::int64_t rows) const {
    Dims chunk = shape, most = shape;
    chunk[0] = static_cast<hsize_t>(rows);
    most[0] = H5S_UNLIMITED;
    const Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), most.data()),
                       &H5Sclose);
    const Handle how(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
    H5Pset_obj_track_times(how.get(), false);  // equal samples give equal bytes
    check(H5Pset_chunk(how.get(), static_cast<int>(chunk.size()), chunk.data()) >= 0, "lay out");
    check(H5Pset_fletcher32(how.get()) >= 0, "add checksums to");
    Handle set(H5Dcreate2(out_.get(), name, type, space.get(), H5P_DEFAULT, how.get(), H5P_DEFAULT),
               &H5Dclose);
    check(static_cast<bool>(set), "create a data set in");
    return set;
  }

  /// Appends `rows` rows to a data set of that shape, and updates `shape`.
  void append(Handle& set, Dims& shape, std::int64_t rows, hid_t type, const void* data) const {
    Dims begin(shape.size()), extent = shape;
    begin[0] = shape[0];
    extent[0] = static_cast<hsize_t>(rows);
    shape[0] += extent[0];
    const bool grown = H5Dset_extent(set.get(), shape.data()) >= 0;
    const Handle to(H5Dget_space(set.get()), &H5Sclose);
    const Handle from(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), &H5Sclose);
    const bool written =
        grown &&
        H5Sselect_hyperslab(to.get(), H5S_SELECT_SET, begin.data(), nullptr, extent.data(), nullptr) >= 0 &&
        H5Dwrite(set.get(), type, from.get(), to.get(), H5P_DEFAULT, data) >= 0;
    if (!written) set.abandon();
    check(written, "write");
  }

  void flush() {
    if (buffer_.empty()) return;
    const std::int64_t rows = std::ssize(buffer_) / samples_.spec().bytes();
    if (!images_) images_ = create("images", H5T_STD_U8LE, shape_, rows);  // a chunk for each batch
    append(images_, shape_, rows, H5T_NATIVE_UINT8, buffer_.data());
    buffer_.clear();
  }

  detail::FolderOf folder_;
  AtomicFile file_;
  detail::UniformSamples samples_{"hdf5"};
  Handle out_, images_;
  Dims shape_;
  std::int64_t rows_ = 1;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::unique_ptr<Dataset> open_hdf5(const std::filesystem::path& path, const FieldNames& names,
                                   LabelKind kind) {
  auto store = std::make_unique<Hdf5Store>(path, names, kind);
  if (kind == LabelKind::classes) return store;
  std::vector<float> numbers = store->take_numbers();
  return detail::with_labels(std::move(store), std::move(numbers));
}

std::vector<std::filesystem::path> hdf5_files(const std::filesystem::path& path, const FieldNames& names) {
  if (const std::size_t colon = names.label.rfind(':'); colon != std::string::npos)
    return {path, path.parent_path() / names.label.substr(0, colon)};
  constexpr std::array<std::pair<std::string_view, const char*>, 2> kPairs{
      {{"_x", "_y"}, {"images", "labels"}}};
  for (const auto& [images, labels] : kPairs) {
    std::string name = path.stem().string();
    if (!name.ends_with(images)) continue;
    name.replace(name.size() - images.size(), images.size(), labels);
    const std::filesystem::path other = path.parent_path() / (name + path.extension().string());
    std::error_code error;
    if (std::filesystem::exists(other, error)) return {path, other};
  }
  return {path};
}

std::unique_ptr<SampleWriter> create_hdf5(const std::filesystem::path& path) {
  return std::make_unique<Hdf5Writer>(path);
}

}  // namespace athanor
