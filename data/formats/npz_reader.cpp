#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <zip.h>

#include "data/formats/detail/labelled_store.h"
#include "data/formats/detail/npy_header.h"
#include "data/formats/npy.h"
#include "tensor/base/error.h"
#include "tensor/io/regular_file.h"

namespace athanor {
namespace {

using detail::FileBytes;

constexpr char kNpzAdvice[] = "write it again with numpy.savez";
/// A file for libzip, read by RegularFile, which tries reads again that fail for a moment.
class ZipFile {
 public:
  explicit ZipFile(const std::filesystem::path& path) : file_(path) { zip_error_init(&error_); }
  ~ZipFile() { zip_error_fini(&error_); }
  ZipFile(const ZipFile&) = delete;
  ZipFile& operator=(const ZipFile&) = delete;

  /// For as long as this object lives; null on an error.
  zip_source_t* source(zip_error_t* error) {
    return zip_source_function_create(&ZipFile::serve, this, error);
  }

 private:
  static zip_int64_t serve(void* self, void* data, zip_uint64_t bytes, zip_source_cmd_t command) {
    ZipFile& file = *static_cast<ZipFile*>(self);
    switch (command) {
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
      case ZIP_SOURCE_OPEN: file.at_ = 0; return 0;
      case ZIP_SOURCE_READ:
        return file.read({static_cast<std::byte*>(data), static_cast<std::size_t>(bytes)});
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t to = zip_source_seek_compute_offset(
            file.at_, static_cast<zip_uint64_t>(file.file_.bytes()), data, bytes, &file.error_);
        if (to < 0) return -1;
        file.at_ = static_cast<zip_uint64_t>(to);
        return 0;
      }
      case ZIP_SOURCE_TELL: return static_cast<zip_int64_t>(file.at_);
      case ZIP_SOURCE_STAT: {
        auto& status = *static_cast<zip_stat_t*>(data);
        zip_stat_init(&status);
        status.size = static_cast<zip_uint64_t>(file.file_.bytes());
        status.valid |= ZIP_STAT_SIZE;
        return sizeof status;
      }
      case ZIP_SOURCE_ERROR: return zip_error_to_data(&file.error_, data, bytes);
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE: return 0;
      default: zip_error_set(&file.error_, ZIP_ER_OPNOTSUPP, 0); return -1;
    }
  }

  zip_int64_t read(std::span<std::byte> to) {
    const std::size_t got = file_.read_at(at_, to);
    if (got < to.size() && errno != 0) {
      zip_error_set(&error_, ZIP_ER_READ, errno);
      return -1;
    }
    at_ += got;
    return static_cast<zip_int64_t>(got);
  }

  RegularFile file_;
  zip_uint64_t at_ = 0;
  zip_error_t error_;
};

/// A zip archive's members, stored or deflated.
class ZipReader {
 public:
  explicit ZipReader(const std::filesystem::path& path) : file_(path, "npz", kNpzAdvice), read_(path) {
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* source = read_.source(&error);
    if (source) archive_.reset(zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error));
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    if (archive_) return;
    zip_source_free(source);
    file_.fail(0, "must be a complete zip file, but got: {}", reason);
  }

  const FileBytes& file() const { return file_; }
  bool has(const std::string& member) const {
    return zip_name_locate(archive_.get(), member.c_str(), 0) >= 0;
  }

  /// Its arrays besides those members.
  std::vector<Unused> others(const std::string& images, const std::string& labels) const {
    std::vector<Unused> unused;
    for (zip_int64_t i = 0; i < zip_get_num_entries(archive_.get(), 0); ++i) {
      const char* const member = zip_get_name(archive_.get(), static_cast<zip_uint64_t>(i), 0);
      if (!member || member == images || member == labels) continue;
      std::string name = member;
      if (name.ends_with(".npy")) name.resize(name.size() - 4);
      count_unused(unused, "arrays of other names", name);
    }
    return unused;
  }

