#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include <zip.h>

#include "data/formats/detail/npy_header.h"
#include "data/formats/npy.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using detail::FileBytes;

constexpr char kAdvice[] = "write it again with numpy.savez";
constexpr std::array<std::pair<const char*, const char*>, 9> kNames{{{"images", "labels"},
                                                                     {"image", "label"},
                                                                     {"x", "y"},
                                                                     {"x_train", "y_train"},
                                                                     {"x_test", "y_test"},
                                                                     {"train_images", "train_labels"},
                                                                     {"test_images", "test_labels"},
                                                                     {"X", "Y"},
                                                                     {"arr_0", "arr_1"}}};

/// A zip archive's members, stored or deflated.
class ZipReader {
 public:
  explicit ZipReader(const std::filesystem::path& path);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  bool has(const std::string& member) const;
  /// How long the member says it is. Throws IoError where there is none, or the archive cannot hold as much.
  std::int64_t size(const std::string& member) const;
  /// The member, its CRC-32 checked, under the name "FILE:MEMBER"; with `most`, only its first bytes. Throws
  /// IoError.
  std::shared_ptr<const FileBytes> read(const std::string& member, std::int64_t most = INT64_MAX) const;
  [[noreturn]] void fail(const std::string& message) const { file_.fail(0, message); }

 private:
  std::uint64_t find(const std::string& member) const;
  [[noreturn]] void fail_in(const std::string& member, std::int64_t offset, const std::string& message) const;

  FileBytes file_;
  zip_t* archive_ = nullptr;
};

ZipReader::ZipReader(const std::filesystem::path& path) : file_(path, "npz", kAdvice) {
  zip_error_t error;
  zip_error_init(&error);
  const auto check = [&](const void* made) {
    if (made) return;
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    fail("must be a whole zip file, but got: " + reason);
  };
  zip_source_t* source = zip_source_buffer_create(file_.bytes().data(), file_.bytes().size(), 0, &error);
  check(source);
  archive_ = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
  if (!archive_) zip_source_free(source);
  check(archive_);
  zip_error_fini(&error);
}

ZipReader::~ZipReader() {
  zip_discard(archive_);
}

bool ZipReader::has(const std::string& member) const {
  return zip_name_locate(archive_, member.c_str(), 0) >= 0;
}

void ZipReader::fail_in(const std::string& member, std::int64_t offset, const std::string& message) const {
  FileBytes(file_.name() + ":" + member, {}, "npz", kAdvice).fail(offset, message);
}

std::uint64_t ZipReader::find(const std::string& member) const {
  const std::int64_t index = zip_name_locate(archive_, member.c_str(), 0);
  if (index < 0) fail_in(member, 0, "the member must be there, but is not");
  return static_cast<std::uint64_t>(index);
}

std::int64_t ZipReader::size(const std::string& member) const {
  zip_stat_t status;
  if (zip_stat_index(archive_, find(member), 0, &status) != 0 || !(status.valid & ZIP_STAT_SIZE) ||
      !(status.valid & ZIP_STAT_COMP_METHOD)) {
    fail_in(member, 0, "the member must have a size and a method, but has not");
  }
  if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
    fail_in(member, 0,
            fmt::format("the member must be stored or deflated, but its method is {}", status.comp_method));
  }
  if (status.size / detail::kMostExpansion > file_.bytes().size()) {
    fail_in(member, 0,
            fmt::format("the member's {} bytes must fit into a file of {}, but cannot", status.size,
                        file_.size()));
  }
  return static_cast<std::int64_t>(status.size);
}

// Memory grows with what comes out. Of a whole member one byte more is asked for, which must not come: the
// CRC is checked there.
std::shared_ptr<const FileBytes> ZipReader::read(const std::string& member, std::int64_t most) const {
  constexpr std::size_t kPiece = std::size_t{1} << 24;
  const std::int64_t whole = size(member);
  const auto wanted = static_cast<std::size_t>(std::min(whole, most)), room = wanted + (most > whole ? 1 : 0);
  zip_file_t* opened = zip_fopen_index(archive_, find(member), 0);
  if (!opened) {
    fail_in(member, 0, fmt::format("the member must be readable, but got: {}", zip_strerror(archive_)));
  }
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(opened, &zip_fclose);
  std::vector<std::uint8_t> content;
  content.reserve(room);
  std::size_t done = 0;
  for (zip_int64_t got = 1; got > 0 && done < room; done += static_cast<std::size_t>(got)) {
    content.resize(std::min(room, done + kPiece));
    got = zip_fread(opened, content.data() + done, content.size() - done);
    if (got < 0) {
      fail_in(member, static_cast<std::int64_t>(done),
              fmt::format("the member must be whole, but got: {}", zip_file_strerror(opened)));
    }
  }
  content.resize(done);
  if (done != wanted) {
    fail_in(member, static_cast<std::int64_t>(done),
            fmt::format("the member must have {} bytes, but has not", whole));
  }
  return std::make_shared<FileBytes>(file_.name() + ":" + member, std::move(content), "npz", kAdvice);
}

}  // namespace

std::unique_ptr<Dataset> open_npz(const std::filesystem::path& path, const NpzOptions& options) {
  detail::check_classes(options.classes, "npz");
  ATH_CHECK(options.images.empty() == options.labels.empty(),
            "npz: the names of images and labels must be given together, but one is empty");
  const ZipReader archive(path);
  std::string images = options.images, labels = options.labels;
  for (const auto& [x, y] : kNames) {
    if (!images.empty()) break;
    if (archive.has(fmt::format("{}.npy", x)) && archive.has(fmt::format("{}.npy", y)))
      images = x, labels = y;
  }
  if (images.empty()) {
    archive.fail(
        "must have arrays images and labels, x and y, x_train and y_train or the like, but has not: name "
        "yours");
  }
  images += ".npy";
  labels += ".npy";
  // Nothing large is decompressed before both headers agree; labels come before pixels.
  detail::NpyPair pair = detail::check_npy(*archive.read(images, detail::kNpyHead), archive.size(images),
                                           *archive.read(labels, detail::kNpyHead), archive.size(labels));
  std::vector<std::int64_t> values = detail::npy_labels(pair, *archive.read(labels), options.classes);
  return std::make_unique<detail::DenseStore>(archive.read(images), pair.images.data, pair.spec,
                                              std::move(values));
}

}  // namespace athanor
