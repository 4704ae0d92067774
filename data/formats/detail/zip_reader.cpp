#include "data/formats/detail/zip_reader.h"

#include <algorithm>

#include <zip.h>

#include "tensor/error.h"

namespace athanor::detail {
namespace {

constexpr char kAdvice[] = "write it again with numpy.savez";
/// More than deflate can expand a byte to: a size beyond it was made up.
constexpr std::uint64_t kMostExpansion = 1040;

}  // namespace

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
  zip_discard(static_cast<zip_t*>(archive_));
}

bool ZipReader::has(const std::string& member) const {
  return zip_name_locate(static_cast<zip_t*>(archive_), member.c_str(), 0) >= 0;
}

std::shared_ptr<const FileBytes> ZipReader::read(const std::string& member) const {
  auto* archive = static_cast<zip_t*>(archive_);
  std::vector<std::uint8_t> content;
  std::size_t done = 0;
  const auto failed = [&](const std::string& message) {
    FileBytes(file_.name() + ":" + member, {}, "npz", kAdvice).fail(static_cast<std::int64_t>(done), message);
  };
  const std::int64_t index = zip_name_locate(archive, member.c_str(), 0);
  if (index < 0) failed("the member must be there, but is not");
  zip_stat_t status;
  if (zip_stat_index(archive, static_cast<zip_uint64_t>(index), 0, &status) != 0 ||
      !(status.valid & ZIP_STAT_SIZE) || !(status.valid & ZIP_STAT_COMP_METHOD)) {
    failed("the member must have a size and a method, but has not");
  }
  if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
    failed(fmt::format("the member must be stored or deflated, but its method is {}", status.comp_method));
  }
  if (status.size / kMostExpansion > file_.bytes().size()) {
    failed(fmt::format("the member's {} bytes must fit into a file of {}, but cannot", status.size,
                       file_.size()));
  }
  zip_file_t* opened = zip_fopen_index(archive, static_cast<zip_uint64_t>(index), 0);
  if (!opened) failed(fmt::format("the member must be readable, but got: {}", zip_strerror(archive)));
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(opened, &zip_fclose);
  for (;;) {  // to the end and past it: the CRC is checked there
    content.resize(done + std::clamp<std::size_t>(done, 1 << 16, 1 << 26));
    const zip_int64_t got = zip_fread(file.get(), content.data() + done, content.size() - done);
    if (got < 0) {
      failed(fmt::format("the member must be whole, but got: {}", zip_file_strerror(file.get())));
    }
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
    if (done > status.size) break;
  }
  if (done != status.size) failed(fmt::format("the member must have {} bytes, but has not", status.size));
  content.resize(done);
  return std::make_shared<FileBytes>(file_.name() + ":" + member, std::move(content), "npz", kAdvice);
}

}  // namespace athanor::detail