  /// The member's stated size. Throws IoError if there is none, or the archive cannot hold as much.
  std::int64_t size(const std::string& member) const {
    zip_stat_t status;
    const int failed = zip_stat_index(archive_.get(), find(member), 0, &status);
    if (failed != 0 || !(status.valid & ZIP_STAT_SIZE) || !(status.valid & ZIP_STAT_COMP_METHOD)) {
      empty(member).fail(0, "the member must have a size and a compression method, but has not");
    }
    if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
      empty(member).fail(0, "the member must be stored or deflated, but its method is {}",
                         status.comp_method);
    }
    if (status.size / detail::kMaxExpansion > static_cast<std::uint64_t>(file_.size())) {
      empty(member).fail(0, "the member's {} bytes cannot fit into a file of {} bytes", status.size,
                         file_.size());
    }
    return static_cast<std::int64_t>(status.size);
  }

  /// The member as "FILE:MEMBER", with checked CRC-32; with `most`, only its first bytes. Throws IoError.
  /// Memory grows with the output. For a whole member, reads one byte beyond its size, which must not exist:
  /// libzip then checks the CRC.
  std::shared_ptr<const FileBytes> read(const std::string& member, std::int64_t most = INT64_MAX) const {
    constexpr std::size_t kPiece = std::size_t{1} << 24;
    const std::int64_t whole = size(member);
    const auto wanted = static_cast<std::size_t>(std::min(whole, most));
    const std::size_t room = wanted + (most > whole ? 1 : 0);
    const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(
        zip_fopen_index(archive_.get(), find(member), 0), &zip_fclose);
    if (!file) {
      empty(member).fail(0, "the member cannot be read: {}", zip_strerror(archive_.get()));
    }
    std::vector<std::uint8_t> content;
    content.reserve(room);
    std::size_t done = 0;
    for (zip_int64_t got = 1; got > 0 && done < room; done += static_cast<std::size_t>(got)) {
      content.resize(std::min(room, done + kPiece));
      got = zip_fread(file.get(), content.data() + done, content.size() - done);
      if (got < 0) {
        empty(member).fail(static_cast<std::int64_t>(done), "the member must be complete, but got: {}",
                           zip_file_strerror(file.get()));
      }
    }
    content.resize(done);
    if (done != wanted) {
      empty(member).fail(static_cast<std::int64_t>(done), "the member must have {} bytes, but ends here",
                         whole);
    }
    return std::make_shared<FileBytes>(name_of(member), std::move(content), "npz", kNpzAdvice);
  }

 private:
  std::string name_of(const std::string& member) const { return file_.name() + ":" + member; }
  /// For messages about the member.
  FileBytes empty(const std::string& member) const {
    return FileBytes(name_of(member), {}, "npz", kNpzAdvice);
  }

  std::uint64_t find(const std::string& member) const {
    const std::int64_t index = zip_name_locate(archive_.get(), member.c_str(), 0);
    if (index < 0) empty(member).fail(0, "the member is missing");
    return static_cast<std::uint64_t>(index);
  }

  FileBytes file_;  ///< for messages, and its size
  ZipFile read_;    ///< must outlive the archive
  std::unique_ptr<zip_t, void (*)(zip_t*)> archive_{nullptr, &zip_discard};
};

}  // namespace

std::unique_ptr<Dataset> open_npz(const std::filesystem::path& path, const FieldNames& names,
                                  LabelKind kind) {
  const ZipReader archive(path);
  const auto has = [&](const std::string& name) { return archive.has(name + ".npy"); };
  const std::optional<FieldNames> found = usual_names(names, has, has);
  if (!found) {
    archive.file().fail(0,
                        "must have arrays named images and labels, x and y, x_train and y_train, or similar, "
                        "but has only {}: save it with such names, as in numpy.savez('data.npz', images=a, "
                        "labels=b), or name them with --fields image=NAME,label=NAME",
                        text_of(archive.others({}, {})));
  }
  const std::string images = found->image + ".npy", labels = found->label + ".npy";
  if (kind != LabelKind::classes) {
    const detail::NpyPair pair =
        detail::check_npy_images(*archive.read(images, detail::kNpyHead), archive.size(images));
    std::vector<float> numbers = detail::npy_numbers(*archive.read(labels), pair.count);
    const std::vector<std::int64_t> none(static_cast<std::size_t>(pair.count));
    return detail::with_labels(detail::dense_store(archive.read(images), pair.image_data, pair.spec, none,
                                                   archive.others(images, labels)),
                               std::move(numbers));
  }
  // Decompresses nothing large before both headers match; labels come before pixels.
  const detail::NpyPair pair =
      detail::check_npy(*archive.read(images, detail::kNpyHead), archive.size(images),
                        *archive.read(labels, detail::kNpyHead), archive.size(labels));
  const std::vector<std::int64_t> values = detail::npy_labels(pair, *archive.read(labels));
  return detail::dense_store(archive.read(images), pair.image_data, pair.spec, values,
                             archive.others(images, labels));
}

}  // namespace athanor
